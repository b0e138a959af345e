// Actions on a table, each after a confirmation: runs started through Airflow as the user, and their state.

import * as api from "./api.js";
import { el, refresh, replace } from "./dom.js";
import { count, counted, outcome } from "./format.js";
import { airflowLink, dagPath } from "./links.js";
import { errorText } from "./matrix.js";

const REPLAY = "Replay quarantine";
const DISMISS = "Dismiss quarantine";
const ACTIONS = [
  ["Rerun", "Runs the table now, with or without new files. No file is loaded twice.", {}],
  ["Verify", "Compares the replica with its change table. The run fails if they differ.", { action: "verify" }],
  [REPLAY, "Processes all quarantined rows and files again. Fix the cause first.", { action: "replay" }],
  [DISMISS, "Leaves quarantined rows of one code out for good: they are never loaded, and need no more attention. They stay in the quarantine.", { action: "dismiss" }],
  ["Reload from files", "Loads the table again from the landing files that are there, and from nothing else. Rows, columns and changes that no file holds go; the change table keeps them as archived.", { action: "reload", confirmed: true }],
  ["Rebuild", "Rebuilds the replica and its history from the change table; no landing file is needed. Readers see the old table until the new one is complete. This can take long.", { action: "rebuild" }],
];
const ENDED = ["success", "failed"];

export class Actions {
  /** again: reloads the table's page. codeShown: returns the code that filters the quarantined rows; empty: none.
   *  asked: first word of an action's name in lower case, which is asked about at once; null: none. */
  constructor(place, again, codeShown, asked) {
    Object.assign(this, { place, again, codeShown, asked });
    this.buttons = el("div");
    this.status = el("div", { class: "status", role: "status" });
    replace(place, el("section", { "aria-label": "Actions" }, this.buttons, this.status));
  }

  /** Whether a run started here is active. */
  get pending() {
    return this.run !== null && this.run !== undefined && !this.run.ended;
  }

  async show({ table, runs, may_trigger: mayTrigger }) {
    this.table = table;
    this.run ??= remembered(table.table);
    refresh(this.buttons, [mayTrigger, table.dag_id, table.problems.length], () => this.shown(mayTrigger));
    if (this.run) await this.follow(runs);
    const action = mayTrigger && ACTIONS.find(([name]) => this.asked && name.toLowerCase().split(" ")[0] === this.asked);
    this.asked = null;
    if (action) this.ask(...action);
  }

  shown(mayTrigger) {
    const { table } = this;
    const why = table.problems.length ? "This table is not loaded until its row is fixed." : table.dag_id === null ? "No pipeline loads this table." : mayTrigger ? "" : "You may not trigger this table's DAG.";
    return [
      el("div", { class: "actions" }, ACTIONS.map(([name, text, more]) => el("button", {
        type: "button", disabled: !mayTrigger, title: why || text, class: isDangerous(more) ? "dangerous" : null,
        onclick: () => this.ask(name, text, more),
      }, name))),
      why ? el("p", { class: "small" }, why) : null,
    ];
  }

  /** A replay processes the displayed rows: of one code, or all. A dismissal needs a code, and a reason. */
  ask(name, text, more) {
    const code = [REPLAY, DISMISS].includes(name) ? this.codeShown() : "";
    if (name === DISMISS && !code) {
      replace(this.status, el("p", {}, "Choose the code of the rows to dismiss in the quarantine below."));
      return;
    }
    const shown = !code ? text : name === REPLAY ? `Processes the quarantined rows with code ${code} again. Fix the cause first.`
      : `Leaves out the quarantined rows with code ${code}: they are never loaded. They stay in the quarantine; only a reload from the files processes them again.`;
    const given = code ? { ...more, codes: [code] } : more;
    confirm({ name, text: shown, table: this.table, dangerous: isDangerous(more), needsReason: name === DISMISS },
      (reason) => this.start(name, reason ? { ...given, reason } : given));
  }

