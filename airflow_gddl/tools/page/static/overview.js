// Three plots above the list: throughput with failures, lag and durations of the tables that match the filters.

import * as api from "./api.js";
import { column, el, grid, refresh, replace } from "./dom.js";
import { count, counted, duration, moment, UNKNOWN } from "./format.js";
import { plot } from "./plot.js";

const SPANS = { day: "last 24 hours, by hour", fortnight: "last 14 days, by day (UTC)" };
const AGAIN_MS = 60_000;
const GROUPS = [column("Rows", "number"), column("Runs", "number"), column("Failed", "number"), column("Lag p50", "number"), column("Lag p95", "number"), column("Took p50", "number"), column("Took p95", "number")];

const AT = { day: (start) => moment(start).slice(5, 16), fortnight: (start) => new Date(start * 1000).toISOString().slice(0, 10) };

export class Overview {
  /** set: changes a field of the page's query. */
  constructor(set) {
    Object.assign(this, { set, number: 0, asked: "", at: 0, place: el("section", { id: "overview", "aria-label": "Overview" }) });
  }

  /** Asks only when the filters have changed, or after a minute; the list does not wait for it. */
  async show(query) {
    const wanted = new URLSearchParams(query);
    for (const name of ["page", "order", "direction", "size"]) wanted.delete(name);
    const text = String(wanted);
    if (text === this.asked && Date.now() - this.at < AGAIN_MS) return;
    Object.assign(this, { asked: text, at: Date.now() });
    const number = ++this.number;
    try {
      const answer = await api.overview(wanted);
      if (number === this.number) refresh(this.place, [answer.periods, answer.by, answer.matching, text], () => this.shown(answer, wanted.get("span") ?? "day"));
    } catch (error) {
      this.asked = null;
      this.place.shownKey = null;
      if (number === this.number) replace(this.place, el("p", { class: "trouble" }, `The overview can't be read: ${error.message}`));
    }
  }

  shown({ periods, by, matching, complete_since: since }, span) {
    const choice = el("label", {}, "Overview of the ", el("select", { id: "overview-span", onchange: (event) => this.set("span", event.target.value) },
      Object.entries(SPANS).map(([value, text]) => el("option", { value, selected: value === span }, text))));
    const runs = periods.reduce((sum, one) => sum + one.runs, 0);
    const partly = since === null ? "" : ` Complete since ${moment(since)}: of each table the last 14 runs are counted.`;
    return [
      el("p", { class: "filters" }, choice, el("span", { class: "count" }, `${counted(matching, "table")}, ${counted(runs, "run")}.${partly}`)),
      runs ? el("div", { class: "plots small-plots" }, throughput(periods, AT[span]), spread(periods, "lag", "Lag", AT[span]), spread(periods, "seconds", "Duration of runs", AT[span])) : null,
      runs ? el("details", { open: this.place.querySelector("details")?.open ?? false }, el("summary", {}, "By source and owner"), ["source", "owner"].map((kind) => group(kind, by[kind]))) : null,
    ];
  }
}

function figure(title, drawn) {
  return el("figure", {}, el("figcaption", {}, title), drawn ?? el("p", { class: "small" }, "A plot needs two periods with runs."));
}

function throughput(periods, at) {
  const marks = periods.filter((one) => one.failed).map((one) => ({ x: one.start, count: one.failed }));
  const failed = periods.reduce((sum, one) => sum + one.failed, 0);
  const note = (start) => { const one = periods.find((period) => period.start === start); return `${count(one.rows)} rows, ${counted(one.runs, "run")}, ${count(one.failed)} failed`; };
  const drawn = plot(periods.map((one) => ({ x: one.start, y: one.rows })), { label: "Rows appended", format: (value) => count(Math.round(value)), marks, note, at });
  return figure(`Rows appended; ${counted(failed, "failed run")}`, drawn);
}

/** The 95th percentile as a line, the median dashed. */
function spread(periods, name, title, moments) {
  const over = (at) => periods.map((one) => ({ x: one.start, y: one[name] === null ? null : one[name][at] }));
  const note = (start) => { const one = periods.find((period) => period.start === start); return `p95 ${duration(one[name][1])}, p50 ${duration(one[name][0])}`; };
  return figure(`${title}: p95, p50 dashed`, plot(over(1), { label: `${title}, 95th percentile`, format: duration, time: true, others: [over(0)], note, at: moments }));
}

function group(kind, found) {
  const percentile = (pair, at) => (pair === null ? UNKNOWN : duration(pair[at]));
  const rows = found.map((one) => [one.name || "none", count(one.rows), count(one.runs), count(one.failed), percentile(one.lag, 0), percentile(one.lag, 1), percentile(one.seconds, 0), percentile(one.seconds, 1)]);
  return grid([column(kind === "source" ? "Source" : "Owner"), ...GROUPS], rows, kind === "source" ? "By source" : "By owner", "wide");
}
