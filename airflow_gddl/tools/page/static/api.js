// Requests to this page's API and to Airflow's, as the logged-in user.

import { released } from "./dom.js";

/** Path of Airflow: the part before this page's folder. */
export const root = location.pathname.replace(/\/gddl\/.*$/, "");

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function send(url, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  // Airflow 3.0's own UI keeps its token here; newer ones use a cookie, which is sent automatically.
  const token = window.localStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token.replace(/^"|"$/g, "")}`;
  const answer = await fetch(url, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  const body = await answer.json().catch(() => null);
  await released(); // callers replace what is displayed
  if (!answer.ok) {
    const detail = body && body.detail;
    throw new Refused(answer.status, typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : answer.statusText);
  }
  return body;
}

export function tables(query) {
  return send(`${root}/gddl/api/v1/tables?${query}`);
}

export function overview(query) {
  return send(`${root}/gddl/api/v1/overview?${query}`);
}

/** fresh: read runs from the lake, without the cache. */
export function table(name, fresh = false) {
  return send(`${root}/gddl/api/v1/table?${new URLSearchParams({ name, fresh })}`);
}

export function lake(name) {
  return send(`${root}/gddl/api/v1/table/lake?${new URLSearchParams({ name })}`);
}

export function lineage(name) {
  return send(`${root}/gddl/api/v1/table/lineage?${new URLSearchParams({ name })}`);
}

/** Airflow's assets whose name holds this text. */
export function assets(text) {
  return send(`${root}/api/v2/assets?${new URLSearchParams({ name_pattern: text, limit: 100 })}`);
}

export function quarantine(name, code) {
  return send(`${root}/gddl/api/v1/table/quarantine?${new URLSearchParams({ name, code })}`);
}

/** The first rows of the replica. */
export function rows(name) {
  return send(`${root}/gddl/api/v1/table/rows?${new URLSearchParams({ name })}`);
}

/** What happened to a key. It is no part of the URL, which servers log. */
export function explain(name, key) {
  return send(`${root}/gddl/api/v1/table/explain`, post({ name, key }));
}

function post(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

/** A DAG run of Airflow's REST API. */
export function dagRun(dagId, run) {
  return send(`${root}/api/v2/dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(run)}`);
}

export function log(dagId, job) {
  return send(`${root}/gddl/api/v1/log?${new URLSearchParams({ dag_id: dagId, job })}`);
}

/** Starts a run through Airflow's REST API, which checks the user's permission. */
export function trigger(dagId, conf) {
  return send(`${root}/api/v2/dags/${encodeURIComponent(dagId)}/dagRuns`, post({ logical_date: null, conf }));
}

/** Opens a page of Airflow in the top window, also from within Airflow's frame. */
export function leave(path) {
  const own = window.parent === window ? document : window.parent.document;
  const link = own.createElement("a");
  link.href = root + path;
  own.body.append(link);
  link.click();
  link.remove();
}
