// History of one key: asked of the page's server, and as a command to copy.

import * as api from "./api.js";
import { copier } from "./copy.js";
import { column, el, grid, replace, values } from "./dom.js";
import { count, counted, momentOf } from "./format.js";

const NO_PERMISSION = "You may not see rows of this table: they are data, and need the permission GDDL Rows.";
const OUTCOMES = {
  present: ["good", "✓", "The row exists."], deleted: ["warned", "–", "The row is deleted."],
  swept: ["warned", "–", "The row was swept: a later full load lacks it."], no_changes: ["warned", "–", "No change of the key is stored."],
};
const PARTS = { force_update: "forced", file_order: "file name", tie_break: "tie policy", position: "position in the batch" };
const CHANGES = [
  column("Change"), column("State"), column("Generation", "number"), column("Sequence", "number"), column("Higher by"), column("Committed", "moment"), column("File"), column("Batch"),
];

/** A quoted word of a command line, for POSIX shells. */
export function quoted(text) {
  return /^[A-Za-z0-9_.,:/=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Why rows are not shown. */
export function refusal() {
  return el("p", {}, NO_PERMISSION);
}

/** Leads from a row to the history of its key; null: its key is not shown. */
export function keyLink(explain, found) {
  const key = explain.keyOf(found);
  return key === null ? null : el("p", {}, el("button", { type: "button", class: "link", onclick: () => explain.follow(key) }, "History of this key"));
}

export class Explain {
  /** keys: names of the key columns; null: not known; empty: the table has none. */
  constructor(table, keys) {
    Object.assign(this, { table, keys, asked: 0, place: el("section", { id: "explain" }), found: el("div", { role: "status" }) });
    const heading = el("h3", {}, "History of a key");
    if (keys !== null && keys.length === 0) { replace(this.place, heading, el("p", {}, "The table has no key.")); return; }
    this.names = keys ?? ["key"];
    this.command = el("code", { class: "command", id: "explain-command" });
    this.copy = copier(this.command);
    this.inputs = this.names.map((name) => el("input", { type: "text", "aria-label": `Value of ${name}`, autocomplete: "off", oninput: () => this.write() }));
    const form = el("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
      this.names.map((name, at) => el("label", {}, `${name} `, this.inputs[at])), keys === null ? null : el("button", { type: "submit" }, "Show history"));
    replace(this.place, heading,
      el("p", {}, "Shows the changes of a key in order, which one won and why, the replica's row, and its quarantined rows. It takes no claim and changes nothing."), form, this.found,
      el("p", { class: "small" }, "The same in a terminal: ", this.command, " ", this.copy.button, " ", this.copy.status));
    this.write();
  }

  write() {
    // A value that begins with @ would be read as a file name.
    const named = this.keys !== null && this.keys.length > 1;
    const part = (name, value) => (named || (this.keys !== null && value.startsWith("@")) ? `${name}=` : "") + value;
    const words = this.names.flatMap((name, at) => ["--key", quoted(part(name, this.inputs[at].value))]);
    replace(this.command, document.createTextNode(["gddl", "explain", "--table", quoted(this.table), ...words].join(" ")));
    this.copy.clear();
  }

  /** The key among a row's values, by column; null: a part of it is not shown, or missing. */
  keyOf(found) {
    if (!this.keys?.length) return null;
    const shown = this.keys.map((name) => found.find((one) => one.name.toLowerCase() === name.toLowerCase())?.value ?? null);
    return shown.includes(null) ? null : shown;
  }

  /** Fills in the key, and shows its history. */
  follow(key) {
    key.forEach((value, at) => { this.inputs[at].value = value; });
    this.write();
    this.place.scrollIntoView();
    this.inputs[0].focus({ preventScroll: true });
    return this.ask();
  }

  async ask() {
    const number = ++this.asked;
    const key = Object.fromEntries(this.names.map((name, at) => [name, this.inputs[at].value]));
    replace(this.found, el("p", {}, "Reading the changes of the key …"));
    let shown;
    try {
      shown = answered(await api.explain(this.table, key), this.table);
    } catch (error) {
      shown = [el("p", { class: "trouble" }, `The history can't be read: ${error.message}`)];
    }
    if (number === this.asked) replace(this.found, shown);
  }
}

function answered({ refused, error, found }, table) {
  if (refused) return [refusal()];
  if (error) return [el("p", { class: "trouble" }, error)];
  const [kind, sign, text] = OUTCOMES[found.outcome];
  return [el("p", {}, el("span", { class: `word ${kind}` }, sign), ` ${text}`), ...changes(found, table), ...replica(found), ...held(found), ...notes(found)];
}

const batch = (text) => (text ?? "").replace(/^0+(?=.)/, "");

function changes({ changes: found, left_out: left }, table) {
  if (!found.length) return [];
  const last = found[found.length - 1], number = found.length;
  const by = PARTS[last.decided_by] ?? last.decided_by;
  const why = last.forced ? "it is applied regardless of its sequence (force_update)" : number > 1 ? `its ${by} is higher than that of change ${number - 1}` : "there is no other";
  const rows = found.map((one, at) => [
    `${at + 1} ${one.op}`, [one.state, one.moved_from ? `, key changed from ${one.moved_from}` : "", one.moved_to ? `, key changed to ${one.moved_to}` : "", one.truncate ? ", by a truncate" : ""].join(""), String(one.generation), one.sequence === null ? "" : typeof one.sequence === "object" ? JSON.stringify(one.sequence) : String(one.sequence),
    PARTS[one.decided_by] ?? one.decided_by, momentOf(one.commit_ts), el("code", {}, one.source_file.split(`/${table.replace(".", "/")}/`).pop()), batch(one.batch_id),
  ]);
  return [
    left ? el("p", { class: "warn" }, `The highest ${count(number)} of ${counted(number + left, "change")}:`) : null,
    grid(CHANGES, rows, "Changes of the key", "wide"),
    el("p", { id: "explain-why" }, `Change ${number} (${last.op}) ${last.state === "winner" ? "wins" : "was the last"}: ${why}.`),
    found.some((one) => one.state === "late") ? el("p", {}, "Late changes arrived in a later batch than a higher one, and were not applied.") : null,
  ];
}

function replica({ replica: found, tombstone, outcome, verdict, batch_unfinished: unfinished }) {
  const differs = unfinished ? "A batch is not finished: ask again after the next run." : "Verify the table.";
  return [
    ...found.flatMap((row) => [el("p", {}, `The replica holds${row.deleted ? " (marked as deleted)" : ""}, of batch ${batch(row.batch_id)}, applied ${momentOf(row.applied_at)}:`), values(row.values)]),
    found.length ? null : el("p", {}, "The replica has no row of this key."),
    tombstone && outcome !== "present" ? el("p", {}, `Tombstone, applied ${momentOf(tombstone.applied_at)}.`) : null,
    verdict === null ? el("p", { class: "warn" }, "Not all changes were read, so the replica was not compared.") : null,
    verdict !== null && verdict !== "equal" ? el("p", { class: "error" }, `The replica differs from these changes (${verdict}). ${differs}`) : null,
  ];
}

function held({ quarantine }) {
  if (quarantine === null) return [el("p", { class: "small" }, "Rows of this key in quarantine are not shown: they need the permission GDDL Quarantine.")];
  const { records, searched, unresolved } = quarantine;
  return [
    records.length ? el("p", { class: "warn" }, `${counted(records.length, "record")} of this key in quarantine:`) : null,
    ...records.map((row) => el("div", {}, el("p", {}, el("b", {}, row.code), ` ${row.reason ?? ""} (batch ${batch(row.batch_id)})`), values(row.values))),
    searched < unresolved ? el("p", { class: "warn" }, `The quarantine was searched in part: ${count(searched)} of ${counted(unresolved, "unresolved row")}.`) : null,
  ];
}

function notes(found) {
  return [
    found.may_be_stale ? el("p", { class: "warn" }, "The row may be stale: a change of the key that came later, or with it, is in quarantine.") : null,
    found.erased_at ? el("p", { class: "warn" }, `The key was erased; asked for at ${momentOf(found.erased_at)}.`) : null,
    found.changes_cut_before ? el("p", {}, `Superseded changes before ${momentOf(found.changes_cut_before)} were removed (changes_retention).`) : null,
  ];
}
