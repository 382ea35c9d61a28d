// A line over time: drawn anew with each look at the crawl, and readable by mouse, finger, keyboard and ear.

import { el, long, many, short, svg } from "./dom.js";

const LEFT = 3.6; // in rem: room for the numbers of the axis
const BOTTOM = 1.7;
const TOP = 0.7;
const RIGHT = 0.8;
const POINTS = 360; // that are drawn at most: a screen shows no more

export class Chart {
  // `about`: title, the name of the value in a point, how it is written, the class that colours it.
  constructor(about) {
    this.about = about;
    this.points = [];
    this.chosen = null; // the time that the reader points at
    this.reading = el("output", { class: "reading" });
    this.canvas = svg("svg", { tabindex: "0", role: "img", "data-key": `chart ${about.title}` });
    this.element = el(
      "figure",
      { class: `card chart ${about.style}` },
      el("figcaption", {}, el("h2", {}, about.title), this.reading),
      this.canvas,
    );
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.choose(null));
    this.canvas.addEventListener("blur", () => this.choose(null));
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  update(points, span) {
    const begin = points.length ? points.at(-1).t - span : 0;
    this.points = points.filter((point) => point.t >= begin);
    this.draw();
  }

  // The points that have a value; where there are very many, one of several.
  shown() {
    const shown = this.points.filter((point) => typeof point[this.about.value] === "number");
    const every = Math.ceil(shown.length / POINTS);
    return shown.filter((_, place) => (shown.length - 1 - place) % every === 0);
  }

  draw() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    const shown = this.shown();
    this.frame = { left: LEFT * rem, right: box.width - RIGHT * rem, top: TOP * rem, bottom: box.height - BOTTOM * rem };
    this.canvas.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const values = shown.map((point) => point[this.about.value]);
    const highest = Math.max(...values, 0);
    const ticks = steps(highest, this.about.least || 1);
    this.scale = { shown, highest: ticks.at(-1), begin: this.points[0]?.t ?? 0, end: this.points.at(-1)?.t ?? 1 };
    this.canvas.replaceChildren(...this.grid(ticks, rem), ...this.line(), ...this.pointer());
    this.tell(values, highest);
  }

  x(time) {
    const { begin, end } = this.scale;
    return this.frame.left + ((time - begin) / Math.max(end - begin, 1)) * (this.frame.right - this.frame.left);
  }

  y(value) {
    return this.frame.bottom - (value / this.scale.highest) * (this.frame.bottom - this.frame.top);
  }

  grid(ticks, rem) {
    const { left, right, bottom } = this.frame;
    const lines = ticks.map((tick) => svg("line", { class: "grid", x1: left, x2: right, y1: this.y(tick), y2: this.y(tick) }));
    const beside = { class: "axis", x: left - rem * 0.5, "text-anchor": "end", "dominant-baseline": "middle" };
    const names = ticks.map((tick) => svg("text", { ...beside, y: this.y(tick) }, short(tick)));
    const { begin, end } = this.scale;
    const below = bottom + rem * 1.2;
    const times = [svg("text", { class: "axis", x: right, y: below, "text-anchor": "end" }, "now")];
    if (end > begin) times.push(svg("text", { class: "axis", x: left, y: below }, `${long(end - begin)} ago`));
    const middle = { class: "axis", x: (left + right) / 2, y: below, "text-anchor": "middle" };
    if (end - begin > 60 && right - left > 25 * rem) times.push(svg("text", middle, `${long((end - begin) / 2)} ago`));
    return [...lines, ...names, ...times];
  }

  line() {
    const { shown } = this.scale;
    if (!shown.length) return [];
    const places = shown.map((point) => `${this.x(point.t).toFixed(1)},${this.y(point[this.about.value]).toFixed(1)}`);
    const { bottom } = this.frame;
    const last = shown.at(-1);
    const area = `M${this.x(shown[0].t).toFixed(1)},${bottom} L${places.join(" L")} L${this.x(last.t).toFixed(1)},${bottom} Z`;
    return [
      svg("path", { class: "area", d: area }),
      svg("path", { class: "line", d: `M${places.join(" L")}` }),
      svg("circle", { class: "last", cx: this.x(last.t), cy: this.y(last[this.about.value]), r: 5 }),
    ];
  }

  // What the reader points at.
  pointer() {
    const point = this.nearest();
    if (!point) return [];
    const x = this.x(point.t);
    return [
      svg("line", { class: "pointer", x1: x, x2: x, y1: this.frame.top, y2: this.frame.bottom }),
      svg("circle", { class: "last", cx: x, cy: this.y(point[this.about.value]), r: 6 }),
    ];
  }

  nearest() {
    if (this.chosen === null || !this.scale.shown.length) return null;
    return this.scale.shown.reduce((best, point) =>
      Math.abs(point.t - this.chosen) < Math.abs(best.t - this.chosen) ? point : best,
    );
  }

  tell(values, highest) {
    const { write, title } = this.about;
    const point = this.nearest();
    if (point) {
      const clock = new Date(point.t * 1000).toLocaleTimeString();
      this.reading.textContent = `${write(point[this.about.value])} at ${clock}`;
    } else {
      this.reading.textContent = values.length ? `highest ${write(highest)}` : "nothing yet";
    }
    const said = values.length ? `now ${write(values.at(-1))}, highest ${write(highest)}` : "nothing yet";
    this.canvas.setAttribute("aria-label", `${title}: ${said}`);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const { begin, end } = this.scale;
    const share = (event.clientX - box.left - this.frame.left) / (this.frame.right - this.frame.left);
    this.choose(begin + Math.min(Math.max(share, 0), 1) * (end - begin));
  }

  step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const { shown } = this.scale;
    if (!move || !shown.length) return;
    event.preventDefault();
    const place = this.chosen === null ? shown.length - 1 : shown.indexOf(this.nearest()) + move;
    this.choose(shown[Math.min(Math.max(place, 0), shown.length - 1)].t);
  }

  choose(time) {
    this.chosen = time;
    this.draw();
  }
}

// How long ago pages were last visited: a bar for each range of ages, which come in order after the size of the sample.
export function ages({ sample, ...shares }) {
  const found = Object.entries(shares);
  const told = found.map(([name, share]) => `${name} ${Math.round(share * 100)} %`);
  const most = Math.max(...Object.values(shares));
  const bar = ([name, share], place) => {
    const [middle, height] = [place * 60 + 30, (share / most) * 70];
    const text = { class: "axis", x: middle, "text-anchor": "middle" };
    return [
      svg("rect", { x: place * 60 + 12, width: 36, y: 90 - height, height, rx: 2 }),
      svg("text", { ...text, y: 84 - height }, `${Math.round(share * 100)} %`),
      svg("text", { ...text, y: 108 }, name),
    ];
  };
  const about = { class: "ages", viewBox: "0 0 300 115", role: "img", "aria-label": `Last visited within: ${told.join(", ")}` };
  const title = [el("h2", {}, "Age of the pages"), el("small", {}, `last visited within; a sample of ${many(sample, "page")}`)];
  return el("figure", { class: "card bars accent" }, el("figcaption", {}, title), svg("svg", about, found.map(bar)));
}

// Numbers for an axis from 0 to at least `highest`: 1, 2 or 5 times a power of ten apart.
export function steps(highest, least) {
  const most = Math.max(highest, least);
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
  const found = [];
  for (let place = 0; place * apart < most + apart; place += 1) found.push(Number((place * apart).toPrecision(12)));
  return found;
}
