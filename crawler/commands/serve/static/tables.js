// Views that are tables: hosts, one host's pages and failures, failures by reason, settings.

import { get, bytes, el, inside, many, number, refill, way, when } from "./dom.js";
import { reasons } from "./overview.js";
import { button, choices, table } from "./parts.js";

const TYPING = 250; // milliseconds without a key before a search begins
const AGAIN = 5000; // milliseconds until a table is loaded again
const MOST = 1000; // rows of one table

// What all of them do: load, show, reload, show errors; `query` is what stands in the address.
class Table {
  constructor(view, query, again) {
    this.view = view;
    this.query = query;
    this.body = el("div", {});
    this.element = el("section", { class: "card" }, this.body);
    this.load();
    this.timer = again && setInterval(() => document.hidden || this.load(), AGAIN);
  }

  end() {
    clearInterval(this.timer);
    this.request?.abort();
  }

  async load() {
    this.request?.abort();
    const request = (this.request = new AbortController());
    try {
      const found = await get(`/api/${this.view}`, this.query, request.signal);
      if (request === this.request) this.show(found);
    } catch (error) {
      if (!request.signal.aborted) refill(this.body, el("p", { class: "wrong" }, error.message));
    }
  }

  // Other parameters, in the address too, so that the way back leads here.
  change(changes) {
    this.query = { ...this.query, ...changes };
    history.replaceState(null, "", way(this.view, this.query));
    this.load();
  }

  pager({ part, parts, size, total, rows }) {
    const go = (text, label, to, enabled) =>
      button(text, `part ${label}`, () => this.change({ part: to }), { "aria-label": label, disabled: !enabled });
    const first = part * size + 1;
    const told = total ? `${number(first)}–${number(first + rows.length - 1)} of ${number(total)}` : "none";
    return el(
      "div",
      { class: "pager" },
      go("⇤", "First", 0, part > 0),
      go("← Previous", "Previous", part - 1, part > 0),
      el("span", { role: "status" }, told),
      go("Next →", "Next", part + 1, part + 1 < parts),
      go("⇥", "Last", parts - 1, part + 1 < parts),
    );
  }
}

export class Hosts extends Table {
  constructor(query) {
    super("hosts", query, true);
    this.element.classList.add("slim");
    const about = { placeholder: "part of a host's name, or a URL", autocomplete: "off", spellcheck: "false" };
    const on = { input: () => this.type(), keydown: (event) => event.key === "Enter" && this.enter() };
    this.search = el("input", { type: "search", id: "search", ...about, on });
    this.search.value = query.search || "";
    this.counted = el("p", { class: "note", role: "status" });
    this.element.prepend(el("h2", {}, "Hosts"), el("label", { for: "search" }, "Search"), this.search, this.counted);
  }

  end() {
    super.end();
    clearTimeout(this.typed);
  }

  get url() {
    const typed = this.search.value.trim();
    return /^https?:\/\//i.test(typed) ? typed : null;
  }

  type() {
    clearTimeout(this.typed);
    this.typed = setTimeout(() => this.url || this.change({ search: this.search.value, part: 0 }), TYPING);
  }

  enter() {
    if (this.url) location.hash = way("page", { url: this.url });
  }

  // The largest first, and names from a to z; a second click turns it around.
  head(name, title) {
    const sorted = (this.query.sort || "pages") === name;
    const turned = this.query.order === "up";
    const rising = (name === "host") !== turned;
    const order = sorted && !turned ? "up" : "down";
    const made = button(title, `sort ${name}`, () => this.change({ sort: name, order, part: 0 }), { class: "sort" });
    const sign = el("span", { class: "sign", "aria-hidden": "true" }, sorted ? (rising ? "▴" : "▾") : "");
    if (name === "host") made.append(sign);
    else made.prepend(sign);
    const direction = sorted ? (rising ? "ascending" : "descending") : null;
    return el("th", { scope: "col", class: name === "host" ? "" : "number", "aria-sort": direction }, made);
  }

  show(found) {
    const { counted, known } = found;
    const waiting = `${number(counted)} of ${number(known)} hosts are counted so far; the others come last`;
    const told = counted < known ? waiting : many(known, "host");
    if (this.counted.textContent !== told) this.counted.textContent = told;
    const heads = [this.head("host", "Host"), this.head("pages", "Pages"), this.head("failures", "No page")];
    const nothing = this.query.search ? "no host has this in its name" : "no host has been requested yet";
    refill(this.body, table(heads, found.rows.map(hostRow), nothing), this.pager(found));
  }
}

