// History of one key: the command that shows it, with the key filled in.

import { copier } from "./copy.js";
import { el, replace } from "./dom.js";

/** A quoted word of a command line, for POSIX shells. */
export function quoted(text) {
  return /^[A-Za-z0-9_.,:/=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** keys: names of the key columns; null: not known; empty: the table has none. */
export function explainForm(table, keys) {
  const heading = el("h3", {}, "History of a key");
  if (keys !== null && keys.length === 0) return el("section", {}, heading, el("p", {}, "The table has no key."));
  const names = keys ?? ["key"];
  const shown = el("code", { class: "command", id: "explain-command" });
  const copy = copier(shown);
  const inputs = names.map((name) => el("input", { type: "text", "aria-label": `Value of ${name}`, autocomplete: "off", oninput: () => write() }));
  const write = () => {
    // A value that begins with @ would be read as a file name.
    const part = (name, at) => (keys !== null && (keys.length > 1 || inputs[at].value.startsWith("@")) ? `${name}=` : "") + inputs[at].value;
    const words = names.flatMap((name, at) => ["--key", quoted(part(name, at))]);
    replace(shown, document.createTextNode(["gddl", "explain", "--table", quoted(table), ...words].join(" ")));
    copy.clear();
  };
  write();
  return el("section", {}, heading,
    el("p", {}, "This command shows the changes of a key in order, which one won and why, the replica's row, and its quarantined rows. It takes no claim and changes nothing."),
    el("div", { class: "filters" }, names.map((name, at) => el("label", {}, `${name} `, inputs[at]))),
    el("p", {}, shown, " ", copy.button, " ", copy.status));
}
