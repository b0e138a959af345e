// Elements made of data: every value becomes text or an attribute, never markup.

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

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function replace(place, ...children) {
  place.replaceChildren(...children.flat().filter(Boolean));
}

/** A table with headings; cells are texts or elements. */
export function grid(headings, rows, label) {
  return el("div", { class: "scroll" }, el("table", { "aria-label": label },
    el("thead", {}, el("tr", {}, headings.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell ?? "")))))));
}
