// One table: where it stands, its runs, its lake.

import { buttons } from "./actions.js";
import * as api from "./api.js";
import { el, grid, replace } from "./dom.js";
import { ago, bytes, count, duration, moment, outcome, STATE_SIGNS } from "./format.js";
import { airflowLink, dagPath, pageLink, taskPath } from "./links.js";
import { cells } from "./matrix.js";
import { plot } from "./plot.js";

const RUNS_SHOWN = 50;

export async function showTable(place, name, told, current) {
  replace(place, el("p", { role: "status" }, "Reading …"));
  const answer = await api.table(name);
  if (!current()) return;
  told(answer.troubles, answer.now);
  const lake = el("div", {}, el("p", { role: "status" }, "Reading the lake …"));
  replace(place, el("p", {}, el("a", { href: "#/" }, "← all tables")), el("h2", {}, answer.table.table),
    facts(answer), buttons(answer.table, answer.may_trigger), plots(answer), runs(answer), changes(answer), lake);
  try {
    const found = await api.lake(name);
    if (current()) replace(lake, inLake(found));
  } catch (error) {
    replace(lake, el("p", { class: "trouble" }, `The lake can't be read: ${error.message}`));
  }
}

function facts({ table, totals, now }) {
  const fact = (name, ...value) => [el("dt", {}, name), el("dd", {}, value)];
  const allowed = table.freshness === null ? "any" : duration(table.freshness);
  return el("dl", { class: "facts" },
    fact("State", el("span", { class: `state ${table.state}` }, `${STATE_SIGNS[table.state]} ${table.state}`), table.late && table.state !== "late" ? ", late" : ""),
    table.error ? fact("Error", el("span", { class: "error" }, `[${table.error[0]}] ${table.error[1] ?? ""}`)) : null,
    table.attention.length ? fact("Attention", `${table.attention.join(", ")}: see what the newest run said`) : null,
    totals && totals.late_ignored ? fact("Late changes", `${count(totals.late_ignored)} ignored in the runs below: what is stored of their keys is newer`) : null,
    fact("Lag", table.lag === null ? "not known" : `${duration(table.lag)} since the newest source commit applied`),
    fact("Up to date", table.as_of === null ? "never" : `as of ${moment(table.as_of)}, ${ago(table.as_of, now)}; allowed: ${allowed}`),
    fact("Last look", table.looked === null ? "none" : `${ago(table.looked, now)}: ${count(table.files)} files landed, ${count(table.waiting)} waiting`),
    table.not_listed_days ? fact("Old files", `${count(table.not_listed_days)} days not looked at since ${table.listed === null ? "the first run" : moment(table.listed)}`) : null,
    table.held_by.length ? fact("Waits for", table.held_by.join(", ")) : null,
    fact("Rows", count(table.rows) || "not known"),
    totals && totals.files ? fact("Completeness", `${count(totals.rows_read)} rows read = ${count(totals.appended)} appended + ${count(totals.redelivered)} delivered again + ${count(totals.quarantined)} quarantined, from ${count(totals.files)} files in the runs below`) : null,
    fact("Pipeline", table.dag_id === null ? "none: the table is disabled" : airflowLink(dagPath(table.dag_id), table.dag_id)),
    fact("Row", `source ${table.source}, tier ${table.tier}, priority ${table.priority}, owner ${table.owner ?? "none"}`),
    fact("Last runs", cells(table.runs)));
}

function plots({ table, runs }) {
  const oldest = [...runs].reverse();
  const lag = plot(oldest.map((run) => ({ x: run.started, y: run.lag })), { label: "Lag at the end of each run", format: duration, limit: table.freshness });
  const rows = plot(oldest.map((run) => ({ x: run.started, y: run.rows })), { label: "Rows of the replica", format: (value) => count(Math.round(value)) });
  const shown = (title, drawn) => el("figure", {}, el("figcaption", {}, title), drawn ?? el("p", { class: "small" }, "Fewer than two runs tell it."));
  return el("section", { class: "plots", "aria-label": "Over time" }, shown("Lag", lag), shown("Rows", rows));
}

function runs({ table, runs: found }) {
  const rows = found.slice(0, RUNS_SHOWN).map((run) => {
    const { kind, sign, word } = outcome(run);
    return [
      moment(run.started), el("span", { class: `word ${kind}` }, `${sign} ${word}`), run.action === "run" ? run.mode : run.action, run.engine, duration(run.seconds), count(run.files),
      count(run.rows_read), count(run.appended), count(run.quarantined), count(run.late_ignored), duration(run.lag), run.version === null ? "" : String(run.version ?? ""),
      links(run, table),
      [run.message ?? "", run.did, ...(run.warned ?? []).map((one) => `[${one.code}] ${one.message}`)].filter(Boolean).join("\n"),
    ];
  });
  const headings = ["Started", "Outcome", "Mode", "Engine", "Took", "Files", "Read", "Appended", "Quarantined", "Late", "Lag", "Version", "Airflow", "Said"];
  return el("section", {}, el("h3", {}, "Runs"), rows.length ? grid(headings, rows, "Runs") : el("p", {}, "No run yet."));
}

function links(run, table) {
  const [dagRun, task, job] = run.airflow;
  const dag = run.dag_id ?? table.dag_id;
  return [dagRun && dag ? airflowLink(taskPath(dag, [dagRun, task]), "task and log") : null, job ? " " : null, job ? pageLink(job, "job") : null];
}

function changes({ schema_changes: found }) {
  if (!found.length) return null;
  return el("section", {}, el("h3", {}, "Schema changes"), grid(["When", "What"], found.map((one) => [moment(one.started), one.changes.join("; ")]), "Schema changes"));
}

function inLake({ place, replica, ledger, quarantine }) {
  const part = (title, answer, show) => el("section", {}, el("h3", {}, title),
    answer.refused ? el("p", {}, "You may not see this table's data.") : answer.error ? el("p", { class: "trouble" }, answer.error) : show(answer.found));
  return [
    part("Quarantine", quarantine, ({ unresolved, rows }) => unresolved === 0 ? el("p", {}, "Nothing in quarantine.") : [
      el("p", {}, `${count(unresolved)} unresolved, of which:`),
      grid(["When", "Code", "Reason", "Column", "File", "Record"], rows.map((row) => [row.occurred_at, row.code, row.reason, row.column, row.source_file, el("code", {}, row.record ?? "")]), "Quarantine")]),
    part("Schema", replica, (found) => found === null ? el("p", {}, `No replica at ${place} yet.`) :
      grid(["Column", "Type", "Null"], found.columns.map((one) => [one.name, el("code", {}, one.type), one.nullable ? "allowed" : "never"]), "Schema")),
    part("Delta versions", replica, (found) => found === null ? el("p", {}, "None yet.") :
      grid(["Version", "When", "Operation"], found.versions.map((one) => [String(one.version), moment(one.at), one.operation]), "Delta versions")),
    part("Files", ledger, ({ batch, files }) => batch === 0 ? el("p", {}, "No batch yet.") : [
      el("p", {}, `${count(batch)} batches; the newest files:`),
      grid(["File", "Kind", "State", "Size", "Rows", "Quarantined", "Batch", "Newest commit"], files.map((one) => [one.path, one.kind, one.state, bytes(one.size), count(one.rows), count(one.quarantined), String(one.batch), one.max_commit_ts]), "Files")]),
  ];
}
