// Links to Airflow's own pages.

import { leave, root } from "./api.js";
import { el } from "./dom.js";

export function airflowLink(path, text) {
  return el("a", { href: root + path, target: "_top", onclick: (event) => { event.preventDefault(); leave(path); } }, text);
}

/** A link to an external page; other texts than http(s) URLs are shown as text. */
export function pageLink(address, text) {
  return /^https?:\/\//.test(address) ? el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, text) : address;
}

export function dagPath(dagId) {
  return `/dags/${encodeURIComponent(dagId)}`;
}

/** A run of another DAG, whose task loaded the table, is `<DAG id>@<run id>`. */
export function taskPath(dagId, [key, task]) {
  const [loader, run] = key.includes("@") ? key.split("@") : [dagId, key];
  return `${dagPath(loader)}/runs/${encodeURIComponent(run)}/tasks/${encodeURIComponent(task)}`;
}

export function tableHash(name) {
  return `#/table/${encodeURIComponent(name)}`;
}
