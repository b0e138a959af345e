// The log of one job.

import * as api from "./api.js";
import { el, replace } from "./dom.js";
import { bytes } from "./format.js";

export async function showLog(place, asked, current) {
  replace(place, el("p", { role: "status" }, "Reading …"));
  const answer = await api.log(asked.get("dag_id") ?? "", asked.get("job") ?? "");
  if (!current()) return;
  document.title = `Job log, ${asked.get("job")}`;
  replace(place, el("p", {}, el("a", { href: "#/" }, "← all tables")), el("h2", {}, `Log of job ${asked.get("job")}`),
    el("p", { class: "small" }, `${answer.place}, ${bytes(answer.size)}`, answer.left_out ? `; the first ${bytes(answer.left_out)} are not shown` : ""),
    el("pre", { class: "log", tabindex: "0", "aria-label": "Lines of the log" }, answer.text));
}
