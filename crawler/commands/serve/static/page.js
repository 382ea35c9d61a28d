// One URL: its record and its html, or why there is none.

import { get, el, inside, number, outside, refill, way, when } from "./dom.js";
import { choices } from "./parts.js";

const WORDS = { fetched: when, when, bytes: number };
const FEW = 10; // links that are shown without a click

export class Page {
  constructor(query) {
    this.request = new AbortController();
    this.element = el("div", {});
    this.load(query.url || "");
  }

  end() {
    this.request.abort();
  }

  async load(url) {
    try {
      this.show(await get("/api/page", { url }, this.request.signal));
    } catch (error) {
      if (!this.request.signal.aborted) refill(this.element, card(el("p", { class: "wrong" }, error.message)));
    }
  }

  show(found) {
    const { record, failure, host } = found;
    const title = record ? record.title || `A ${found.kind} without a title` : failure ? `No page: ${found.kind}` : found.state;
    const hosts = el("a", { href: way("hosts") }, "Hosts");
    const head = card(
      el("p", { class: "crumb" }, hosts, " › ", inside("host", { host }, host), " ›"),
      el("h2", { class: "title" }, el("bdi", {}, title)),
      el("p", { class: "url" }, outside(found.url)),
      record || failure ? facts(found) : el("p", { class: "why" }, found.why),
    );
    const parts = record ? [links(found), ...(found.length === null ? [] : [html(found)])] : [];
    refill(this.element, head, parts);
  }
}

function card(...children) {
  return el("section", { class: "card" }, children);
}

function facts(found) {
  const told = Object.entries(found.record || found.failure).filter(([name]) => name !== "url" && name !== "title");
  const folders = found.record ? (found.length === null ? ["links"] : ["htmls", "links"]) : ["errs"];
  const files = folders.map((folder) => el("code", {}, `${folder}/${found.host}/${found.key}`));
  const rows = [
    ...told.map(([name, value]) => [name, write(name, value)]),
    ...(found.meaning ? [["meaning", found.meaning]] : []),
    ["in the store", files],
  ];
  const width = (value) => (typeof value !== "string" && value.textContent?.length > 30 ? "long" : "");
  const pairs = rows.map(([name, value]) => el("div", { class: width(value) }, el("dt", {}, name), el("dd", {}, value)));
  return el("dl", {}, pairs);
}

function write(name, value) {
  if (value === null || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return el("bdi", {}, WORDS[name] ? WORDS[name](value) : String(value));
}

function links(found) {
  const count = found.link_count;
  const items = found.links.map(({ url, linked }) =>
    el("li", { class: "url" }, linked ? inside("page", { url }, url) : el("bdi", {}, url)),
  );
  const hidden = count - items.length;
  const more = hidden ? el("p", { class: "note" }, `and ${number(hidden)} more`) : null;
  const title = el("h2", {}, found.kind === "redirect" ? "Leads to" : `Links: ${number(count)}`);
  const open = count > 0 && count <= FEW;
  return card(el("details", { open }, el("summary", {}, title), el("ol", { class: "links" }, items), more));
}

// As text, or drawn in a frame in which nothing may run, load or lead away.
function html(found) {
  const place = el("div", {});
  const show = (how) => {
    const shown = how === "text" ? asText(found) : drawn(found);
    refill(place, choices("How the page is shown", { text: "Text", drawn: "Drawn" }, how, show), shown);
  };
  show("text");
  return card(el("h2", {}, "Html"), place);
}

function asText({ text, length }) {
  const cut = text.length < length ? `; the first ${number(text.length)} are shown, and the file has all` : "";
  const note = el("p", { class: "note" }, `${number(length)} characters${cut}`);
  return [note, el("pre", { tabindex: "0", "aria-label": "The page's html" }, text)];
}

function drawn({ url }) {
  const note = "without scripts, images and outer styles: nothing is loaded from the web";
  const src = `/drawn?${new URLSearchParams({ url })}`;
  const frame = el("iframe", { sandbox: "", src, title: "The page as it would be drawn", referrerpolicy: "no-referrer" });
  return [el("p", { class: "note" }, note), frame];
}
