// What several views are made of: buttons, choices, tables, bars.

import { el, number } from "./dom.js";

export function button(text, key, act, more) {
  return el("button", { type: "button", "data-key": key, on: { click: act }, ...more }, text);
}

// Buttons of which one is pressed. `names`: from what is chosen to how it is called.
export function choices(label, names, chosen, choose) {
  const made = Object.entries(names).map(([name, text]) =>
    button(text, `${label} ${name}`, () => choose(name), { "aria-pressed": String(name === chosen) }),
  );
  return el("div", { class: "choices", role: "group", "aria-label": label }, made);
}

export function head([name, style]) {
  return el("th", { scope: "col", class: style }, name);
}

// `columns` are pairs of a name and its style, or heads that are made already.
export function table(columns, rows, nothing) {
  const heads = columns.map((column) => (Array.isArray(column) ? head(column) : column));
  const none = el("tr", {}, el("td", { colspan: heads.length, class: "nothing" }, nothing));
  const body = el("tbody", {}, rows.length ? rows : none);
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
}

// A list in which the length of a bar says how many. `rows`: an element, a count, and perhaps a few words more.
export function bars(title, style, rows, nothing) {
  const most = Math.max(...rows.map(([, count]) => count || 0), 1);
  const items = rows.map(([label, count, more]) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.max(((count || 0) / most) * 100, 0.5)}%`;
    const words = more ? el("small", {}, more) : null;
    return el("li", {}, el("span", { class: "label" }, label), el("span", { class: "count" }, number(count)), bar, words);
  });
  const list = items.length ? el("ol", {}, items) : el("p", { class: "nothing" }, nothing);
  return el("section", { class: `card bars ${style}` }, el("h2", {}, title), list);
}
