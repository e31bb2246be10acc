// Scoring that survives a lost connection. What an operator says is kept on the phone first, under a token of its own,
// and forgotten only when the server has answered; sent twice, it counts once.
"use strict";

const desk = document.getElementById("desk"), card = document.getElementById("card");
const unsent = document.getElementById("unsent"), refused = document.getElementById("refused"), spoken = document.getElementById("spoken");
const {evaluation, operator, study} = desk.dataset;
const PLACE = `fsc-score/${study}/${evaluation}/`;
const LOCK = 700; // milliseconds in which a second tap of the same finger must not score the next trial
const STILL_HERE = 60000; // how often a waiting page says so, which keeps its trial claimed
const memory = new Map(); // where the browser keeps nothing, as in some private windows
const drafts = new Map(); // notes of trials that an undo took away from the screen, by code
let sending = false, again = false, failures = 0, timer = 0, waiting = null;

// --- what is not sent yet

function keep(entry) {
  const text = JSON.stringify(entry);
  try { localStorage.setItem(PLACE + entry.token, text); } catch { memory.set(entry.token, text); }
}

function forget(token) {
  memory.delete(token);
  try { localStorage.removeItem(PLACE + token); } catch { /* nothing was kept */ }
}

function kept() {
  const texts = [...memory.values()];
  try {
    for (let index = 0; index < localStorage.length; index += 1) {
      const key = localStorage.key(index);
      if (key.startsWith(PLACE)) texts.push(localStorage.getItem(key));
    }
  } catch { /* nothing can be kept here */ }
  return texts.map((text) => JSON.parse(text)).sort((one, other) => one.order - other.order);
}

