// One URL: its record and its html, or why there is none.

import { bytes, get, el, inside, number, outside, refill, way, when } from "./dom.js";
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
    const title = record ? record.title || untitled(found) : failure ? `No page: ${found.kind}` : found.state;
    const hosts = el("a", { href: way("hosts") }, "Hosts");
    const head = card(
      el("p", { class: "crumb" }, hosts, " › ", inside("host", { host }, host), " ›"),
      el("h2", { class: "title" }, el("bdi", {}, title)),
      el("p", { class: "url" }, outside(found.url)),
      record || failure ? facts(found) : el("p", { class: "why" }, found.why),
    );
    const content = !record ? [] : found.file ? [file(found)] : found.length === null ? [] : [html(found)];
    const parts = record ? (found.file ? [...content, links(found)] : [links(found), ...content]) : [];
    refill(this.element, head, parts);
  }
}

function untitled({ kind, url }) {
  const name = url.split("?")[0].split("/").filter(Boolean).at(-1);
  return kind === "file" ? name : `A ${kind} without a title`;
}

function card(...children) {
  return el("section", { class: "card" }, children);
}

function facts(found) {
  const elsewhere = ["url", "title", ...(found.file ? ["file"] : [])]; // that are shown in their own place
  const told = Object.entries(found.record || found.failure).filter(([name]) => !elsewhere.includes(name));
  const folders = found.record ? (found.file || found.length === null ? ["links"] : ["htmls", "links"]) : ["errs"];
  const names = folders.map((folder) => `${folder}/${found.host}/${found.key}`);
  const files = [...(found.file ? [found.file.name] : []), ...names].map((name) => el("code", {}, name));
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

// What is no text: a picture is shown, other text read, and everything can be saved.
function file(found) {
  const { shown, size } = found.file;
  const kind = String(found.record.type || "of an unknown type");
  if (size === null || size === undefined) return card(el("h2", {}, "File"), el("p", { class: "wrong" }, "the file is gone from the store"));
  const src = `/file?${new URLSearchParams({ url: found.url })}`;
  const save = el("a", { href: src, download: "", class: "button" }, "Download");
  const note = el("p", { class: "note" }, `${kind}, ${bytes(size)} `);
  const picture = () => el("img", { src, alt: found.record.title || `the image at ${found.url}`, class: "picture" });
  const body = shown === "image" ? [picture()] : shown === "text" ? asText(found) : [];
  return card(el("h2", {}, shown === "image" ? "Image" : shown === "text" ? "Text" : "File"), note, save, body);
}

// As text, or drawn in a frame in which nothing may run, load or lead away.
function html(found) {
  if (!/html/.test(String(found.record.type || "html"))) return card(el("h2", {}, "Text"), asText(found));
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
  return [note, el("pre", { tabindex: "0", "aria-label": "The page's text" }, text)];
}

function drawn({ url }) {
  const note = "without scripts, images and outer styles: nothing is loaded from the web";
  const src = `/drawn?${new URLSearchParams({ url })}`;
  const frame = el("iframe", { sandbox: "", src, title: "The page as it would be drawn", referrerpolicy: "no-referrer" });
  return [el("p", { class: "note" }, note), frame];
}
