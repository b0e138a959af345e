// Entry point of the page: the part after `#` in the URL selects what is shown.

import "./theme.js";
import { root } from "./api.js";
import { el, replace } from "./dom.js";
import { moment, ZONE } from "./format.js";
import { showLog } from "./log.js";
import { Matrix } from "./matrix.js";
import { TablePage } from "./table.js";

const AGAIN_MS = 15_000;
const main = document.getElementById("main");
let shown = null; // what is asked again: the list, or a table's page
let turn = 0;

function showTroubles(troubles, now) {
  replace(document.getElementById("troubles"), troubles.map(({ what, since }) => el("p", { class: "trouble" },
    `${what} ${since === null ? "" : `The displayed state is as of ${moment(since)}.`}`)));
  replace(document.getElementById("as-of"), document.createTextNode(`${moment(now)} (${ZONE})`));
}

function failed(error) {
  const lost = error.status === 401 || error.status === 403;
  const text = lost ? "You are not logged in, or may not see this." : error.status === 404 ? `There is ${error.message}, or you may not see it.` : `The page can't be loaded: ${error.message}`;
  const message = el("p", { class: "trouble", role: "alert" }, text, lost ? el("a", { href: `${root}/`, target: "_top" }, " Log in to Airflow") : el("a", { href: "#/" }, " All tables"));
  if (shown && !lost) replace(document.getElementById("troubles"), message); else replace(main, message);
}

async function show() {
  const mine = ++turn;
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  shown?.leave?.();
  document.title = "GDDL tables";
  shown = null;
  try {
    const name = /^\/table\/(.+)$/.exec(path);
    if (name) {
      const page = new TablePage(main, decodeURIComponent(name[1]), showTroubles, () => mine === turn, new URLSearchParams(query ?? "").get("action"));
      await page.show();
      if (mine === turn) shown = page;
    } else if (path === "/log") {
      await showLog(main, new URLSearchParams(query ?? ""), () => mine === turn);
    } else {
      shown = new Matrix(main, new URLSearchParams(query ?? ""), showTroubles);
      await shown.show();
    }
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

window.addEventListener("hashchange", show);
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && shown?.search && !typing) { event.preventDefault(); shown.search.focus(); }
});
setInterval(() => { if (shown && !document.hidden) shown.show().catch(failed); }, AGAIN_MS);
show();
