// A button that copies a text, and says so.

import { el, replace } from "./dom.js";

/** shown: the element whose text is copied. Returns the button, what it says, and `clear`, for when the text changes. */
export function copier(shown) {
  const status = el("span", { class: "small", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      replace(status, document.createTextNode("copied"));
    } catch {
      window.getSelection().selectAllChildren(shown);
      replace(status, document.createTextNode("selected: copy it with the keyboard"));
    }
  };
  return { button: el("button", { type: "button", onclick: copy }, "Copy"), status, clear: () => replace(status) };
}
