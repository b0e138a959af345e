// A line chart over time in SVG, for the available width, with the value under the pointer.

import { el, svg, replace } from "./dom.js";
import { moment } from "./format.js";

const HEIGHT = 170, BOTTOM = 26, TOP = 12, RIGHT = 12, CHARACTER = 7, FAR = 5;
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** Round steps up to `highest`, about four of them; `time`: in usual units of time. */
export function ticks(highest, time) {
  const rough = highest / 4;
  let step = time ? SECONDS.find((one) => one >= rough) : undefined;
  if (step === undefined) {
    const power = 10 ** Math.floor(Math.log10(rough));
    step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? rough;
  }
  step = time ? step : Math.max(1, step);
  const made = [];
  for (let value = 0; value <= highest + step * 0.999; value += step) made.push(value);
  return made;
}

/**
 * at: the text of a moment. others: points of further lines, drawn dashed. note: the text for a moment under the pointer. marks: {x, count}, failures, written above the moment.
 * points: {x: seconds since the epoch, y: number, or null: not known}, oldest first.
 * limit: a line to compare with, or null. Null: too few points.
 */
export function plot(points, { label, format, time = false, limit = null, limitText = "", others = [], marks = [], note = null, at = moment }) {
  const known = points.filter((point) => point.y !== null && point.y !== undefined);
  if (known.length < 2) return null;
  // A limit far above all values would flatten the line; it is named instead of drawn.
  const far = limit !== null && limit > FAR * Math.max(...known.map((point) => point.y), 1);
  const text = summary(known, format) + (far ? `; ${limitText} is above the plot` : "");
  const caption = el("p", { class: "small value", "aria-live": "off" }, text);
  const drawing = el("div", { class: "drawing" });
  const draw = () => { if (drawing.clientWidth) replace(drawing, drawn(known, drawing.clientWidth, { label, format, time, limit: far ? null : limit, limitText, text, others, marks, note, at }, caption)); };
  new ResizeObserver(draw).observe(drawing);
  return el("div", {}, drawing, caption);
}

function summary(known, format) {
  const values = known.map((point) => point.y);
  return `Newest ${format(values[values.length - 1])}, at least ${format(Math.min(...values))}, at most ${format(Math.max(...values))}`;
}

const failures = (count) => `✕${count}`;

/** Marks whose texts would overlap are one, between them, with their sum. */
function together(marks) {
  const made = [];
  for (const mark of marks) {
    let one = { ...mark, first: mark.at };
    while (made.length && one.at - made.at(-1).at < CHARACTER * (failures(one.count).length + failures(made.at(-1).count).length) / 2 + CHARACTER) {
      const before = made.pop();
      one = { first: before.first, at: (before.first + mark.at) / 2, count: before.count + one.count };
    }
    made.push(one);
  }
  return made;
}

function drawn(known, width, { label, format, time, limit, limitText, text: overall, others, marks, note, at }, caption) {
  const further = others.map((points) => points.filter((point) => point.y !== null && point.y !== undefined));
  const steps = ticks(Math.max(...known.map((point) => point.y), ...further.flat().map((point) => point.y), limit ?? 0, 1), time);
  const highest = steps[steps.length - 1];
  const left = 10 + CHARACTER * Math.max(...steps.map((value) => format(value).length));
  const first = known[0].x, last = known[known.length - 1].x;
  const x = (value) => left + ((value - first) / Math.max(1, last - first)) * (width - left - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (Math.max(0, value) / highest) * (HEIGHT - BOTTOM - TOP);
  const text = (left, height, anchor, words) => svg("text", { x: left, y: height, "text-anchor": anchor }, words);
  const mark = svg("circle", { class: "mark", r: 4, visibility: "hidden" });
  const line = svg("line", { class: "mark", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const show = (point) => {
    for (const part of [mark, line]) part.setAttribute("visibility", point ? "visible" : "hidden");
    replace(caption, document.createTextNode(point ? `${at(point.x)}: ${note === null ? format(point.y) : note(point.x)}` : overall));
    if (!point) return;
    mark.setAttribute("cx", x(point.x)); mark.setAttribute("cy", y(point.y));
    line.setAttribute("x1", x(point.x)); line.setAttribute("x2", x(point.x));
  };
  const nearest = (event) => {
    const at = event.clientX - made.getBoundingClientRect().left;
    return known.reduce((best, point) => (Math.abs(x(point.x) - at) < Math.abs(x(best.x) - at) ? point : best));
  };
  const made = svg("svg", {
    class: "plot", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${label}: ${overall}`,
    onpointermove: (event) => show(nearest(event)), onpointerleave: () => show(null),
  },
    steps.map((value) => [svg("line", { class: "axis", x1: left, y1: y(value), x2: width - RIGHT, y2: y(value) }), text(left - 6, y(value) + 4, "end", format(value))]).flat(),
    limit === null ? null : [svg("line", { class: "limit", x1: left, y1: y(limit), x2: width - RIGHT, y2: y(limit) }), svg("text", { class: "limit", x: width - RIGHT, y: y(limit) + (y(limit) < TOP + 14 ? 14 : -4), "text-anchor": "end" }, limitText)],
    [known, ...further].map((points, at) => svg("polyline", { class: at ? "line other" : "line", points: points.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join(" ") })),
    together(marks.map((one) => ({ at: x(one.x), count: one.count }))).map((one) => svg("text", { class: "limit", x: one.at, y: TOP + 4, "text-anchor": "middle" }, failures(one.count))),
    known.map((point) => svg("circle", { cx: x(point.x), cy: y(point.y), r: 2.5 })),
    text(left, HEIGHT - 8, "start", at(first)), text(width - RIGHT, HEIGHT - 8, "end", at(last)), line, mark);
  return made;
}
