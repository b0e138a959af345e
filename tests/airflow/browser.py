"""The page in a headless Chromium, served with Airflow's own authentication and without the rest of Airflow."""

from __future__ import annotations

import importlib
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=20_000)  # a page is drawn when its data has come
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PICTURES = Path(__file__).parents[1] / "e2e" / "pictures"
WIDTHS = (420, 900, 1400)
CLIPPED = """() => [...document.querySelectorAll("body, body *")]
  .filter((one) => one.clientWidth > 0 && !one.matches("option, select, input, svg *"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .filter((one) => getComputedStyle(one).display !== "inline")
  .map((one) => `${one.tagName}.${one.getAttribute("class")}: ${one.scrollWidth} > ${one.clientWidth}`)"""
"""Elements whose content is wider than they are."""

UNREADABLE = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (ground, colour) => {
    canvas.fillStyle = ground; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => rgb.map((one) => linear(one / 255))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => {
    const all = [];
    for (let at = one; at; at = at.parentElement) all.unshift(getComputedStyle(at).backgroundColor);
    return all.reduce((below, colour) => `rgb(${over(below, colour).join()})`, "rgb(255,255,255)");
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.checkVisibility() && !one.matches(":disabled, option"))
    .filter((one) => [...one.childNodes].some((part) => part.nodeType === Node.TEXT_NODE && part.textContent.trim()))
    .map((one) => {
      const style = getComputedStyle(one), below = ground(one);
      const colour = one.matches("svg *") ? style.fill : style.color;
      const [a, b] = [light(over(below, colour)), light(over(below, below))].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), `${one.tagName}.${one.getAttribute("class")}: ${one.textContent.slice(0, 40)}`];
    }).filter(([ratio]) => ratio < 4.5).map(([ratio, text]) => `${ratio.toFixed(2)} ${text}`);
}"""
"""Texts of less contrast than 4.5 to 1; those of disabled buttons are exempt."""

BROKEN = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [], range = document.createRange();
  while (texts.nextNode()) {
    const part = texts.currentNode;
    if (!part.parentElement.checkVisibility() || part.parentElement.closest("svg, option, pre")) continue;
    for (const word of part.textContent.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      range.setStart(part, word.index); range.setEnd(part, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
      if (lines.size > 1) found.push(`${part.parentElement.tagName}: ${word[0]}`);
    }
  }
  return found;
}"""
"""Words that continue on the next line; a name may be broken at its `_`."""


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The page's application below `/gddl`, as Airflow mounts it; its address."""
    outer = FastAPI()
    outer.mount("/gddl", app)
    outer.get("/favicon.ico")(lambda: None)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(outer, log_level="warning"))
        running = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        running.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        running.join(30)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-proxy-server"])
        yield launched
        launched.close()


def opened(browser: Browser, url: str, headers: dict[str, str], **context: Any) -> Page:
    """An empty page of somebody who is logged in."""
    made = browser.new_context(base_url=url, locale="en-GB", **{"timezone_id": "Europe/Berlin", **context})
    token = headers["Authorization"].removeprefix("Bearer ")
    made.add_init_script(f"window.localStorage.setItem('token', '{token}')")
    page = made.new_page()
    page.set_default_timeout(20_000)
    page.route("**/api/v2/assets?*", lambda route: route.fulfill(json=assets()))
    return page


def assets(*consumers: tuple[str, str, str | None]) -> dict[str, Any]:
    """What Airflow's API answers of assets, in Airflow's own class.

    Args:
        consumers: asset, DAG, and its task that names the asset as inlet; null: the asset starts the DAG.
    """
    kinds = importlib.import_module("airflow.api_fastapi.core_api.datamodels.assets")
    moment = datetime(2023, 11, 14, tzinfo=UTC)
    times = {"created_at": moment, "updated_at": moment}
    found = []
    for number, name in enumerate(sorted({asset for asset, _, _ in consumers})):
        mine = [(dag, task) for asset, dag, task in consumers if asset == name]
        started = [{"dag_id": dag, **times} for dag, task in mine if task is None]
        reading = [{"dag_id": dag, "task_id": task, **times} for dag, task in mine if task is not None]
        others: dict[str, Any] = {"producing_tasks": [], "aliases": [], "watchers": [], "group": "asset", **times}
        uses = {"scheduled_dags": started, "consuming_dags": started, "consuming_tasks": reading}
        found.append({"id": number, "name": name, "uri": name, **others, **uses})
    kind = kinds.AssetResponse
    known = [kind(**{key: value for key, value in one.items() if key in kind.model_fields}) for one in found]
    answer = kinds.AssetCollectionResponse(assets=known, total_entries=len(known))
    shown: dict[str, Any] = answer.model_dump(mode="json")
    return shown


def inaccessible(page: Page) -> list[str]:
    """What axe finds: each rule that is broken, and the first element that breaks it."""
    # Evaluated, since the page's policy forbids scripts of others.
    page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(
        "async () => (await axe.run()).violations.map((one) => `${one.id}: ${one.nodes[0].html}`)"
    )
    return found


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
