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

// `columns` are pairs of a name and its style, or heads that are made already. On a narrow screen each row becomes a
// block in which every value has the name of its column; the roles tell listeners that it still is a table.
export function table(columns, rows, nothing) {
  const heads = columns.map((column) => (Array.isArray(column) ? head(column) : column));
  const names = heads.map((made) => made.dataset.name || made.textContent);
  const none = el("tr", {}, el("td", { colspan: heads.length, class: "nothing" }, nothing));
  const body = rows.length ? rows : [none];
  for (const row of body) {
    row.setAttribute("role", "row");
    [...row.children].forEach((cell, place) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      if (cell.tagName === "TD" && rows.length) cell.dataset.label = names[place];
    });
  }
  for (const made of heads) made.setAttribute("role", "columnheader");
  const sorts = heads.some((made) => made.querySelector("button")) ? "sorts" : "";
  const top = el("thead", { role: "rowgroup", class: sorts }, el("tr", { role: "row" }, heads));
  return el("div", { class: "scroll" }, el("table", { role: "table" }, top, el("tbody", { role: "rowgroup" }, body)));
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
