// Elements, numbers and times. Text of others only ever becomes text: nothing here reads html.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") {
      for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Put new children into a place; the keyboard stays where it was, if what it was on is there again.
export function refill(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children.flat(Infinity));
  if (focused === undefined) return;
  for (const candidate of place.querySelectorAll("[data-key]")) {
    if (candidate.dataset.key === focused) candidate.focus({ preventScroll: true });
  }
}

// A link out of here, for http and https alone; anything else stays text.
export function outside(url) {
  if (!/^https?:\/\//i.test(url)) return el("bdi", {}, url);
  return el("a", { href: url, target: "_blank", rel: "noreferrer noopener" }, el("bdi", {}, url));
}

// The way to a view of ours.
export function way(view, query) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const tail = new URLSearchParams(given).toString();
  return `#/${view}${tail ? `?${tail}` : ""}`;
}

export function inside(view, query, text, key) {
  return el("a", { href: way(view, query), "data-key": key }, el("bdi", {}, text));
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const FINE = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const ONE = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export function number(value) {
  return typeof value === "number" ? WHOLE.format(value) : "–";
}

// A number that must fit where it stands.
export function short(value) {
  return typeof value !== "number" ? "–" : Math.abs(value) < 1e6 ? WHOLE.format(value) : SHORT.format(value);
}

export function rate(value) {
  if (typeof value !== "number") return "–";
  if (value === 0) return "0";
  return value >= 100 ? WHOLE.format(Math.round(value)) : value >= 1 ? ONE.format(value) : FINE.format(value);
}

// The seconds between two requests to a host.
export function pause(seconds) {
  return seconds < 10 ? `${FINE.format(seconds)} s` : long(seconds);
}

export function bytes(value) {
  if (typeof value !== "number") return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let step = 0;
  while (value >= 1000 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step && value < 100 ? ONE.format(value) : WHOLE.format(Math.round(value))} ${units[step]}`;
}

export function many(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// How long, in the largest unit that says enough.
export function long(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 100 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// A time as a store writes it, as this place's people read it.
export function when(text) {
  const found = new Date(text);
  if (!text || Number.isNaN(found.getTime())) return text || "–";
  return found.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

// A number that may be concluded from a sample.
export function about(text, estimated) {
  return estimated ? el("span", { title: "concluded from a sample" }, `≈ ${text}`) : text;
}

export async function get(path, query, signal) {
  const tail = query ? `?${new URLSearchParams(query)}` : "";
  return read(await fetch(path + tail, { signal, headers: { Accept: "application/json" } }));
}

let token = null; // that every change needs: only a page of this very address can read it

export async function send(path, form) {
  token ??= (await get("/api/token")).token;
  const headers = { Accept: "application/json", "X-Crawler-Token": token };
  const response = await fetch(path, { method: "POST", headers, body: new URLSearchParams(form) });
  if (response.status === 403) token = null; // it may be another server by now
  return read(response);
}

async function read(response) {
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
  const found = isJson ? JSON.parse(text) : { error: text.trim() };
  if (!response.ok) throw new Error(found.error || `HTTP ${response.status}`);
  return found;
}
