"""The page in a headless Chromium, served with Airflow's own authentication and without the rest of Airflow."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
    return page


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
