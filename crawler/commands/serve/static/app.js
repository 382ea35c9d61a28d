// A view for each address; the state of the crawl is requested every two seconds, whichever view it is.

import { get, long, many, number, rate } from "./dom.js";
import * as orders from "./orders.js";
import { Overview, WAITING_FOR } from "./overview.js";
import { Page } from "./page.js";
import { Failures, Host, Hosts, Settings } from "./tables.js";

const EVERY = 2000; // milliseconds between two looks
const UNSEEN = 10000; // and while nobody sees the page
const TIMEOUT = 20000; // milliseconds for a response
const VIEWS = { "": Overview, hosts: Hosts, host: Host, page: Page, failures: Failures, settings: Settings };

const main = document.getElementById("main");
const state = document.getElementById("state");
const trouble = document.getElementById("trouble");
let view = null;
let last = null; // what was found at the last look that succeeded
let timer = null;

function show() {
  const [, name, tail] = location.hash.match(/^#\/([a-z]*)(?:\?(.*))?$/s) || ["", "", ""];
  view?.end?.();
  view = new (VIEWS[name] || Overview)(Object.fromEntries(new URLSearchParams(tail || "")));
  main.replaceChildren(view.element);
  if (last) view.update?.(last);
  const tab = { host: "hosts", page: "hosts" }[name] ?? name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${tab}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
}

async function look() {
  clearTimeout(timer);
  try {
    last = await get("/api/now", null, AbortSignal.timeout(TIMEOUT));
    tell(last);
    orders.update(last);
    view.update?.(last);
  } catch (error) {
    complain(error);
  }
  timer = setTimeout(look, document.hidden ? UNSEEN : EVERY);
}

function complain(error) {
  const away = error instanceof TypeError || error.name === "TimeoutError";
  const what = away ? "crawler serve does not respond; is it still running?" : error.message;
  const since = last ? ` What is shown is ${long(Date.now() / 1000 - last.when)} old.` : "";
  trouble.textContent = `${what}${since} Trying again.`;
  trouble.hidden = false;
  state.className = "dot silent";
  state.textContent = "no response";
  document.title = "no response – crawler";
}

function tell(found) {
  const name = found.store.split("/").filter(Boolean).at(-1) || "crawler";
  const title = document.getElementById("name");
  title.textContent = name;
  title.title = found.store;
  const [style, text] = standing(found);
  state.className = `dot ${style}`;
  if (state.textContent !== text) state.textContent = text;
  const troubles = [...Object.values(found.blocked).map((about) => about.why), ...found.ignored_settings];
  if (found.uncounted) troubles.push(`No counters for the pages of ${many(found.uncounted, "host")}; Hosts counts them.`);
  trouble.textContent = troubles.join(" ");
  trouble.hidden = !troubles.length;
  const pace = found.history.at(-1).rate;
  document.title = `${pace ? `${rate(pace)}/s, ` : ""}${number(found.pages)} pages – ${name}`;
}

function standing(found) {
  const count = (wanted) => found.machines.filter((machine) => machine.state === wanted).length;
  const blocked = Object.keys(found.blocked).map((name) => WAITING_FOR[name] || name);
  if (found.paused) return ["paused", "paused"];
  if (blocked.length) return ["silent", `waiting for ${blocked.join(", ")}`];
  if (count("alive")) return ["alive", `crawling with ${many(count("alive"), "machine")}`];
  if (count("starting")) return ["starting", "starting"];
  if (count("silent")) return ["silent", `${many(count("silent"), "machine")} silent`];
  if (found.waiting) return ["ended", "no machine is running"];
  return ["ended", found.pages ? "the crawl is over" : "no machine has run yet"];
}

orders.begin(look);
window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => document.hidden || look());
show();
look();
