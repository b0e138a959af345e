"""What a person sees: Airflow's UI in a headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # as that of the pages below: the machine may be busy
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SIZE = {"width": 1500, "height": 950}


@contextmanager
def page(url: str) -> Iterator[Page]:
    """A page of Airflow's UI, light, in English, logged in."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-proxy-server"])
        context = browser.new_context(base_url=url, viewport=_SIZE, locale="en-US", color_scheme="light")
        shown = context.new_page()
        shown.set_default_timeout(30_000)
        shown.goto("/auth/token/login")
        yield shown
        browser.close()


def picture(page: Page, folder: Path, name: str) -> None:
    page.screenshot(path=folder / f"{name}.png", animations="disabled")
