// Draws the curves and moves the recommendation with the slider. The server computes; this only asks and draws.
"use strict";

const WIDTH = 420, HEIGHT = 304;
const EDGE = {left: 44, right: 58, top: 28, bottom: 60};
const PATIENCE = 120; // milliseconds without a movement before the server is asked
const NAMESPACE = "http://www.w3.org/2000/svg";
const find = (id) => document.getElementById(id);
const form = find("controls"), slider = find("slider"), budget = find("budget"), strategy = find("strategy");
const known = new Map();
const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)}%`;
let timer = 0, asking = null;

document.documentElement.classList.add("scripted");

function element(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:") ? document.createElementNS(NAMESPACE, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

async function ask(first = false) {
  const query = new URLSearchParams({budget: budget.value, strategy: strategy.value}).toString();
  if (!budget.checkValidity() || !budget.value) return;
  if (asking) asking.abort();
  if (!first) history.replaceState(null, "", `/curves?${query}`);
  if (known.has(query)) return show(known.get(query));
  const mine = asking = new AbortController();
  const slow = setTimeout(() => find("answer").classList.add("stale"), 150);
  try {
    const answer = await fetch(`/curves.json?${query}`, {signal: mine.signal});
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.error);
    known.set(query, content);
    setTimeout(() => known.delete(query), 20000); // scores may come in while the page is open
    show(content);
  } catch (error) {
    if (error.name !== "AbortError") complain(error instanceof TypeError ? "No connection to the server." : error.message);
  } finally {
    clearTimeout(slow);
    if (mine === asking) find("answer").classList.remove("stale");
  }
}

function complain(text) {
  find("trouble").textContent = text;
  find("trouble").hidden = !text;
}

function show(content) {
  complain("");
  find("answer").hidden = false;
  find("headline").replaceChildren(`${content.headline} `, element("span", {}, content.why));
  find("rule").textContent = content.rule;
  showAllocation(content.allocation);
  const {factors} = content;
  find("factor-section").hidden = !factors;
  find("factors").replaceChildren(...(factors ? factors.curves.map((curve) => card(curve, factors.limits)) : []));
  find("curve-section").hidden = !content.curves.length;
  find("undecided").hidden = content.decided;
  find("curves").replaceChildren(...content.curves.map((curve) => card(curve, content.limits)));
  find("warnings").hidden = !content.warnings.length;
  find("warning-list").replaceChildren(...content.warnings.map((text) => element("li", {}, text)));
}

function showAllocation(rows) {
  const longest = Math.max(1, ...rows.map((row) => row.amount));
  const body = find("allocation");
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, index) => {
    const line = body.rows[index] || body.appendChild(emptyRow());
    line.className = `c${row.colour}${row.amount ? "" : " none"}`;
    line.cells[0].textContent = row.factor;
    line.querySelector("rect").style.width = `${(100 * row.amount) / longest}px`;
    line.cells[2].textContent = row.amount;
    line.cells[3].textContent = row.current;
  });
}

function emptyRow() {
  const picture = element("svg:svg", {viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true"},
    element("svg:rect", {width: 0, height: 26}));
  return element("tr", {}, element("th", {scope: "row"}), element("td", {class: "fill"}, picture),
    element("td", {class: "amount"}), element("td", {class: "current"}));
}

// --- one curve

function card(curve, limits) {
  const gain = [element("span", {class: "gain"}, curve.flat ? "flat" : `${curve.gain} points`), element("span", {class: "sub"}, curve.sub)];
  const findings = element("details", {}, element("summary", {}, "how far to trust this curve"),
    element("ul", {class: "findings"}, ...curve.findings.map((text) => element("li", {}, text))));
  const caption = element("figcaption", {},
    element("h3", {}, element("span", {class: "swatch"}), curve.label),
    element("p", {class: "gain-line"}, ...gain),
    element("p", {class: "sub"}, curve.note));
  const figure = element("figure", {class: `curve c${curve.colour}`}, caption, plot(curve, limits));
  if (curve.findings.length) figure.append(findings);
  return figure;
}

function plot(curve, [bottom, top]) {
  const reach = curve.end;
  const x = (n) => EDGE.left + ((WIDTH - EDGE.left - EDGE.right) * n) / reach;
  const y = (score) => EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * (top - score)) / (top - bottom);
  const inside = (score) => y(Math.min(top, Math.max(bottom, score)));
  const picture = element("svg:svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "img", "aria-label": curve.words});
  const draw = (name, attributes, ...children) => picture.appendChild(element(`svg:${name}`, attributes, ...children));
  for (const tick of ticks(bottom, top)) {
    draw("line", {class: "gridline", x1: x(0), x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick)});
    draw("text", {x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end"}, percent(tick));
  }
  draw("line", {class: "axis", x1: x(0), x2: WIDTH - EDGE.right, y1: y(bottom), y2: y(bottom)});
  const path = (rows, column) => rows.map((row, index) => `${index ? "L" : "M"}${x(row[0]).toFixed(1)} ${inside(row[column]).toFixed(1)}`).join("");
  const back = [...curve.line].reverse();
  draw("path", {class: "band", d: `${path(curve.line, 3)}${path(back, 2).replace("M", "L")}Z`});
  const last = at(curve.line, curve.mark), now = at(curve.line, curve.size);
  for (const row of [now, last]) draw("line", {class: "drop", x1: x(row[0]), x2: x(row[0]), y1: y(bottom), y2: inside(row[1])});
  draw("path", {class: "fitted", d: path(curve.line.filter((row) => row[0] <= curve.size), 1)});
  draw("path", {class: "beyond", d: path(curve.line.filter((row) => row[0] >= curve.size), 1)});
  for (const point of curve.points) {
    if (point.low !== null) draw("line", {class: "interval", x1: x(point.n), x2: x(point.n), y1: inside(point.low), y2: inside(point.high)});
    draw("circle", {class: "dot", cx: x(point.n), cy: inside(point.score), r: 4.2});
  }
  draw("circle", {class: "ring", cx: x(last[0]), cy: inside(last[1]), r: 5.2});
  const beside = curve.mark >= curve.end; // elsewhere the curve goes on where the number would stand
  const above = (point) => Math.abs(x(point.n) - x(last[0])) < 30 && Math.abs(inside(point.score) - inside(last[1]) + 15) < 15;
  const shift = beside ? 5 : curve.points.some(above) ? 21 : -12; // under the ring where a measured score stands above it
  draw("text", {class: "predicted", x: x(last[0]) + (beside ? 11 : 0), y: inside(last[1]) + shift, "text-anchor": beside ? "start" : "middle"}, percent(last[1], 1));
  draw("text", {x: 0, y: 11}, "success");
  draw("text", {x: (x(0) + x(reach)) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, "demonstrations");
  labels(draw, x, curve, y(bottom));
  return probe(picture, curve, {x, inside, reach});
}

// Both ends of the axis have a number. Where two marks are near, their labels lean away from each other.
function labels(draw, x, curve, foot) {
  const near = curve.mark > curve.size && x(curve.mark) - x(curve.size) < 46;
  const mark = (n, under, anchor) => {
    draw("text", {class: "at", x: x(n), y: foot + 18, "text-anchor": anchor}, String(n));
    if (under) draw("text", {x: x(n), y: foot + 33, "text-anchor": anchor}, under);
  };
  if (x(curve.size) - x(0) > 20) mark(0, "", "middle");
  mark(curve.size, "now", near ? "end" : "middle");
  if (curve.mark > curve.size) mark(curve.mark, `+${curve.mark - curve.size}`, near ? "start" : "middle");
  if (x(curve.end) - x(Math.max(curve.mark, curve.size)) > (near ? 60 : 34)) mark(Math.round(curve.end), "", "middle");
}

function ticks(bottom, top) {
  const step = top - bottom <= 0.61 ? 0.1 : top - bottom <= 0.85 ? 0.2 : 0.25;
  const found = [];
  for (let k = Math.ceil(bottom / step - 1e-9); k * step <= top + 1e-9; k += 1) found.push(k * step);
  return found;
}

// --- pointing at a curve, by hand or by keys

function probe(picture, curve, {x, inside, reach}) {
  const cursor = element("svg:line", {class: "cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: "hidden"});
  const spot = element("svg:circle", {class: "probe", r: 3.5, visibility: "hidden"});
  const readout = element("div", {class: "readout", "aria-hidden": "true"});
  const spoken = element("p", {class: "sr", "aria-live": "polite"});
  const box = element("div", {class: "plot"}, picture, readout, spoken);
  const stops = [...new Set([...curve.points.map((point) => point.n), curve.size, curve.mark, curve.end])].sort((a, b) => a - b);
  let place = -1;
  picture.append(cursor, spot);

  function point(n, speak) {
    const row = nearest(curve.line, n);
    const close = curve.points.filter((point) => Math.abs(x(point.n) - x(n)) < 9);
    const lines = close.length
      ? close.map((p) => `${p.n} demos: measured ${percent(p.score, 1)}${p.trials ? ` (${(100 * p.low).toFixed(1)}–${(100 * p.high).toFixed(1)}), ${p.trials} trials` : ""}`)
      : [];
    lines.push(`${Math.round(row[0])} demos: ${row[0] > curve.size ? "predicted" : "fitted"} ${percent(row[1], 1)} (${(100 * row[2]).toFixed(0)}–${(100 * row[3]).toFixed(0)})`);
    readout.replaceChildren(...lines.map((text) => element("div", {}, text)));
    for (const mark of [cursor, spot]) mark.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(row[0]));
    cursor.setAttribute("x2", x(row[0]));
    spot.setAttribute("cx", x(row[0]));
    spot.setAttribute("cy", inside(row[1]));
    if (speak) spoken.textContent = lines.join("; ");
  }

  function away() {
    readout.replaceChildren();
    for (const mark of [cursor, spot]) mark.setAttribute("visibility", "hidden");
  }

  picture.addEventListener("pointermove", (event) => {
    const frame = picture.getBoundingClientRect();
    const across = ((event.clientX - frame.left) / frame.width) * WIDTH;
    point(Math.min(curve.end, Math.max(0, ((across - EDGE.left) / (WIDTH - EDGE.left - EDGE.right)) * reach)), false);
  });
  picture.addEventListener("pointerleave", away);
  picture.addEventListener("blur", away);
  picture.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.key === "Escape") return away();
    if (!step) return;
    event.preventDefault();
    place = Math.min(stops.length - 1, Math.max(0, place + step));
    point(stops[place], true);
  });
  return box;
}

// The curve between two of its places.
function at(rows, n) {
  const after = rows.findIndex((row) => row[0] >= n);
  if (after <= 0) return rows[after === 0 ? 0 : rows.length - 1];
  const [left, right] = [rows[after - 1], rows[after]], share = (n - left[0]) / (right[0] - left[0]);
  return left.map((value, column) => value + share * (right[column] - value));
}

function nearest(rows, n) {
  return rows.reduce((best, row) => (Math.abs(row[0] - n) < Math.abs(best[0] - n) ? row : best));
}

// --- the controls

function soon() {
  clearTimeout(timer);
  timer = setTimeout(ask, PATIENCE);
}

slider.addEventListener("input", () => { budget.value = slider.value; soon(); });
budget.addEventListener("input", () => { slider.value = budget.value; soon(); });
strategy.addEventListener("change", () => ask());
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
if (!find("answer").hidden) ask(true); // where there is no answer, the page already says why
