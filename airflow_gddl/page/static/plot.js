// A line over time in SVG, with a table of the same figures for those who can't see it elsewhere on the page.

import { svg } from "./dom.js";
import { moment } from "./format.js";

const WIDTH = 720, HEIGHT = 160, LEFT = 70, BOTTOM = 24, TOP = 10;

/** points: {x: seconds since the epoch, y: number}, oldest first; limit: a line to compare with, or null. */
export function plot(points, { label, format, limit = null }) {
  const known = points.filter((point) => point.y !== null && point.y !== undefined);
  if (known.length < 2) return null;
  const first = known[0].x, last = known[known.length - 1].x;
  const highest = Math.max(...known.map((point) => point.y), limit ?? 0, 1e-9);
  const x = (value) => LEFT + ((value - first) / Math.max(1, last - first)) * (WIDTH - LEFT - 10);
  const y = (value) => HEIGHT - BOTTOM - (Math.max(0, value) / highest) * (HEIGHT - BOTTOM - TOP);
  const line = known.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join(" ");
  const text = (at, height, anchor, words) => svg("text", { x: at, y: height, "text-anchor": anchor }, words);
  const title = `${label}: from ${format(known[0].y)} to ${format(known[known.length - 1].y)}, at most ${format(Math.max(...known.map((p) => p.y)))}`;
  return svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
    svg("line", { class: "axis", x1: LEFT, y1: HEIGHT - BOTTOM, x2: WIDTH - 10, y2: HEIGHT - BOTTOM }),
    svg("line", { class: "axis", x1: LEFT, y1: TOP, x2: LEFT, y2: HEIGHT - BOTTOM }),
    limit === null ? null : svg("line", { class: "limit", x1: LEFT, y1: y(limit), x2: WIDTH - 10, y2: y(limit) }),
    svg("polyline", { class: "line", points: line }),
    known.map((point) => svg("circle", { cx: x(point.x), cy: y(point.y), r: 2.5 }, svg("title", {}, `${moment(point.x)}: ${format(point.y)}`))),
    text(LEFT - 6, TOP + 8, "end", format(highest)),
    text(LEFT - 6, HEIGHT - BOTTOM, "end", format(0)),
    text(LEFT, HEIGHT - 6, "start", moment(first)),
    text(WIDTH - 10, HEIGHT - 6, "end", moment(last)));
}
