// What can be done to a table: each after a confirmation, by Airflow, as the user.

import * as api from "./api.js";
import { el, replace } from "./dom.js";
import { airflowLink, dagPath } from "./links.js";

const ACTIONS = [
  ["Rerun", "Runs the table now, whether it has news or not. Nothing is loaded twice.", {}],
  ["Full refresh", "Rebuilds the replica and its history from all landing files. Readers see the old table until the new one is there. This can take long.", { full_refresh: true }],
  ["Replay errors", "Takes the rows in quarantine through the job again, after their cause was mended.", { action: "replay" }],
  ["Verify", "Compares the replica with what its change table gives. The run fails when they differ.", { action: "verify" }],
];

export function buttons(table, mayTrigger) {
  const why = table.dag_id === null ? "No pipeline loads this table." : mayTrigger ? "" : "You may not trigger this table's DAG.";
  const said = el("p", { class: "said", role: "status" });
  return el("section", { "aria-label": "Actions" },
    el("div", { class: "actions" }, ACTIONS.map(([name, text, more]) => el("button", {
      type: "button", disabled: !mayTrigger, title: why || text,
      onclick: () => confirm(name, text, table, () => start(name, table, more, said)),
    }, name))),
    why ? el("p", { class: "small" }, why) : null, said);
}

function confirm(name, text, table, go) {
  const dialog = document.getElementById("confirm");
  const close = () => dialog.close();
  replace(dialog,
    el("h2", { id: "confirm-title" }, `${name}: ${table.table}?`), el("p", {}, text), el("p", { class: "small" }, `Starts a run of ${table.dag_id}.`),
    el("div", { class: "actions" },
      el("button", { type: "button", onclick: close }, "Cancel"),
      el("button", { type: "button", class: "primary", onclick: () => { close(); go(); } }, name)));
  dialog.showModal();
}

async function start(name, table, more, said) {
  replace(said, document.createTextNode(`${name}: asking Airflow …`));
  try {
    const run = await api.trigger(table.dag_id, { tables: [table.table], ...more });
    const path = `${dagPath(table.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`;
    replace(said, document.createTextNode(`${name} was started: `), airflowLink(path, run.dag_run_id));
  } catch (error) {
    replace(said, document.createTextNode(`${name} was refused: ${error.status ?? ""} ${error.message}`));
  }
}
