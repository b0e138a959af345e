// The page's one entry: which part is shown follows from the address after `#`.

import "./theme.js";
import { root } from "./api.js";
import { el, replace } from "./dom.js";
import { moment } from "./format.js";
import { showLog } from "./log.js";
import { Matrix } from "./matrix.js";
import { showTable } from "./table.js";

const AGAIN_MS = 15_000;
const main = document.getElementById("main");
let matrix = null;
let turn = 0;

function told(troubles, now) {
  replace(document.getElementById("troubles"), troubles.map(({ what, since }) => el("p", { class: "trouble" },
    `${what} ${since === null ? "" : `What is shown is as of ${moment(since)}.`}`)));
  document.title = `GDDL tables, ${moment(now)}`;
}

function failed(error) {
  const lost = error.status === 401 || error.status === 403;
  const text = lost ? "You are not logged in, or may not see this." : error.status === 404 ? `There is ${error.message}, or you may not see it.` : `This can't be shown: ${error.message}`;
  const shown = el("p", { class: "trouble", role: "alert" }, text, lost ? el("a", { href: `${root}/`, target: "_top" }, " Log in to Airflow") : el("a", { href: "#/" }, " All tables"));
  if (matrix && !lost) replace(document.getElementById("troubles"), shown); else replace(main, shown);
}

async function show() {
  const mine = ++turn;
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  try {
    const name = /^\/table\/(.+)$/.exec(path);
    if (name) {
      matrix = null;
      await showTable(main, decodeURIComponent(name[1]), told, () => mine === turn);
    } else if (path === "/log") {
      matrix = null;
      await showLog(main, new URLSearchParams(query ?? ""), () => mine === turn);
    } else {
      matrix = new Matrix(main, new URLSearchParams(query ?? ""), told);
      await matrix.show();
    }
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

window.addEventListener("hashchange", show);
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && matrix && !typing) { event.preventDefault(); matrix.search.focus(); }
});
setInterval(() => { if (matrix && !document.hidden) matrix.show().catch(failed); }, AGAIN_MS);
show();
