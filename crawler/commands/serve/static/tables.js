// Views that are tables: hosts, one host's pages and failures, failures by reason, settings.

import { about, get, bytes, el, inside, many, number, pause, refill, way, when } from "./dom.js";
import { canOrder, retry } from "./orders.js";
import { reasons } from "./overview.js";
import { button, choices, table } from "./parts.js";

const TYPING = 250; // milliseconds without a key before a search begins
const AGAIN = 5000; // milliseconds until a table is loaded again
const MOST = 1000; // rows of one table
const ENOUGH = 50; // rows that a search brings before somebody has to ask for more
const PARTS = 10; // and requests that it makes before

// What all of them do: load, show, reload, show errors; `query` is what stands in the address.
class Table {
  constructor(view, query, again) {
    this.view = view;
    this.query = query;
    this.body = el("div", {});
    this.element = el("section", { class: "card" }, this.body);
    this.load();
    this.timer = again && setInterval(() => document.hidden || this.again(), AGAIN);
  }

  again() {
    this.load();
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
    const on = { input: () => this.type(), keydown: (event) => event.key === "Enter" && this.enter() };
    this.search = searchBox("part of a host's name, or a URL", query.search, on);
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
    const about = { scope: "col", class: name === "host" ? "" : "number", "aria-sort": direction, "data-name": title };
    return el("th", about, made);
  }

  show(found) {
    const { counted, known } = found;
    const waiting = `${number(counted)} of ${number(known)} hosts are counted so far; the others come last`;
    const told = counted < known ? waiting : many(known, "host");
    if (this.counted.textContent !== told) this.counted.textContent = told;
    const names = { host: "Host", pages: "Pages", bytes: "Size", waiting: "Waiting", failed: "Failed", failures: "No page" };
    const heads = Object.entries(names).map(([name, title]) => this.head(name, title));
    heads.splice(4, 0, ["Delay", "number"]);
    const nothing = this.query.search ? "no host has this in its name" : "no host has been requested yet";
    refill(this.body, table(heads, found.rows.map(hostRow), nothing), this.pager(found));
  }
}

function hostRow({ host, pages, bytes: size, waiting, delay, failed, failures, estimated }) {
  const linked = () => inside("host", { host, what: "failures" }, number(failures), `failures ${host}`);
  const cells = [
    number(pages),
    about(bytes(size), estimated.includes("bytes")),
    number(waiting),
    pause(delay),
    about(number(failed), estimated.includes("failed")),
    failures ? linked() : "0",
  ];
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, inside("host", { host }, host, `host ${host}`)),
    cells.map((cell) => el("td", { class: "number" }, cell)),
  );
}

function searchBox(placeholder, value, on) {
  const about = { placeholder, autocomplete: "off", spellcheck: "false", maxlength: "200" };
  const made = el("input", { type: "search", id: "search", ...about, on });
  made.value = value || "";
  return made;
}

export class Host extends Table {
  constructor(query) {
    super("host", query, true);
    const crumb = el("p", { class: "crumb" }, el("a", { href: way("hosts") }, "Hosts"), " ›");
    const title = el("h2", { class: "title" }, el("bdi", {}, query.host || "?"));
    this.facts = el("div", { class: "facts" });
    this.search = searchBox("words of a URL or a title", query.search, { input: () => this.type() });
    const label = el("label", { for: "search" }, "Search the URLs and titles of this host");
    this.element.prepend(crumb, title, this.facts, label, this.search);
    this.begin();
  }

  end() {
    super.end();
    clearTimeout(this.typed);
  }

  type() {
    clearTimeout(this.typed);
    this.typed = setTimeout(() => this.change({ search: this.search.value.trim(), part: 0 }), TYPING);
  }

  begin() {
    this.rows = []; // that a search has found so far
    this.enough = ENOUGH;
    this.parts = 0; // requests that it has made
    delete this.query.after;
  }

  change(changes) {
    this.begin();
    super.change(changes);
  }

  // What a search has found stays, and is not searched for again and again.
  again() {
    if (!this.query.search) this.load();
  }

