// One table: its state, runs and lake. Polled while it is displayed; unchanged parts are not replaced.

import { Actions } from "./actions.js";
import * as api from "./api.js";
import { column, el, grid, refresh, replace } from "./dom.js";
import { Explain } from "./explain.js";
import { ago, bytes, changeKind, count, counted, duration, moment, momentOf, outcome, UNKNOWN } from "./format.js";
import { lineage } from "./lineage.js";
import { airflowLink, dagPath, pageLink, taskPath } from "./links.js";
import { cells, errorText, stateOf } from "./matrix.js";
import { plot } from "./plot.js";
import { preview } from "./preview.js";
import { Quarantine } from "./quarantine.js";

const RUNS_SHOWN = 50;
const OFTEN_MS = 3_000;

export class TablePage {
  /** asked: the repair that the page asks about at once, see links.py; null: none. */
  constructor(place, name, showTroubles, current, asked) {
    Object.assign(this, { place, name, showTroubles, current });
    this.parts = Object.fromEntries(["problems", "facts", "actions", "quarantine", "plots", "runs", "explain", "preview", "changes", "lineage", "lake"].map((part) => [part, el("div")]));
    this.quarantine = new Quarantine(name, () => this.explain);
    this.actions = new Actions(this.parts.actions, () => this.show(), () => this.quarantine.code, asked);
    replace(place, el("p", { role: "status" }, "Reading …"));
  }

  leave() {
    clearTimeout(this.soon);
  }

  async show() {
    clearTimeout(this.soon);
    const answer = await api.table(this.name);
    if (!this.current()) return;
    this.showTroubles(answer.troubles, answer.now);
    if (!this.place.contains(this.parts.facts)) this.begin(answer);
    const { table, now, paused, runs: found } = answer;
    refresh(this.parts.problems, table.problems, () => problems(table));
    refresh(this.parts.facts, [table, now, paused], () => facts(answer));
    await this.actions.show(answer);
    refresh(this.parts.plots, [found, table.freshness], () => plots(answer));
    refresh(this.parts.runs, found, () => runs(answer));
    refresh(this.parts.changes, answer.schema_changes, () => changes(answer) ?? []);
    await this.showLake(found.length ? found[0].started : null);
    if (this.current() && (table.running !== null || this.actions.pending)) this.soon = setTimeout(() => this.show().catch(() => {}), OFTEN_MS);
  }

  begin({ table, keys }) {
    replace(this.place, el("p", {}, el("a", { href: "#/" }, "← all tables")), el("h2", {}, table.table), Object.values(this.parts));
    replace(this.parts.lake, el("p", { role: "status" }, "Reading the lake …"));
    this.explain = new Explain(table.table, keys);
    replace(this.parts.quarantine, this.quarantine.place);
    replace(this.parts.explain, this.explain.place);
    replace(this.parts.preview, preview(table.table, this.explain));
    lineage(table.table).then((found) => { if (this.current()) replace(this.parts.lineage, found); });
  }

  /** The lake is read again only when a run has ended. */
  async showLake(newest) {
    if (this.newest === newest) return;
    this.newest = newest;
    try {
      const [found] = await Promise.all([api.lake(this.name), this.quarantine.read()]);
      if (this.current()) replace(this.parts.lake, inLake(found));
    } catch (error) {
      replace(this.parts.lake, el("p", { class: "trouble" }, `The lake can't be read: ${error.message}`));
    }
  }
}

function problems(table) {
  if (!table.problems.length) return [];
  return [el("div", { class: "trouble bad", role: "status" },
    el("p", {}, "The row of this table is invalid, so no DAG loads it. The state below is that of its last run."),
    el("ul", {}, table.problems.map((text) => el("li", {}, text))))];
}

