// The first rows of a replica, read when a person asks for them.

import * as api from "./api.js";
import { el, replace, values } from "./dom.js";
import { keyLink, refusal } from "./explain.js";
import { counted } from "./format.js";

/** A button, and the rows once it was pressed. explain: shows the history of a row's key. */
export function preview(table, explain) {
  const found = el("div", { role: "status" });
  const read = async () => {
    replace(found, el("p", {}, "Reading rows …"));
    try {
      replace(found, shown(await api.rows(table), explain));
    } catch (error) {
      replace(found, el("p", { class: "trouble" }, `The rows can't be read: ${error.message}`));
    }
  };
  return el("section", { id: "preview" }, el("h3", {}, "Rows"), el("p", {}, el("button", { type: "button", onclick: read }, "Show rows")), found);
}

function shown({ refused, error, found }, explain) {
  if (refused) return [refusal()];
  if (error) return [el("p", { class: "trouble" }, error)];
  if (!found.exists) return [el("p", {}, "No replica yet.")];
  if (!found.rows.length) return [el("p", {}, "The replica has no rows.")];
  const first = found.rows.length === found.limit ? `The first ${counted(found.rows.length, "row")}, in no order` : counted(found.rows.length, "row");
  return [el("p", { class: "count" }, first), el("ol", { class: "rows" }, found.rows.map((row) => el("li", {}, values(row), keyLink(explain, row))))];
}
