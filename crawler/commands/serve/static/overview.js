// The first view: how the crawl stands and how it went, to be read from the other side of a room.

import { Chart } from "./charts.js";
import { bytes, el, inside, long, many, number, rate, refill, short, when } from "./dom.js";
import { bars, button, choices, table } from "./parts.js";

const SPANS = { 600: "10 min", 3600: "1 hour", Infinity: "all" };
const FEW = 8; // workers that are shown without being asked for
export const HELD = {
  in_flight: "being requested now",
  turn: "a free visitor",
  pause: "`crawler resume`",
  delay: "their host's delay",
  strain: "a host that is strained",
  retry: "another try",
  robots: "a robots.txt",
  space: "space in the store",
  descriptors: "files that may be opened",
  store_away: "the store, which does not answer",
};
const COLUMNS = [
  ["Machine", ""],
  ["State", ""],
  ["Workers", "number minor"],
  ["Pages/s", "number"],
  ["Pages", "number"],
  ["Waiting", "number minor"],
  ["In flight", "number minor"],
  ["Shards", "number minor"],
  ["Seen", "number"],
];

export class Overview {
  constructor() {
    this.opened = new Map(); // machines whose workers are shown, or hidden, because somebody said so
    this.span = "600";
    this.tiles = el("section", { class: "tiles", "aria-label": "In numbers" });
    this.charts = [
      new Chart({ title: "Pages per second", value: "rate", write: rate, style: "wide accent", least: 1 }),
      new Chart({ title: "Waiting", value: "waiting", write: short, style: "second", least: 4 }),
      new Chart({ title: "Refusals", value: "refusals", write: short, style: "third", least: 4 }),
    ];
    this.spans = el("div", {});
    this.charts[0].reading.before(this.spans);
    this.machines = el("section", { class: "card" });
    this.lists = el("div", { class: "lists" });
    const charts = el("div", { class: "charts" }, this.charts.map((chart) => chart.element));
    this.element = el("div", { class: "overview" }, this.tiles, charts, this.machines, this.lists);
  }

  update(found) {
    this.found = found;
    refill(this.tiles, tiles(found));
    this.drawCharts();
    this.drawMachines();
    refill(this.lists, lists(found));
  }

  drawCharts() {
    for (const chart of this.charts) chart.update(this.found.history, Number(this.span));
    refill(this.spans, choices("How far back the charts go", SPANS, this.span, (span) => this.look(span)));
  }

  look(span) {
    this.span = span;
    this.drawCharts();
  }

  drawMachines() {
    const { machines, workers, past } = this.found;
    const crews = machines.flatMap((machine) => this.crew(machine, workers));
    const rows = [...crews, ...workers.filter((worker) => !worker.machine).map(workerRow)];
    const hidden = past - machines.filter((machine) => machine.state === "ended").length;
    const more = hidden > 0 ? [el("p", { class: "note" }, `and ${many(hidden, "machine")} more that ended`)] : [];
    const shown = table(COLUMNS, rows, "no machine has been at work here yet");
    refill(this.machines, el("h2", {}, "Machines and workers"), shown, more);
  }

  crew(machine, workers) {
    const crew = workers.filter((worker) => worker.machine === machine.id);
    const name = [el("bdi", {}, machine.name || "?"), el("small", {}, ` ${machine.id}`)];
    if (!crew.length) return [row("machine", el("span", { class: "indent" }, name), machine, "")];
    const open = this.opened.get(machine.id) ?? workers.length <= FEW;
    const sign = el("span", { class: "sign", "aria-hidden": "true" }, open ? "▾" : "▸");
    const about = { class: "toggle", "aria-expanded": String(open) };
    const toggle = button("", `machine ${machine.id}`, () => this.toggle(machine.id, !open), about);
    toggle.append(sign, ...name);
    return [row("machine", toggle, machine, number(crew.length)), ...(open ? crew.map(workerRow) : [])];
  }

  toggle(id, open) {
    this.opened.set(id, open);
    this.drawMachines();
  }
}

