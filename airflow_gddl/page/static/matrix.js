// The list of all tables: filters, sorting, pages, and a cell for each of a table's last runs.

import * as api from "./api.js";
import { el, replace } from "./dom.js";
import { ago, count, duration, moment, outcome, runText, STATE_SIGNS } from "./format.js";
import { tableHash } from "./links.js";

const FACETS = ["source", "tier", "priority", "owner"];
const COLUMNS = [
  ["Table", "table"], ["State", "urgency"], ["Last runs", "last_run"], ["Lag", "lag"], ["Up to date", null], ["Rows", null],
  ["Waiting", "waiting"], ["Quarantined", "quarantined"], ["Owner", null],
];
const RUNS_SHOWN = 14;

export class Matrix {
  constructor(place, query, told) {
    this.place = place;
    this.query = query;
    this.told = told;
    this.asked = 0;
    this.parts = { states: el("div", { class: "chips", role: "group", "aria-label": "States" }), filters: el("div", { class: "filters" }), list: el("div") };
    this.search = el("input", {
      type: "search", placeholder: "Search tables ( / )", "aria-label": "Search tables", value: query.get("search") ?? "",
      oninput: () => { clearTimeout(this.soon); this.soon = setTimeout(() => this.set("search", this.search.value), 200); },
    });
    replace(place, el("div", { class: "bar" }, this.search, this.parts.filters), this.parts.states, this.parts.list);
  }

  /** Changes one field of the query; the first page of the answer is shown. */
  set(name, value, keepPage = false) {
    if (value) this.query.set(name, value); else this.query.delete(name);
    if (!keepPage) this.query.delete("page");
    history.replaceState(null, "", `#/?${this.query}`);
    this.show();
  }

  async show() {
    const number = ++this.asked;
    const answer = await api.tables(this.query);
    if (number !== this.asked) return; // a later question was asked meanwhile
    this.told(answer.troubles, answer.now);
    const focused = document.activeElement && document.activeElement.id;
    this.states(answer);
    this.filters(answer.facets);
    this.list(answer);
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
  }

  states({ counts, tables }) {
    const chosen = this.query.get("state") ?? "";
    const chip = (state, number, text) => el("button", {
      id: `state-${state || "all"}`, type: "button", class: `chip ${state}`, "aria-pressed": String(chosen === state),
      onclick: () => this.set("state", chosen === state ? "" : state),
    }, state ? el("span", { class: "sign", "aria-hidden": "true" }, STATE_SIGNS[state]) : null, `${text} `, el("b", {}, count(number)));
    replace(this.parts.states, chip("", tables, "all"), Object.entries(counts).map(([state, number]) => chip(state, number, state)));
  }

  filters(facets) {
    replace(this.parts.filters, FACETS.map((name) => {
      const chosen = this.query.get(name) ?? "";
      const values = facets[name].includes(chosen) || !chosen ? facets[name] : [chosen, ...facets[name]];
      return el("label", {}, `${name} `, el("select", {
        id: `filter-${name}`, onchange: (event) => this.set(name, event.target.value),
      }, el("option", { value: "" }, "any"), values.map((value) => el("option", { value, selected: value === chosen }, value))));
    }));
  }

  list(answer) {
    const order = this.query.get("order") ?? "urgency";
    const down = this.query.get("direction") === "down";
    const heading = ([text, key]) => el("th", { scope: "col", "aria-sort": key === order ? (down ? "descending" : "ascending") : null },
      key ? el("button", { type: "button", class: "sort", id: `sort-${key}`, onclick: () => this.sort(key, order, down) }, text, key === order ? (down ? " ▾" : " ▴") : "") : text);
    const body = answer.rows.map((row) => this.row(row, answer.now));
    replace(this.parts.list,
      el("p", { class: "count", role: "status" }, `${count(answer.matching)} of ${count(answer.tables)} tables`),
      el("div", { class: "scroll" }, el("table", { class: "matrix", "aria-label": "Tables" },
        el("thead", {}, el("tr", {}, COLUMNS.map(heading))), el("tbody", {}, body))),
      answer.rows.length ? null : el("p", { class: "empty" }, answer.tables ? "No table fits these filters." : "No table yet: add a row to the metadata."),
      this.pager(answer));
  }

  sort(key, order, down) {
    if (key === order) this.query.set("direction", down ? "up" : "down"); else this.query.delete("direction");
    this.set("order", key);
  }

  row(row, now) {
    const state = el("span", { class: `state ${row.state}` }, el("span", { "aria-hidden": "true" }, STATE_SIGNS[row.state]), ` ${row.state}`,
      row.late && row.state !== "late" ? ", late" : "");
    const allowed = row.freshness === null ? "" : ` (allowed ${duration(row.freshness)})`;
    return el("tr", {},
      el("th", { scope: "row" }, el("a", { href: tableHash(row.table) }, row.table),
        el("span", { class: "small" }, `${row.source} · ${row.tier} · ${row.priority}`)),
      el("td", {}, state, row.error ? el("span", { class: "small error", title: row.error[1] ?? "" }, row.error[0]) : null,
        row.attention.length ? el("span", { class: "small" }, row.attention.join(", ")) : null,
        row.held_by.length ? el("span", { class: "small" }, `waits for ${row.held_by.join(", ")}`) : null),
      el("td", {}, cells(row.runs)),
      el("td", { class: "number" }, duration(row.lag)),
      el("td", { class: row.late ? "number bad" : "number", title: row.as_of === null ? "" : `as of ${moment(row.as_of)}${allowed}` }, ago(row.as_of, now)),
      el("td", { class: "number" }, count(row.rows)),
      el("td", { class: "number" }, row.waiting ? `${count(row.waiting)} files` : ""),
      el("td", { class: "number" }, row.quarantined ? count(row.quarantined) : ""),
      el("td", {}, row.owner ?? ""));
  }

  pager({ page, pages }) {
    if (pages === 1) return null;
    const step = (to, text) => el("button", { type: "button", id: `page-${text}`, disabled: to < 1 || to > pages, onclick: () => this.set("page", String(to), true) }, text);
    return el("nav", { class: "pager", "aria-label": "Pages" }, step(page - 1, "Previous"), ` page ${count(page)} of ${count(pages)} `, step(page + 1, "Next"));
  }
}

/** A cell for each run, oldest first, on the right side of a strip of fixed width. */
export function cells(runs) {
  const shown = runs.map((run) => {
    const { kind, sign, word } = outcome(run);
    return el("span", { class: `run ${kind}`, role: "img", "aria-label": word, title: runText(run) }, sign);
  });
  const empty = Array.from({ length: Math.max(0, RUNS_SHOWN - shown.length) }, () => el("span", { class: "run none", "aria-hidden": "true" }));
  return el("span", { class: "runs" }, empty, shown);
}
