"""Messages name pages of the documentation by URL, and what the page of codes says is in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.contract.documentation import of_code
from airflow_gddl.contract.errors import DOCUMENTATION, documented

ROOT = Path(__file__).parents[2]
SOURCES = [path for package in ("airflow_gddl", "spark_jobs") for path in (ROOT / package).rglob("*.py")]
_PAGE = re.compile(r"docs/[a-z/-]+\.md")


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCES:
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def _docstrings(tree: ast.Module) -> set[int]:
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def test_no_message_names_a_page_that_pip_did_not_install() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r:.80}"
        for path, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PAGE.search(node.value)
        and id(node) not in _docstrings(tree)
    ]  # fmt: skip
    assert found == []


def _named() -> Iterator[tuple[str, str]]:
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "documented":
                texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if texts:
                    yield str(texts[0]), str(texts[1]) if len(texts) > 1 else ""


@pytest.mark.parametrize(("page", "heading"), sorted(set(_named())))
def test_each_page_and_heading_is_there(page: str, heading: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert heading in {"", *headings}
    assert documented(page, heading).startswith(f"{DOCUMENTATION}/{page}")


def test_what_to_do_about_a_code() -> None:
    assert of_code("DAG_PAUSED") == f"unpause it, then clear the task ({DOCUMENTATION}/codes.md)"
    assert of_code("NOT_A_CODE") == f"see {DOCUMENTATION}/codes.md"
