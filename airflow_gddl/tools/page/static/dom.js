// Creates elements from data: values become text or attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const MESSAGES = new Set(["error", "remedy", "trouble", "warn"]);

export function el(name, attributes = {}, ...children) {
  const parts = MESSAGES.has(attributes.class) ? children.flat().flatMap(coded) : children.flat();
  return fill(document.createElement(name), attributes, name === "option" ? parts : parts.flatMap(breakable));
}

/** Messages have commands and names between backticks. */
function coded(child) {
  if (typeof child !== "string") return [child];
  return child.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

/** Long names and paths are broken after `_`, `.` and `/`, where they must be. */
function breakable(child) {
  if (typeof child !== "string" || !/\S{12}/.test(child)) return [child];
  return child.split(/(?<=[_./])(?=[^_./])/).flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function replace(place, ...children) {
  place.replaceChildren(...children.flat().filter(Boolean));
}

/** `replace`, unless the content is unchanged: then focus, selection and scrolling are kept. */
export function refresh(place, key, make) {
  const text = JSON.stringify(key);
  if (place.shownKey === text) return;
  place.shownKey = text;
  replace(place, make());
}

/** A column: its title and the kind of its cells: `number` (on the right), `moment` (on one line), or text. */
export function column(title, kind = null) {
  return { title, kind };
}

/**
 * A table with headings; on narrow screens each row is a block that names its values.
 * rows: lists of cells (texts or elements), or { cells, message }: the message is displayed in a separate line below the row.
 */
export function grid(columns, rows, label, kind = "") {
  const titled = columns.map((one) => (typeof one === "string" ? column(one) : one));
  const body = rows.flatMap((row) => {
    const { cells, message } = Array.isArray(row) ? { cells: row, message: null } : row;
    const shown = el("tr", { class: message ? "explained" : null }, cells.map((cell, at) => el(at === 0 ? "th" : "td", {
      scope: at === 0 ? "row" : null, class: titled[at].kind, "data-label": titled[at].title,
    }, cell ?? "")));
    return message ? [shown, el("tr", { class: "message" }, el("td", { colspan: titled.length }, message))] : [shown];
  });
  return el("table", { class: `grid ${kind}`.trim(), "aria-label": label },
    el("thead", {}, el("tr", {}, titled.map((one) => el("th", { scope: "col", class: one.kind }, one.title)))),
    el("tbody", {}, body));
}

/** A value of a row: null, an empty text and a masked value differ. */
export function valueText(one) {
  if (one.hidden) return el("i", { class: "small" }, "masked");
  return one.value === null ? el("i", { class: "small" }, "null") : el("code", {}, one.value === "" ? "\"\"" : one.value);
}

/** Values of a row with their names; null: there are none. */
export function values(found) {
  if (!found.length) return null;
  return el("dl", { class: "values" }, found.map((one) => el("div", {}, el("dt", {}, one.name || "record"), el("dd", {}, valueText(one)))));
}

let pressed = Promise.resolve();
window.addEventListener("pointerdown", ({ button }) => {
  if (button !== 0) return;
  pressed = new Promise((done) => {
    for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, () => setTimeout(done), { once: true });
  });
}, true);

/** Resolves when the pointer is not pressed. An element that is replaced under a pressed pointer gets no click. */
export function released() {
  return pressed;
}
