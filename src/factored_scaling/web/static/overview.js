// Keeps the overview up to date: asks for its changing part, and puts it in when it is another one.
"use strict";

const EVERY = 2000; // milliseconds
const LONGEST = 30000; // between two tries while there is no connection
const page = new URLSearchParams(location.search).get("page"); // of the table
const address = page ? "/overview?page=" + encodeURIComponent(page) : "/overview";
const live = document.getElementById("live");
const link = document.getElementById("link");
let tag = "";
let failures = 0;
let timer = setTimeout(look, EVERY);

async function look() {
  clearTimeout(timer);
  if (document.hidden) return; // somebody who comes back to the page asks at once
  try {
    const answer = await fetch(address, {headers: tag ? {"If-None-Match": tag} : {}, cache: "no-store"});
    if (answer.status === 200) {
      tag = answer.headers.get("ETag") || "";
      put(await answer.text());
    } else if (answer.status !== 304) {
      throw new Error(String(answer.status));
    }
    failures = 0;
    link.textContent = "live";
  } catch {
    failures += 1;
    link.textContent = "no connection; trying again";
  }
  clearTimeout(timer);
  timer = setTimeout(look, Math.min(EVERY * 2 ** failures, LONGEST));
}

function put(text) {
  const open = [...live.querySelectorAll("details[open]")].map((element) => element.id);
  const across = [...live.querySelectorAll(".scroll")].map((element) => element.scrollLeft);
  const focused = [...live.querySelectorAll("[tabindex], summary")].indexOf(document.activeElement);
  live.innerHTML = text; // made and escaped by the server
  for (const id of open) {
    const element = document.getElementById(id);
    if (element) element.open = true;
  }
  live.querySelectorAll(".scroll").forEach((element, index) => { element.scrollLeft = across[index] || 0; });
  const again = live.querySelectorAll("[tabindex], summary")[focused];
  if (again) again.focus({preventScroll: true});
}

document.addEventListener("visibilitychange", look);