function tile(name, value, more, style) {
  const told = [el("h2", {}, name), el("p", { class: "value" }, value), el("p", { class: "more" }, more)];
  return el("div", { class: `tile ${style || ""}` }, told);
}

function tiles(found) {
  const refused = Object.values(found.refusals).reduce((sum, count) => sum + count, 0);
  const [reason] = Object.keys(found.refusals);
  const [held] = Object.keys(found.held).filter((name) => name !== "in_flight");
  const count = (members, state) => members.filter((member) => member.state === state).length;
  const silent = count(found.machines, "silent");
  const crew = many(count(found.workers, "alive"), "worker");
  const free = found.free;
  const short_of_room = (free.bytes ?? Infinity) < 1e9 || (free.inodes ?? Infinity) < 10000;
  const inodes = free.inodes === null ? "inodes are not counted" : `${short(free.inodes)} inodes`;
  return [
    tile("Pages", short(found.pages), `${bytes(found.bytes)}, ${many(found.redirects, "redirect")}`),
    tile("Pages per second", rate(found.history.at(-1).rate), left(found), "accent"),
    tile("Waiting", short(found.waiting), held ? `most for ${HELD[held] || held}` : found.waiting ? "known, but not asked yet" : "nothing", "second"),
    tile("Refusals", short(refused), reason ? `most: ${reason}` : "none so far", "third"),
    tile("Machines", number(count(found.machines, "alive")), silent ? `${crew}, ${silent} silent` : crew, silent ? "warn" : ""),
    tile("Free", free.bytes === null ? "–" : bytes(free.bytes), inodes, short_of_room ? "warn" : ""),
  ];
}

// How long what waits would take at this rate: no promise, for a crawl finds more as it goes.
function left(found) {
  if (found.paused) return "paused";
  if (!found.waiting) return "nothing waits";
  const pace = found.history.at(-1).rate;
  return pace ? `${long(found.waiting / pace)} for what waits now` : "nobody asks";
}

function row(kind, name, member, workers) {
  const works = member.state === "alive";
  const cells = [
    workers,
    rate(member.rate),
    number(member.pages),
    ...[member.waiting, member.in_flight, member.shards].map((count) => (works ? number(count) : "–")),
    `${long(member.age)} ago`,
  ];
  return el(
    "tr",
    { class: kind, title: member.started ? `started ${when(member.started)}` : null },
    el("th", { scope: "row" }, name),
    el("td", {}, el("span", { class: `dot ${member.state}` }, member.state)),
    cells.map((text, place) => el("td", { class: COLUMNS[place + 2][1] }, text)),
  );
}

function workerRow(worker) {
  return row("worker", el("span", {}, `worker ${worker.id}`, el("small", {}, ` pid ${worker.pid}`)), worker, "");
}

function lists(found) {
  const host = (kind, name) => inside("host", { host: name }, name, `${kind} ${name}`);
  const busiest = found.hosts.map((about) => [host("busiest", about.host), about.pages]);
  const slowest = found.slowest.map((about) => [host("slowest", about.host), about.waiting, pace(about)]);
  const held = Object.entries(found.held).map(([name, count]) => [HELD[name] || name, count]);
  return [
    bars("Busiest hosts, by pages", "accent", busiest, "no host has been asked yet"),
    bars("Slowest hosts, by what waits", "second", slowest, "nothing waits"),
    bars("What waiting URLs wait for", "second", held, found.waiting ? "nobody is at work" : "nothing waits"),
    reasons(found),
  ];
}

function pace(about) {
  const told = about.delay ? [`one every ${about.delay < 10 ? rate(about.delay) : Math.round(about.delay)} s`] : [];
  return [...told, ...(about.strain ? ["strained"] : [])].join(", ");
}

export function reasons(found) {
  const rows = Object.entries(found.refusals);
  const linked = rows.map(([reason, count]) => [inside("refusals", { reason }, reason, `reason ${reason}`), count]);
  return bars("Refusals by reason", "third", linked, "no worker has refused anything");
}
