// Links to Airflow's own pages.

import { leave, root } from "./api.js";
import { el } from "./dom.js";

export function airflowLink(path, text) {
  return el("a", { href: root + path, target: "_top", onclick: (event) => { event.preventDefault(); leave(path); } }, text);
}

export function dagPath(dagId) {
  return `/dags/${encodeURIComponent(dagId)}`;
}

export function taskPath(dagId, [run, task]) {
  return `${dagPath(dagId)}/runs/${encodeURIComponent(run)}/tasks/${encodeURIComponent(task)}`;
}

export function tableHash(name) {
  return `#/table/${encodeURIComponent(name)}`;
}