function facts({ table, totals, now, paused }) {
  const fact = (name, ...value) => [el("dt", {}, name), el("dd", {}, value)];
  const allowed = table.freshness === null ? "any" : duration(table.freshness);
  return el("dl", { class: "facts" },
    fact("State", stateOf(table)),
    table.running === null ? null : fact("Running", `since ${moment(table.running)}, ${ago(table.running, now)}`),
    table.last_state === "new" && table.grace !== null ? fact("New", `late only if no load ends within ${duration(table.grace)} after the first poll`) : null,
    table.error ? fact("Error", el("span", { class: "error" }, errorText(table.error))) : null,
    table.attention.length ? fact("Attention", table.attention.map((code) => el("p", { class: "remedy" }, el("b", {}, code), `: ${table.remedies[code]}`))) : null,
    totals && totals.late_ignored ? fact("Late changes", `${count(totals.late_ignored)} ignored in the runs below: the stored rows are newer`) : null,
    fact("Lag", table.lag === null ? "not known" : `${duration(table.lag)} since the newest source commit applied`),
    fact("Up to date", table.as_of === null ? "never" : `as of ${moment(table.as_of)}, ${ago(table.as_of, now)}; allowed: ${allowed}`),
    fact("Complete until", complete(table)),
    fact("Last poll", table.polled === null ? "none" : `${moment(table.polled)}, ${ago(table.polled, now)}: ${counted(table.files, "file")} landed, ${count(table.waiting)} waiting`),
    table.not_listed_days ? fact("Old files", `${count(table.not_listed_days)} days not listed since ${table.listed === null ? "the first run" : moment(table.listed)}`) : null,
    table.held_by.length ? fact("Waits for", table.held_by.join(", ")) : null,
    fact("Rows", table.rows === null ? "not known" : count(table.rows)),
    totals && totals.files ? fact("Completeness", `${count(totals.rows_read)} rows read = ${count(totals.appended)} appended + ${count(totals.redelivered)} re-delivered + ${count(totals.quarantined)} quarantined, from ${counted(totals.files, "file")} in the runs below`) : null,
    fact("Pipeline", pipeline(table, paused)),
    table.source ? fact("Row", `source ${table.source}, tier ${table.tier}, priority ${table.priority}, owner ${table.owner ?? "none"}`) : null,
    fact("Last runs", cells(table.runs)));
}

function complete(table) {
  const until = table.complete_until === null ? "not known" : `${moment(table.complete_until)}, source time`;
  if (table.heartbeat !== null) return `${until}; by the heartbeat of its source${table.heartbeat && `, ${table.heartbeat}`}`;
  return table.complete_until === null ? until : `${until}; no evidence of the source since`;
}

function pipeline(table, paused) {
  if (table.problems.length) return table.dag_id === null ? "none" : `none; ${table.dag_id} before the row became invalid`;
  return table.dag_id === null ? "none: the table is disabled" : [airflowLink(dagPath(table.dag_id), table.dag_id), paused ? " is paused: no schedule loads the table" : ""];
}

function plots({ table, runs: found }) {
  const oldest = [...found].reverse();
  const over = (name) => oldest.map((run) => ({ x: run.started, y: run[name] }));
  const lag = plot(over("lag"), { label: "Lag at the end of each run", format: duration, time: true, limit: table.freshness, limitText: `freshness ${duration(table.freshness)}` });
  const rows = plot(over("rows"), { label: "Rows of the replica", format: (value) => count(Math.round(value)) });
  const shown = (title, drawn) => el("figure", {}, el("figcaption", {}, title), drawn ?? el("p", { class: "small" }, "A plot needs two runs."));
  return el("section", { class: "plots", "aria-label": "Over time" }, shown("Lag at the end of each run", lag), shown("Rows of the replica", rows));
}

const RUN_COLUMNS = [
  column("Started", "moment"), column("Outcome"), column("What"), column("Took", "number"), column("Files", "number"), column("Read", "number"), column("Appended", "number"),
  column("Quarantined", "number"), column("Late", "number"), column("Lag", "number"), column("Airflow"),
];

function runs({ table, runs: found }) {
  const rows = found.slice(0, RUNS_SHOWN).map((run) => {
    const { kind, sign, word } = outcome(run);
    const what = [run.action === "run" ? run.mode : run.action.replaceAll("_", " "), run.tasks === "one" ? "one task" : "many tasks", run.place, run.version === null || run.version === undefined ? "" : `version ${run.version}`];
    return {
      cells: [
        moment(run.started), el("span", { class: `word ${kind}` }, `${sign} ${word}`), what.filter(Boolean).join(", "), duration(run.seconds), count(run.files),
        count(run.rows_read), count(run.appended), count(run.quarantined), count(run.late_ignored), duration(run.lag), links(run, table),
      ],
      message: messages(run),
    };
  });
  const older = found.length > RUNS_SHOWN ? el("p", { class: "small" }, `${counted(found.length - RUNS_SHOWN, "older run")} not shown`) : null;
  return el("section", {}, el("h3", {}, "Runs"), rows.length ? grid(RUN_COLUMNS, rows, "Runs", "wide") : el("p", {}, "No run yet."), older);
}

