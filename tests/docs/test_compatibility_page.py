"""`docs/releasing.md`: what is promised names tests that exist, and import paths that can be imported."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.unit.pages import ROOT, page

PAGE = page("releasing.md")
TESTS = (Path(__file__).parent / "compatibility_promises.md").read_text(encoding="utf-8")


def table(text: str) -> list[list[str]]:
    """Cells of each row, without the head and without targets of links."""
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [
        [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).strip() for cell in line.strip("|").split(" | ")]
        for line in lines
    ]


ASKED = ("metadata", "commands", "--json", "tables", "documents of the lake", "Airflow import paths")


def test_each_promise_says_how_it_changes_and_names_tests() -> None:
    promises, held = table(PAGE), dict(table(TESTS))
    assert all(any(asked in row[0] for row in promises) for asked in ASKED)
    assert [row[0] for row in promises] == list(held)
    for part, promise, changes in promises:
        assert promise, part
        assert changes, part
        files = re.findall(r"`(tests/[^`]+)`", held[part])
        assert files, part
        assert [name for name in files if not (ROOT / name).is_file()] == [], part


def test_import_paths_are_there() -> None:
    found = re.findall(r"^from (airflow_gddl[\w.]*) import (.+)$", PAGE, re.MULTILINE)
    assert len(found) == 5
    for module, names in found:
        for name in names.split(", "):
            assert getattr(importlib.import_module(module), name), f"{module}.{name}"


def test_paths_of_other_pages_are_among_them() -> None:
    """Pages that say how to write DAGs import nothing that is not promised."""
    promised = dict(re.findall(r"^from (airflow_gddl[\w.]*) import (.+)$", PAGE, re.MULTILINE))
    for name in ("airflow.md", "consumers.md", "tutorial.md", "streaming.md"):
        for module, names in re.findall(r"^from (airflow_gddl[\w.]*) import (.+)$", page(name), re.MULTILINE):
            assert set(names.split(", ")) <= set(promised[module].split(", ")), f"{name}: {module}"
