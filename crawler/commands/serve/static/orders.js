// Buttons that change something: pause, resume, stop, retry. What came of it stands below the header, for everybody.

import { el, many, refill, send } from "./dom.js";
import { button } from "./parts.js";

const SHOWN = 60; // seconds for which an order that has ended is shown
const RUNNING = ["alive", "starting", "silent"];

let last = null; // what was found at the last look
let look = () => {}; // looks again
let hidden = ""; // what somebody has read and closed
const own = { failed: null }; // an order of ours that was refused

export function begin(again) {
  look = again;
}

// The buttons in the header and what was said, for what was found.
export function update(found) {
  last = found;
  refill(document.getElementById("controls"), found.orders.read_only ? [] : controls(found));
  tell();
}

function controls(found) {
  const running = found.machines.filter((machine) => RUNNING.includes(machine.state)).length;
  const turn = found.paused ? button("Resume", "resume", () => give({ order: "resume" })) : button("Pause", "pause", () => give({ order: "pause" }));
  const sure = `${many(running, "machine")} will finish what is in flight and end. Nothing is lost; \`crawler run\` resumes the crawl.`;
  const stop = () => ask("Stop the crawl?", sure, "Stop", { order: "stop" });
  return [turn, button("Stop", "stop", stop, { disabled: !running }), retry("Retry failed", found.failed, {})];
}

// A button that requests failed URLs again: all, or those of a reason or a host; they may be `count`.
export function retry(text, count, which) {
  const whose = which.host ? ` of ${which.host}` : "";
  const what = which.reason ? `Every URL with the reason ${which.reason}${whose}` : `Every URL that failed${whose}`;
  const sure = `${what} will be requested once more, politely as ever.`;
  const act = () => ask(`${text}?`, sure, "Retry", { order: "retry", ...which });
  return button(text, `retry ${which.reason || ""} ${which.host || ""}`, act, { disabled: !count });
}

export const canOrder = () => Boolean(last) && !last.orders.read_only;

// One more question before what cannot be taken back.
function ask(title, text, yes, form) {
  const dialog = el("dialog", { "aria-labelledby": "asked", "aria-describedby": "sure" });
  const answer = (act) => () => {
    dialog.close();
    act();
  };
  const buttons = [
    button("Cancel", "cancel", answer(() => {})),
    button(yes, "yes", answer(() => give(form)), { class: "primary" }),
  ];
  dialog.append(el("h2", { id: "asked" }, title), el("p", { id: "sure" }, text), el("div", { class: "answers" }, buttons));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function give(form) {
  own.failed = null;
  hidden = "";
  try {
    await send("/api/order", form);
  } catch (error) {
    own.failed = `${form.order}: ${error.message}`;
  }
  tell();
  await look();
}

function tell() {
  const place = document.getElementById("told");
  const given = (last?.orders.given || []).filter((order) => !order.ended || order.ago < SHOWN);
  const lines = given.filter((order) => !order.failed).map(written);
  const shown = own.failed ? [own.failed] : lines.slice(-1);
  const readOnly = last?.orders.read_only;
  const text = readOnly || (shown.join(" ") === hidden ? "" : shown.join(" "));
  place.hidden = !text;
  place.className = readOnly ? "quiet" : own.failed ? "failed" : "";
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const close = button("×", "close", () => hide(shown.join(" ")), { "aria-label": "Close", class: "close" });
  refill(place, el("span", {}, text), readOnly ? [] : close);
}

function written(order) {
  return `${order.order}: ${order.said.join("; ") || "under way"}${order.ended ? "" : " …"}`;
}

function hide(text) {
  hidden = text;
  own.failed = null;
  tell();
}
