// Where a table comes from, what the lake makes of it, and which DAGs consume it.

import * as api from "./api.js";
import { el } from "./dom.js";
import { counted } from "./format.js";
import { airflowLink, dagPath, tableHash } from "./links.js";

/** A section of three parts: source, lake, consumers. Consumers are those that Airflow shows to this user. */
export async function lineage(table) {
  const [known, consumers] = await Promise.all([answered(api.lineage(table)), answered(consumersOf(table))]);
  return el("section", { id: "lineage" }, el("h3", {}, "Lineage"),
    known.error ? trouble(known.error) : el("ol", { class: "lineage" },
      stage("Source", known.found.sources.map(sourceOf)),
      stage("Lake", known.found.tables.map(({ kind, path, dataset }) => [kind, " ", el("code", { title: nameOf(dataset) }, path)])),
      stage("Consumers", consumers.error ? [trouble(`Airflow's assets can't be read: ${consumers.error}`)] : consumers.found, "No DAG is scheduled by this table's asset, and no task names it as inlet.")),
    known.error ? null : order(known.found));
}

async function answered(asked) {
  try {
    return { found: await asked };
  } catch (error) {
    return { error: error.message };
  }
}

function trouble(text) {
  return el("p", { class: "trouble" }, text);
}

function stage(title, lines, none = "") {
  return el("li", {}, el("h4", {}, title), lines.length ? el("ul", {}, lines.map((line) => el("li", {}, line))) : el("p", { class: "small" }, none));
}

function nameOf(dataset) {
  return dataset === null ? null : `in OpenLineage: ${dataset.namespace} ${dataset.name}`;
}

function sourceOf({ source, table, landing, dataset }) {
  return [`${source ? `${source}: ` : ""}${table}`, landing === null ? null : [el("br"), el("code", { title: nameOf(dataset) }, landing)]].flat();
}

/** Links to DAGs that the asset of this name starts, and to tasks with it as inlet. Airflow 3.0 names the former otherwise. */
async function consumersOf(table) {
  const { assets, total_entries: total } = await api.assets(table);
  const found = assets.filter((asset) => asset.name === table);
  if (!found.length && total > assets.length) throw new Error(`${counted(total, "asset")} have such a name: open Airflow's page of assets.`);
  const started = found.flatMap((asset) => asset.scheduled_dags ?? asset.consuming_dags ?? []).map(({ dag_id: dag }) => [airflowLink(dagPath(dag), dag), " (starts with it)"]);
  const reading = found.flatMap((asset) => asset.consuming_tasks ?? []).map(({ dag_id: dag, task_id: task }) => [airflowLink(dagPath(dag), dag), ` (task ${task})`]);
  return [...started, ...reading];
}

function order({ after, before }) {
  const links = (names) => names.flatMap((name, at) => [at ? ", " : "", el("a", { href: tableHash(name) }, name)]);
  return [
    after.length ? el("p", {}, "Loaded after ", links(after), ".") : null,
    before.length ? el("p", {}, "Loaded before ", links(before), ".") : null,
  ].filter(Boolean);
}
