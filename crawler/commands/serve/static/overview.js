// The first view: the state and history of the crawl, readable from across a room.

import { Chart, ages } from "./charts.js";
import { bytes, el, inside, long, many, number, pause as interval, rate, refill, short, when } from "./dom.js";
import { bars, button, choices, table } from "./parts.js";

const SPANS = { 600: "10 min", 3600: "1 hour", Infinity: "all" };
const FEW = 8; // workers that are shown without a click
export const WAITING_FOR = {
  in_flight: "being requested now",
  turn: "a free request slot",
  pause: "`crawler resume`",
  delay: "their host's delay",
  strain: "a host that is overloaded",
  retry: "a retry",
  robots: "a robots.txt",
  space: "space in the store",
  descriptors: "free file descriptors",
  store_away: "the store, which does not respond",
};
const COLUMNS = [
  ["Machine", ""],
  ["State", ""],
  ["Workers", "number"],
  ["Pages/s", "number"],
  ["Pages", "number"],
  ["Waiting", "number"],
  ["In flight", "number"],
  ["Shards", "number"],
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
      new Chart({ title: "Failed", value: "failed", write: short, style: "third", least: 4 }),
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
    const members = machines.flatMap((machine) => this.members(machine, workers));
    const rows = [...members, ...workers.filter((worker) => !worker.machine).map(workerRow)];
    const hidden = past - machines.filter((machine) => machine.state === "ended").length;
    const more = hidden > 0 ? [el("p", { class: "note" }, `and ${many(hidden, "machine")} more that ended`)] : [];
    const shown = table(COLUMNS, rows, "no machine has run here yet");
    refill(this.machines, el("h2", {}, "Machines and workers"), shown, more);
  }

  members(machine, workers) {
    const own = workers.filter((worker) => worker.machine === machine.id);
    const name = [el("bdi", {}, machine.name || "?"), el("small", {}, ` ${machine.id}`)];
    if (!own.length) return [row("machine", el("span", { class: "indent" }, name), machine, "")];
    const open = this.opened.get(machine.id) ?? workers.length <= FEW;
    const sign = el("span", { class: "sign", "aria-hidden": "true" }, open ? "▾" : "▸");
    const about = { class: "toggle", "aria-expanded": String(open) };
    const toggle = button("", `machine ${machine.id}`, () => this.toggle(machine.id, !open), about);
    toggle.append(sign, ...name);
    return [row("machine", toggle, machine, number(own.length)), ...(open ? own.map(workerRow) : [])];
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
  const [waiting] = Object.keys(found.waiting_for).filter((name) => name !== "in_flight");
  const count = (members, state) => members.filter((member) => member.state === state).length;
  const silent = count(found.machines, "silent");
  const workers = many(count(found.workers, "alive"), "worker");
  const free = found.free;
  const nearly_full = (free.bytes ?? Infinity) < 1e9 || (free.inodes ?? Infinity) < 10000;
  const inodes = free.inodes === null ? "inodes are not counted" : `${short(free.inodes)} inodes`;
  const flying = found.workers.reduce((sum, worker) => sum + (worker.state === "alive" ? worker.in_flight : 0), 0);
  return [
    tile("Pages", short(found.pages), many(found.redirects, "redirect")),
    tile("Pages per second", rate(found.history.at(-1).rate), `${many(flying, "request")} in flight`, "accent"),
    tile("Waiting", short(found.waiting), waiting ? `most for ${WAITING_FOR[waiting] || waiting}` : found.waiting ? "known, but not requested yet" : "nothing", "second"),
    tile("Time remaining", ...left(found)),
    tile("Failed", short(found.failed), `${short(found.excluded)} excluded, ${short(found.unwanted)} unwanted`, "third"),
    tile("Size", bytes(found.bytes), found.pages ? `${bytes(found.bytes / found.pages)} a page` : "no page yet"),
    tile("Machines", number(count(found.machines, "alive")), silent ? `${workers}, ${silent} silent` : workers, silent ? "warn" : ""),
    ...visits(found),
    tile("Free", free.bytes === null ? "–" : bytes(free.bytes), inodes, nearly_full ? "warn" : ""),
  ];
}

// Visits of stored pages, where there are any.
function visits(found) {
  if (!(found.revisits || found.fresh || found.due)) return [];
  const late = `${short(found.due)} due, ${short(found.overdue)} overdue`;
  return [
    tile("Fresh pages", short(found.fresh), late, found.overdue ? "warn" : ""),
    tile("Revisits per second", rate(found.revisits_rate), `${rate(found.unchanged_rate)} unchanged; ${short(found.revisits)} so far`),
  ];
}

// How long the waiting URLs would take at this rate, or those of the slowest host; a crawl finds more as it goes.
function left(found) {
  if (!found.waiting) return ["–", "nothing is waiting"];
  if (found.paused) return ["–", "paused"];
  const pace = found.history.at(-1).rate;
  const slowest = Math.max(...found.slowest.map((about) => about.waiting * about.delay), 0);
  const all = pace ? found.waiting / pace : 0;
  if (!all && !slowest) return ["–", "no pages at the moment"];
  return all > slowest ? [long(all), "for what is waiting, at this rate"] : [long(slowest), "for the slowest host's URLs"];
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
  const waiting = Object.entries(found.waiting_for).map(([name, count]) => [WAITING_FOR[name] || name, count]);
  return [
    ...(found.ages ? [ages(found.ages)] : []),
    bars("Busiest hosts, by pages", "accent", busiest, "no host has been requested yet"),
    bars("Slowest hosts, by waiting URLs", "second", slowest, "nothing is waiting"),
    bars("Why URLs are queued", "second", waiting, found.waiting ? "no machine is running" : "nothing is waiting"),
    ...reasons(found),
  ];
}

function pace(about) {
  const told = about.delay ? [`one every ${interval(about.delay)}`] : [];
  return [...told, ...(about.strain ? ["overloaded"] : [])].join(", ");
}

export function reasons(found) {
  const all = Object.entries(found.reasons);
  return Object.entries({ failed: "third", excluded: "second", unwanted: "second" }).map(([kind, style]) => {
    const rows = all.filter(([reason]) => found.kinds[reason] === kind);
    const linked = rows.map(([reason, count]) => [inside("failures", { reason }, reason, `reason ${reason}`), count]);
    return bars(`${kind[0].toUpperCase()}${kind.slice(1)}, by reason`, style, linked, "none so far");
  });
}