function newToken() { // randomUUID is missing where the page came over plain HTTP
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// --- speaking with the server

async function post(what, body) {
  const answer = await fetch(`/score/${evaluation}/${what}`, {
    method: "POST",
    headers: {"Content-Type": "application/json", Accept: "application/json", "X-Part": "1"},
    body: JSON.stringify(body),
    signal: AbortSignal.timeout ? AbortSignal.timeout(15000) : undefined,
  });
  if (answer.status >= 500 || answer.status === 408 || answer.status === 429) throw new Error("worth another try");
  const content = await answer.json().catch(() => { throw new Error("cut short"); });
  return {status: answer.status, content};
}

// Sends everything that is kept, oldest first, then shows where things stand.
async function send() {
  clearTimeout(timer);
  if (sending) { again = true; return; }
  if (document.hidden && !kept().length) return; // a phone in a pocket claims nothing
  sending = true;
  try {
    let shown = false;
    for (let list = kept(); list.length; list = kept()) {
      const {order, ...entry} = list[0];
      const {status, content} = await post("entry", entry);
      if (status === 401) return locked();
      forget(entry.token);
      if (status === 200) show(content);
      else refuse(entry, content.error);
      shown = status === 200;
    }
    if (!shown) await ask();
    failures = 0;
    tellUnsent();
    timer = setTimeout(send, document.getElementById("trial") ? STILL_HERE : 5000);
  } catch {
    failures += 1;
    tellUnsent();
    timer = setTimeout(send, Math.min(1000 * 2 ** (failures - 1), 15000));
  } finally {
    sending = false;
    if (again) { again = false; send(); }
  }
}

async function ask() {
  const {status, content} = await post("next", {operator});
  if (status === 401) return locked();
  if (status !== 200) throw new Error(content.error);
  show(content);
}

function say(choice, code, note) {
  const [kind, ...rest] = choice.split(":"), value = rest.join(":");
  const order = Math.max(Date.now(), ...kept().map((earlier) => earlier.order + 1)); // a clock may be set back
  const entry = {operator, kind: kind === "ending" ? "score" : kind, code, token: newToken(), order};
  if (kind === "score") entry.score = Number(value);
  if (kind === "ending") entry.ending = value;
  if (note.trim()) entry.note = note.trim();
  keep(entry);
  const shown = card.querySelector("#trial");
  drafts.delete(code);
  if (kind === "undo" && shown) drafts.set(shown.dataset.code, shown.querySelector("#note").value);
  card.inert = true; // until there is an answer, or it is clear that there is none
  if (navigator.vibrate) navigator.vibrate(15);
  waiting = setTimeout(() => hold(entry), 250); // a quick answer needs no words in between
  failures = 0;
  send();
}

// --- what is shown

function show(content) {
  clearTimeout(waiting);
  card.inert = false;
  const before = card.querySelector("#trial"), draft = card.querySelector("#note");
  const same = before && content.trial && before.dataset.code === content.trial.code;
  const open = card.querySelector("#overall[open]") !== null;
  const focused = same && document.activeElement === draft;
  if (same && !content.counted) return; // only asked again: nothing moves under a finger
  card.innerHTML = content.html; // made and escaped by the server
  if (open && card.querySelector("#overall")) card.querySelector("#overall").open = true;
  const now = card.querySelector("#trial");
  const text = same && draft ? draft.value : now && drafts.get(content.trial.code);
  if (now && text) now.querySelector("#note").value = text;
  if (focused) now.querySelector("#note").focus();
  if (now && !same) {
    lock(now);
    scrollTo({top: 0});
    const {label, advice, setting} = content.trial;
    const changes = setting.filter((row) => row.changed).map((row) => `${row.factor} ${row.back ? "back to normal" : row.value ?? "normal"}`);
    spoken.textContent = `Next: policy ${label}. ${advice} ${changes.join(", ")}`;
  }
}

function lock(form) {
  form.classList.add("locked");
  form.inert = true;
  setTimeout(() => { form.classList.remove("locked"); form.inert = false; }, LOCK);
}

// The connection is slow or gone: say what is kept, and let it be taken back.
function hold(entry) {
  card.inert = false;
  const words = {score: "Scored", skip: "Skipped", undo: "Taken back", note: "Noted"}[entry.kind];
  const head = document.createElement("h1"), more = document.createElement("span"), back = document.createElement("button");
  const amount = entry.kind === "score" ? ` ${entry.ending || entry.score}` : "";
  head.append(`${words}${amount}. `, more);
  more.textContent = "Kept on this phone. The next trial comes when the connection is back.";
  card.replaceChildren(head);
  if (entry.kind === "undo") return;
  back.className = "strong";
  back.textContent = "Undo";
  back.addEventListener("click", () => say("undo", entry.code, ""));
  card.append(back);
}

function tellUnsent() {
  const count = kept().length;
  unsent.hidden = !failures;
  if (!failures) return;
  const what = count === 1 ? "1 score is kept on this phone" : `${count} scores are kept on this phone`;
  const careful = memory.size ? " This browser forgets them with the page: leave it open." : "";
  unsent.textContent = `No connection. ${count ? `${what} and will be sent by itself.${careful}` : "Trying again."}`;
}

function locked() {
  unsent.hidden = false;
  unsent.textContent = "The server asks for its token again: open the link from its terminal. What is not sent yet stays on this phone.";
}

function refuse(entry, reason) {
  clearTimeout(waiting);
  const line = document.createElement("p"), text = document.createElement("span"), close = document.createElement("button");
  text.textContent = `Not counted: ${reason}`;
  close.textContent = "OK";
  close.addEventListener("click", () => line.remove());
  line.append(text, close);
  refused.append(line);
}

// --- hands and keys

document.addEventListener("submit", async (event) => {
  const form = event.target, pressed = event.submitter;
  if (form.id === "trial" || form.id === "undo") {
    event.preventDefault();
    const note = form.querySelector("#note");
    say(pressed.value, form.elements.code.value, note ? note.value : "");
  } else if (form.id === "next") {
    event.preventDefault();
    send();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const button = card.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (button && !button.closest("[inert]")) {
    event.preventDefault();
    button.click();
  }
});

addEventListener("online", () => { failures = 0; send(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) send(); });
send();
