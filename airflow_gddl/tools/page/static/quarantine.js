// Quarantined rows with their values, of one code or of all.

import * as api from "./api.js";
import { column, el, grid, replace, values } from "./dom.js";
import { keyLink } from "./explain.js";
import { count, counted, momentOf, UNKNOWN } from "./format.js";

export class Quarantine {
  /** explain: shows the history of a row's key. */
  constructor(name, explain) {
    Object.assign(this, { name, explain });
    this.code = "";
    this.place = el("section", { id: "quarantine" });
  }

  /** Reads it again; shows an error if it can't be read. */
  async read() {
    const code = this.code;
    try {
      const answer = await api.quarantine(this.name, code);
      if (code === this.code) replace(this.place, el("h3", {}, "Quarantine"), this.shown(answer));
    } catch (error) {
      replace(this.place, el("h3", {}, "Quarantine"), el("p", { class: "trouble" }, `The quarantine can't be read: ${error.message}`));
    }
  }

  shown({ refused, error, found }) {
    if (refused) return el("p", {}, "You may not see rows in quarantine: they are data, and need the permission GDDL Quarantine.");
    if (error) return el("p", { class: "trouble" }, error);
    if (found.unresolved === 0) return el("p", {}, "No quarantined rows.");
    const matching = this.code ? (found.codes[this.code] ?? 0) : found.unresolved;
    return [
      el("div", { class: "chips", role: "group", "aria-label": "Codes" }, this.chip("", found.unresolved), Object.entries(found.codes).map(([code, number]) => this.chip(code, number))),
      el("ul", { class: "remedies" }, Object.keys(found.codes).filter((code) => !this.code || code === this.code).map((code) => el("li", { class: "remedy" }, el("b", {}, code), `: ${found.remedies[code]}`))),
      el("p", { class: "count" }, matching > found.rows.length ? `The first ${count(found.rows.length)} of ${counted(matching, "row")}; gddl errors list --table ${this.name} has more.` : counted(matching, "row")),
      grid([column("When", "moment"), "Code", "Column", "File", "Batch"], found.rows.map((row) => quarantined(row, this.explain())), "Quarantine"),
    ];
  }

  chip(code, number) {
    return el("button", {
      type: "button", class: "chip", "aria-pressed": String(this.code === code),
      onclick: () => { this.code = code; this.read(); },
    }, `${code || "all codes"} `, el("b", {}, count(number)));
  }
}

function quarantined(row, explain) {
  return {
    cells: [momentOf(row.occurred_at), el("b", {}, row.code ?? ""), row.column ?? UNKNOWN, el("code", {}, row.source_file ?? ""), (row.batch_id ?? "").replace(/^0+(?=.)/, "")],
    message: [row.reason ? el("p", { class: "warn" }, row.reason) : null, values(row.values), keyLink(explain, row.values)].filter(Boolean),
  };
}
