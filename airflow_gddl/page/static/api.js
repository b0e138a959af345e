// What is asked of this page's own application and of Airflow, as the user who is logged in.

/** Path of Airflow itself: what stands before this page's own folder. */
export const root = location.pathname.replace(/\/gddl\/.*$/, "");

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function send(url, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  // Airflow 3.0's own UI keeps its token here; newer ones send a cookie, which goes along by itself.
  const token = window.localStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token.replace(/^"|"$/g, "")}`;
  const answer = await fetch(url, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) {
    const detail = body && body.detail;
    throw new Refused(answer.status, typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : answer.statusText);
  }
  return body;
}

export function tables(query) {
  return send(`${root}/gddl/api/tables?${query}`);
}

export function table(name) {
  return send(`${root}/gddl/api/table?${new URLSearchParams({ name })}`);
}

export function lake(name) {
  return send(`${root}/gddl/api/table/lake?${new URLSearchParams({ name })}`);
}

export function log(dagId, job) {
  return send(`${root}/gddl/api/log?${new URLSearchParams({ dag_id: dagId, job })}`);
}

/** Starts a run through Airflow's REST API; it decides whether this user may. */
export function trigger(dagId, conf) {
  return send(`${root}/api/v2/dags/${encodeURIComponent(dagId)}/dagRuns`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  });
}

/** Opens a page of Airflow: in place of the whole window, also from within the frame that Airflow shows this page in. */
export function leave(path) {
  const own = window.parent === window ? document : window.parent.document;
  const link = own.createElement("a");
  link.href = root + path;
  own.body.append(link);
  link.click();
  link.remove();
}