/** Messages of a run, one line each, with names of unreadable files. Null: none. */
function messages(run) {
  const lines = [
    run.message ? el("p", { class: "error" }, errorText([run.error, run.message])) : null,
    run.did ? el("p", {}, run.did) : null,
    ...(run.expectations ?? []).filter((one) => one.failed > 0).map((one) => el("p", { class: "warn" }, `expectation ${one.name} (on: ${one.on}): ${count(one.failed)} of ${counted(one.checked, "row")} fail`)),
    ...(run.warned ?? []).map((one) => el("p", { class: "warn" }, `[${one.code}] ${one.message}`,
      one.files.length ? el("ul", { class: "files" }, one.files.map((name) => el("li", {}, el("code", {}, name))), one.count > one.files.length ? el("li", {}, `and ${count(one.count - one.files.length)} more`) : null) : null)),
  ].filter(Boolean);
  return lines.length ? lines : null;
}

function links(run, table) {
  const [dagRun, task, job] = run.airflow;
  const dag = run.dag_id ?? table.dag_id;
  const found = [dagRun && dag ? airflowLink(taskPath(dag, [dagRun, task]), "task and log") : null, job ? " " : null, job ? pageLink(job, "job") : null];
  return found.some(Boolean) ? el("span", {}, found) : UNKNOWN;
}

function changes({ schema_changes: found }) {
  if (!found.length) return null;
  const line = (text) => { const { sign, kind } = changeKind(text); return el("p", { class: `diff ${kind}` }, el("span", { class: "sign" }, sign), ` ${text}`); };
  return [el("section", {}, el("h3", {}, "Schema changes"), grid([column("When", "moment"), "What"], found.map((one) => [moment(one.started), el("div", {}, one.changes.map(line))]), "Schema changes"))];
}

function registration(found) {
  if (found === null) return el("p", {}, "The table is not registered: its row names no catalog.");
  const { catalog, kind, entries, synced_at: synced, version, problem } = found;
  const at = version === null ? "" : `, at Delta version ${version}`;
  return [
    problem === null ? null : el("p", { class: "trouble" }, `[${problem.code}] ${problem.message}`),
    el("p", {}, `Catalog ${catalog} (${kind}). `, synced === null ? "Not synced yet." : `Last synced ${momentOf(synced)}${at}.`),
    grid([column("Table", "moment"), "Name", column("State", "moment")], entries.map((one) => [one.table, el("code", {}, one.name), one.registered ? "registered" : "not registered"]), "Catalog"),
  ];
}

function inLake({ place, replica, ledger, registration: registered }) {
  const part = (title, answer, show) => el("section", {}, el("h3", {}, title), answer.error ? el("p", { class: "trouble" }, answer.error) : show(answer.found));
  const files = [column("File"), column("Kind"), column("State"), column("Size", "number"), column("Rows", "number"), column("Quarantined", "number"), column("Batch", "number"), column("Newest commit", "moment")];
  return [
    part("Schema", replica, (found) => found === null ? el("p", {}, `No replica at ${place} yet.`) :
      grid(["Column", "Type", "Null"], found.columns.map((one) => [one.name, el("code", {}, one.type), one.nullable ? "allowed" : "never"]), "Schema")),
    part("Catalog", registered, registration),
    part("Delta versions", replica, (found) => found === null ? el("p", {}, "None yet.") :
      grid([column("Version"), column("When", "moment"), column("Operation")], found.versions.map((one) => [String(one.version), moment(one.at), one.operation]), "Delta versions")),
    part("Files", ledger, ({ batch, files: found }) => batch === 0 ? el("p", {}, "No batch yet.") : [
      el("p", {}, `${count(batch)} ${batch === 1 ? "batch" : "batches"}; the newest files:`),
      grid(files, found.map((one) => [el("code", {}, one.path), one.kind, one.state, bytes(one.size), count(one.rows), count(one.quarantined), String(one.batch), momentOf(one.max_commit_ts)]), "Files", "wide")]),
  ];
}