function hostRow({ host, pages, failures }) {
  const linked = () => inside("host", { host, what: "failures" }, number(failures), `failures ${host}`);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, inside("host", { host }, host, `host ${host}`)),
    el("td", { class: "number" }, number(pages)),
    el("td", { class: "number" }, failures ? linked() : "0"),
  );
}

export class Host extends Table {
  constructor(query) {
    super("host", query, true);
    const crumb = el("p", { class: "crumb" }, el("a", { href: way("hosts") }, "Hosts"), " ›");
    this.element.prepend(crumb, el("h2", { class: "title" }, el("bdi", {}, query.host || "?")));
  }

  show(found) {
    const what = this.query.what || "pages";
    const names = { pages: many(found.pages, "page"), failures: `${number(found.failures)} without a page` };
    const tabs = choices("What is shown", names, what, (name) => this.change({ what: name, part: 0 }));
    refill(this.body, tabs, what === "pages" ? pages(found.rows) : failures(found.rows), this.pager(found));
  }
}

export class Failures extends Table {
  constructor(query) {
    super("failures", query, false);
    this.rows = [];
    this.reasons = el("div", {});
    this.meaning = el("p", { class: "note" });
    const title = query.reason ? ["No page: ", el("bdi", {}, query.reason)] : "URLs without a page";
    this.element.prepend(el("h2", { class: "title" }, title), this.meaning);
    this.element = el("div", { class: "beside" }, this.reasons, this.element);
  }

  update(found) {
    refill(this.reasons, ...reasons(found));
  }

  show(found) {
    this.rows = [...this.rows, ...found.rows].slice(0, MOST);
    this.meaning.textContent = found.meaning;
    const told = `${number(this.rows.length)} found${found.after ? " so far" : " in all"}`;
    const more = found.after ? [button("Look further", "more", () => this.further(found.after))] : [];
    const pager = el("div", { class: "pager" }, el("span", { role: "status" }, told), more);
    refill(this.body, failures(this.rows), pager);
  }

  further(after) {
    this.query = { ...this.query, after };
    this.load();
  }
}

export class Settings extends Table {
  constructor() {
    super("settings", {}, false);
    const note = "as crawl.yaml has them; those that are not at their default are marked";
    this.element.prepend(el("h2", { class: "title" }, "Settings of this crawl"), el("p", { class: "note" }, note));
  }

  show(found) {
    const heads = [["Setting", ""], ["Value", ""], ["Meaning", "minor"]];
    refill(this.body, table(heads, found.rows.map(settingRow), ""));
  }
}

function settingRow({ name, value, default: usual, help }) {
  const changed = value !== usual;
  const more = changed ? el("small", {}, ` default ${usual}`) : null;
  return el(
    "tr",
    { class: changed ? "changed" : "" },
    el("th", { scope: "row" }, el("code", {}, name)),
    el("td", { class: "value" }, el("code", {}, value), more),
    el("td", { class: "minor" }, help),
  );
}

function pages(rows) {
  const made = rows.map((row) =>
    el(
      "tr",
      {},
      el(
        "th",
        { scope: "row", class: "page" },
        inside("page", { url: row.url }, row.title || `${row.kind} without a title`, `page ${row.url}`),
        el("small", {}, el("bdi", {}, row.url)),
      ),
      el("td", { class: "number" }, String(row.status ?? "–")),
      el("td", { class: "number minor" }, bytes(row.bytes)),
      el("td", { class: "number minor" }, number(row.links)),
      el("td", { class: "number minor" }, when(row.fetched)),
    ),
  );
  const minor = ["Size", "Links", "Fetched"].map((name) => [name, "number minor"]);
  return table([["Page", ""], ["Status", "number"], ...minor], made, "no page of this host is kept");
}

function failures(rows) {
  const made = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "page" }, inside("page", { url: row.url }, String(row.url), `page ${row.url}`)),
      el("td", {}, row.kind),
      el("td", { class: "reason" }, inside("failures", { reason: row.reason }, String(row.reason), `reason ${row.url}`)),
      el("td", { class: "detail minor" }, el("bdi", {}, String(row.detail ?? ""))),
      el("td", { class: "number minor" }, number(row.attempts)),
      el("td", { class: "number minor" }, when(row.when)),
    ),
  );
  const heads = [["URL", ""], ["Kind", ""], ["Reason", ""], ["Detail", "minor"], ["Attempts", "number minor"], ["When", "number minor"]];
  return table(heads, made, "none");
}
