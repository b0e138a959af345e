// The list of all tables: filters, sorting, pages, and a cell for each of a table's last runs.

import * as api from "./api.js";
import { el, replace } from "./dom.js";
import { ago, count, counted, duration, moment, outcome, runText, STATE_SIGNS, stateText, UNKNOWN } from "./format.js";
import { airflowLink, dagPath, tableHash } from "./links.js";
import { Overview } from "./overview.js";

const FACETS = ["source", "tier", "priority", "owner"];
const COLUMNS = [
  ["Table", "table"], ["State", "urgency"], ["Last runs", "last_run"], ["Lag", "lag", true], ["Up to date", "as_of", true],
  ["Rows", "rows", true], ["Waiting", "waiting", true], ["Quarantined", "quarantined", true],
];
const RUNS_SHOWN = 14;
const NARROW = matchMedia("(max-width: 720px)"); // a phone: the tables first, what failed among them

export class Matrix {
  constructor(place, query, showTroubles) {
    this.place = place;
    this.query = query;
    this.showTroubles = showTroubles;
    this.asked = 0;
    this.parts = {
      states: el("div", { class: "chips", role: "group", "aria-label": "States" }), filters: el("div", { class: "filters" }),
      banner: el("div", { role: "status" }), list: el("div"),
    };
    this.overview = new Overview((name, value) => this.set(name, value, true));
    this.search = el("input", {
      type: "search", placeholder: "Search tables ( / )", "aria-label": "Search tables", value: query.get("search") ?? "",
      oninput: () => { this.note("search", this.search.value); clearTimeout(this.soon); this.soon = setTimeout(() => this.show(), 200); },
    });
    const bar = el("div", { class: "bar" }, this.search, this.parts.filters);
    const arrange = () => replace(place, this.parts.banner, ...(NARROW.matches ? [bar, this.parts.states, this.parts.list, this.overview.place] : [this.overview.place, bar, this.parts.states, this.parts.list]));
    NARROW.onchange = () => { if (this.search.isConnected) arrange(); };
    arrange();
  }

  /** A search typed just before is not asked any more, and an answer under way is dropped. */
  leave() {
    clearTimeout(this.soon);
    this.asked += 1;
  }

  /** Changes one field of the query; the first page of the answer is shown. */
  set(name, value, keepPage = false) {
    this.note(name, value, keepPage);
    this.show();
  }

  /** As `set`, in the URL only. At once: later, the URL may be that of another part of the page. */
  note(name, value, keepPage = false) {
    if (value) this.query.set(name, value); else this.query.delete(name);
    if (!keepPage) this.query.delete("page");
    history.replaceState(null, "", `#/?${this.query}`);
  }

  async show() {
    const number = ++this.asked;
    const answer = await api.tables(this.query);
    if (number !== this.asked) return; // a later question was asked meanwhile
    this.showTroubles(answer.troubles, answer.now);
    const focused = document.activeElement && document.activeElement.id;
    this.banner(answer);
    this.states(answer);
    this.filters(answer.facets);
    this.list(answer);
    this.overview.show(this.query);
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
  }

  /** Invalid rows, which no DAG loads, and what awaits a person. */
  banner({ broken, metadata_problems: others, notes, paused }) {
    const shown = [];
    const lines = (id, title, texts, kind) => el("details", { id, class: kind, open: document.getElementById(id)?.open ?? false },
      el("summary", {}, title), el("ul", {}, texts.map((line) => el("li", {}, line))));
    if (paused.length) {
      const title = `${counted(paused.length, "DAG")} ${paused.length === 1 ? "is" : "are"} paused: no schedule loads ${paused.length === 1 ? "its" : "their"} tables`;
      shown.push(lines("paused", title, paused.map((dag) => airflowLink(dagPath(dag), dag)), "trouble"));
    }
    if (broken) {
      const text = `${counted(broken, "table")} ${broken === 1 ? "has" : "have"} an invalid row and ${broken === 1 ? "is" : "are"} not loaded until the metadata is fixed. `;
      shown.push(el("p", { class: "trouble bad" }, text, el("button", { type: "button", id: "show-broken", onclick: () => this.set("state", "broken_row") }, broken === 1 ? "Show it" : "Show them")));
    }
    if (others.length) {
      shown.push(lines("more-problems", `${counted(others.length, "more problem")} in the metadata`, others, "trouble"));
    }
    if (notes.length) {
      shown.push(lines("notes", `${counted(notes.length, "note")} for you to decide`, notes, "trouble"));
    }
    replace(this.parts.banner, shown);
  }