  show(found) {
    const what = this.query.what || "pages";
    this.tell(found);
    const names = { pages: many(found.pages, "page"), failures: `${number(found.failures)} without a page` };
    const tabs = choices("What is shown", names, what, (name) => this.change({ what: name, part: 0 }));
    if (this.query.search) this.rows = [...this.rows, ...found.rows].slice(0, MOST);
    const rows = this.query.search ? this.rows : found.rows;
    const nothing = this.query.search ? (found.after ? "none so far" : "none has these words") : undefined;
    const shown = what === "pages" ? pages(rows, nothing) : failures(rows, nothing);
    refill(this.body, tabs, shown, this.query.search ? this.further(found) : this.pager(found));
  }

  // What is known of the host, in a line.
  tell(found) {
    const size = about(bytes(found.bytes), found.estimated.includes("bytes"));
    const failed = about(number(found.failed), found.estimated.includes("failed"));
    const told = { Size: size, Waiting: number(found.waiting), Delay: pause(found.delay), Failed: failed };
    const pairs = Object.entries(told).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    const act = canOrder() ? [retry("Retry this host", found.failed, { host: this.query.host })] : [];
    refill(this.facts, el("dl", {}, pairs), act);
  }

  // How far the search is; it goes on by itself for a while.
  further(found) {
    const count = this.rows.length;
    this.parts += 1;
    const goesOn = found.after && count < this.enough && this.parts < PARTS;
    const seen = `${number(found.seen)} of ${number(found.total)} records`;
    const first = goesOn ? `searching: ${number(count)} in ${seen}` : `showing the first ${number(count)}, found in ${seen}`;
    const told = found.after ? first : `${number(count)} found in all ${number(found.total)} records`;
    const next = () => {
      this.query = { ...this.query, after: found.after };
      this.load();
    };
    const restart = () => {
      this.parts = 0;
      this.enough = count + ENOUGH;
      next();
    };
    const more = found.after && !goesOn && count < MOST ? [button("Look further", "more", restart)] : [];
    if (goesOn) setTimeout(() => this.query.search === this.search.value.trim() && next(), 0);
    return el("div", { class: "pager" }, el("span", { role: "status" }, told), more);
  }
}

export class Failures extends Table {
  constructor(query) {
    super("failures", query, false);
    this.rows = [];
    this.reasons = el("div", {});
    this.meaning = el("p", { class: "note" });
    const title = query.reason ? ["No page: ", el("bdi", {}, query.reason)] : "URLs without a page";
    this.act = el("div", { class: "act" });
    this.element.prepend(el("h2", { class: "title" }, title), this.meaning, this.act);
    this.element = el("div", { class: "beside" }, this.reasons, this.element);
  }

  update(found) {
    refill(this.reasons, ...reasons(found));
    const { reason } = this.query;
    const count = reason ? found.reasons[reason] : found.failed;
    refill(this.act, canOrder() ? [retry(reason ? "Retry these" : "Retry failed", count, reason ? { reason } : {})] : []);
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
    const heads = [["Setting", ""], ["Value", ""], ["Meaning", ""]];
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
    el("td", {}, help),
  );
}

function pages(rows, nothing = "no page of this host is kept") {
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
      el("td", {}, row.type || "–"),
      el("td", { class: "number" }, String(row.status ?? "–")),
      el("td", { class: "number" }, bytes(row.bytes)),
      el("td", { class: "number" }, number(row.links)),
      el("td", { class: "number" }, when(row.fetched)),
    ),
  );
  const rest = ["Size", "Links", "Fetched"].map((name) => [name, "number"]);
  return table([["Page", ""], ["Type", ""], ["Status", "number"], ...rest], made, nothing);
}

// Details are shown if there is one.
function failures(rows, nothing = "none") {
  const isTold = rows.some((row) => row.detail);
  const made = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "page" }, inside("page", { url: row.url }, String(row.url), `page ${row.url}`)),
      el("td", {}, row.kind),
      el("td", { class: "reason" }, inside("failures", { reason: row.reason }, String(row.reason), `reason ${row.url}`)),
      isTold ? el("td", { class: "detail" }, row.detail ? el("bdi", {}, String(row.detail)) : null) : null,
      el("td", { class: "number" }, number(row.attempts)),
      el("td", { class: "number" }, when(row.when)),
    ),
  );
  const detail = isTold ? [["Detail", "detail"]] : [];
  const heads = [["URL", ""], ["Kind", ""], ["Reason", ""], ...detail, ["Attempts", "number"], ["When", "number"]];
  return table(heads, made, nothing);
}