  async start(name, more) {
    const { table } = this;
    replace(this.status, el("p", {}, `${name}: sending the request to Airflow …`));
    try {
      const started = await api.trigger(table.dag_id, { tables: [table.table], ...more });
      this.run = { name, dag: table.dag_id, id: started.dag_run_id, state: started.state ?? "queued", ended: false };
      remember(table.table, this.run);
      this.display(el("p", {}, `${name} was started: `, this.link(), "."));
      await this.again();
    } catch (error) {
      replace(this.status, el("p", { class: "error" }, `${name} was refused: ${error.status ?? ""} ${error.message}`));
    }
  }

  /** State and result of the run started here. */
  async follow(runs) {
    let known = runs;
    try {
      if (!this.run.ended) {
        const found = await api.dagRun(this.run.dag, this.run.id);
        this.run.state = found.state;
        // Its record is now in the lake; the earlier response may lack it.
        if (ENDED.includes(found.state)) known = (await api.table(this.table.table, true)).runs;
      }
    } catch (error) {
      this.display(el("p", { class: "error" }, `${this.run.name}: `, this.link(), ` can't be read: ${error.message}`));
      return;
    }
    this.run.ended = ENDED.includes(this.run.state);
    const done = known.filter((run) => run.airflow[0] === this.run.id);
    remember(this.table.table, this.run);
    this.display(el("p", {}, `${this.run.name} `, this.link(), `: ${this.run.ended ? "" : this.run.state}`, this.run.ended ? this.outcome(done) : null));
  }

  outcome(done) {
    const failed = this.run.state === "failed";
    if (done.length) return [runText(done[0]), done.length > 1 ? el("span", { class: "small" }, ` the last of ${done.length} tries`) : null];
    const nothing = [REPLAY, DISMISS].includes(this.run.name) ? "there were no quarantined rows" : "no new files";
    if (!failed) return el("span", { class: "word good" }, `✓ succeeded, ${nothing}`);
    return el("span", { class: "word failed" }, "✕ failed before the table was processed; see the run's tasks");
  }

  link() {
    return airflowLink(`${dagPath(this.run.dag)}/runs/${encodeURIComponent(this.run.id)}`, this.run.id);
  }

  display(...shown) {
    replace(this.status, shown);
  }
}

function runText(run) {
  const { kind, sign, word } = outcome(run);
  const numbers = ["verify", "errors_dismiss"].includes(run.action) ? "" : `: ${counted(run.files, "file")}, ${count(run.rows_read)} rows read, ${count(run.appended)} appended, ${count(run.quarantined)} quarantined`;
  return el("span", {}, el("span", { class: `word ${kind}` }, `${sign} ${word}`), run.did ? ` ${run.did}` : numbers,
    run.message ? el("span", { class: "error block" }, errorText([run.error, run.message])) : null);
}

function isDangerous(more) {
  return Boolean(more.confirmed || ["rebuild", "dismiss"].includes(more.action));
}

/** go: called with the reason that was entered; empty where none is needed. */
function confirm({ name, text, table, dangerous, needsReason }, go) {
  const dialog = document.getElementById("confirm");
  const close = () => dialog.close();
  const start = el("button", { type: "button", disabled: needsReason, class: dangerous ? "primary dangerous" : "primary", onclick: () => { close(); go(reason.value.trim()); } }, name);
  const reason = el("input", { type: "text", maxlength: 400, oninput: () => { start.disabled = !reason.value.trim(); } });
  replace(dialog,
    el("h2", { id: "confirm-title" }, `${name}: ${table.table}?`), el("p", {}, text), el("p", { class: "small" }, `Starts a run of ${table.dag_id}.`),
    needsReason ? el("p", {}, el("label", {}, "Reason, for the record ", reason)) : null,
    el("div", { class: "actions" }, el("button", { type: "button", onclick: close }, "Cancel"), start));
  dialog.showModal();
}

// The run is kept in this tab when the page is reloaded.

function key(table) {
  return `gddl-run:${table}`;
}

function remember(table, run) {
  window.sessionStorage.setItem(key(table), JSON.stringify(run));
}

function remembered(table) {
  try {
    return JSON.parse(window.sessionStorage.getItem(key(table)));
  } catch {
    return null;
  }
}