  /** Numbers are of the tables that match the other filters. */
  states({ choices: { all, quarantined, ...counts } }) {
    const chosen = this.query.get("state") ?? "";
    const chip = (state, number, text) => el("button", {
      id: `state-${state || "all"}`, type: "button", class: `chip ${state}`, "aria-pressed": String(chosen === state),
      onclick: () => this.set("state", chosen === state ? "" : state),
    }, STATE_SIGNS[state] ? el("span", { class: "sign", "aria-hidden": "true" }, STATE_SIGNS[state]) : null, `${text} `, el("b", {}, count(number)));
    replace(this.parts.states, chip("", all, "all"), Object.entries(counts).map(([state, number]) => chip(state, number, stateText(state))),
      chip("quarantined", quarantined, "in quarantine"));
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
    const heading = ([text, key, number]) => el("th", { scope: "col", class: number ? "number" : null, "aria-sort": key === order ? (down ? "descending" : "ascending") : null },
      key ? el("button", { type: "button", class: "sort", id: `sort-${key}`, onclick: () => this.sort(key, order, down) }, text, key === order ? (down ? " ▾" : " ▴") : "") : text);
    const body = answer.rows.flatMap((row) => this.row(row, answer.now));
    replace(this.parts.list,
      el("p", { class: "count", role: "status" }, `${count(answer.matching)} of ${counted(answer.tables, "table")}`),
      el("table", { class: "grid matrix", "aria-label": "Tables" },
        el("thead", {}, el("tr", {}, COLUMNS.map(heading))), el("tbody", {}, body)),
      answer.rows.length ? null : el("p", { class: "empty" }, answer.tables ? "No table matches these filters." : "No table yet: add a row to the metadata."),
      this.pager(answer));
  }

  sort(key, order, down) {
    if (key === order) this.query.set("direction", down ? "up" : "down"); else this.query.delete("direction");
    this.set("order", key);
  }

  row(row, now) {
    const allowed = row.freshness === null ? "" : ` (allowed ${duration(row.freshness)})`;
    const cell = (at, number, ...content) => el("td", { class: number ? "number" : null, "data-label": COLUMNS[at][0] }, content);
    const shownMessages = messages(row);
    const about = [row.source, row.tier, row.priority, row.owner].filter(Boolean).join(" · ");
    const shown = el("tr", { class: shownMessages.length ? "explained" : null },
      el("th", { scope: "row" }, el("a", { href: tableHash(row.table) }, row.table), el("span", { class: "small" }, about)),
      cell(1, false, stateOf(row)),
      cell(2, false, cells(row.runs)),
      cell(3, true, duration(row.lag)),
      el("td", { class: row.late ? "number bad" : "number", "data-label": "Up to date", title: row.as_of === null ? null : `as of ${moment(row.as_of)}${allowed}` }, ago(row.as_of, now)),
      cell(5, true, count(row.rows)),
      cell(6, true, row.polled === null ? UNKNOWN : counted(row.waiting, "file")),
      cell(7, true, row.runs.length ? count(row.quarantined) : UNKNOWN));
    return shownMessages.length ? [shown, el("tr", { class: "message" }, el("td", { colspan: COLUMNS.length }, shownMessages))] : [shown];
  }

  pager({ page, pages }) {
    if (pages === 1) return null;
    const step = (to, text) => el("button", { type: "button", id: `page-${text}`, disabled: to < 1 || to > pages, onclick: () => this.set("page", String(to), true) }, text);
    return el("nav", { class: "pager", "aria-label": "Pages" }, step(page - 1, "Previous"), ` page ${count(page)} of ${count(pages)} `, step(page + 1, "Next"));
  }
}

/** Its state, and further states. */
export function stateOf(row) {
  const also = [row.late && row.state !== "late" ? "late" : "", row.running !== null && row.state !== "running" ? "running" : ""];
  const last = row.state === "broken_row" ? [el("span", { class: "small" }, `last state: ${stateText(row.last_state)}`)] : [];
  return el("span", {}, el("span", { class: `state ${row.state}` }, el("span", { "aria-hidden": "true" }, STATE_SIGNS[row.state]), ` ${stateText(row.state)}`),
    also.filter(Boolean).map((word) => `, ${word}`).join(""), last);
}

/** Messages of a row, one line each, in full. */
function messages(row) {
  const line = (kind, text) => el("p", { class: kind }, text);
  return [
    ...row.problems.map((text) => line("error", text)),
    row.error ? line("error", errorText(row.error)) : null,
    row.attention.length ? line("warn", `Needs attention: ${row.attention.map((code) => `${code}: ${row.remedies[code]}`).join("; ")}`) : null,
    row.held_by.length ? line("small", `Waits for ${row.held_by.join(", ")}`) : null,
  ].filter(Boolean);
}

/** [code, message]; most messages begin with their code. */
export function errorText([code, message]) {
  if (!message) return `[${code}]`;
  return message.startsWith(`[${code}]`) ? message : `[${code}] ${message}`;
}

/** A cell for each run, oldest first, right-aligned in a strip of fixed width. */
export function cells(runs) {
  const shown = runs.map((run) => {
    const { kind, sign, word } = outcome(run);
    return el("span", { class: `run ${kind}`, role: "img", "aria-label": word, title: runText(run) }, sign);
  });
  const empty = Array.from({ length: Math.max(0, RUNS_SHOWN - shown.length) }, () => el("span", { class: "run none", "aria-hidden": "true" }));
  return el("span", { class: "runs" }, empty, shown);
}
