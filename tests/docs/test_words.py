"""One word names one thing: the glossary of `docs/concepts.md`, and words that pages and messages do without."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 40

LOST = {
    r"(?<!--)\bfull[ _]refresh": "rebuild",
    r"\brefresh (the|a|this|again)\b|\b(the|a) refresh\b|\btables? (is|are) refreshed": "rebuild",
    r"\bdelivered again\b": "re-delivered",
    r"\berrors? tables?\b": "quarantine",
    r"\bg(ive|ives|ave|iven) up\b": "dismiss",
    r"\bas-of tables?\b|--prefix\b": "cut",
    r"\brows? of (the )?metadata\b": "metadata row",
    r"\b(written|write|wait|waits|names?|lists?|fields|letters) behind\b": "after",
    r"\bbackfill(?=s? (of )?(a|the) table)": "reload",
}
"""Words that lost, and those that are written instead."""


def texts() -> Iterator[tuple[str, str]]:
    """Pages, and messages: texts of the product with a blank that aren't docstrings."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "CHANGELOG.md", "README.md", "docs", "airflow_gddl", "spark_jobs"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name.endswith((".md", ".js")):
            yield name, path.read_text()
        elif name.endswith(".py"):
            yield from ((f"{name}:{line}", text) for line, text in messages(path.read_text()))


def messages(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docs
        ):
            yield node.lineno, node.value


def test_messages_are_found() -> None:
    assert list(messages('"""A page."""\nx = "a text"\nraise ValueError("two words")\n')) == [
        (2, "a text"),
        (3, "two words"),
    ]


@pytest.mark.parametrize("lost", LOST)
def test_pages_and_messages_do_without(lost: str) -> None:
    pattern = re.compile(lost, re.IGNORECASE)
    found = [f"{where}: {match[0]}" for where, text in texts() for match in pattern.finditer(text)]
    assert not found, f"write {LOST[lost]}"


def test_the_glossary_has_few_words_and_each_is_used() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text().partition("\n## Words\n")[2]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    words = [word.strip() for cell in cells[1:] for word in cell.split(",")]
    assert 20 < len(words) == len(set(words)) <= MOST_WORDS
    pages = "\n".join(text for name, text in texts() if name.endswith(".md") and name != "docs/concepts.md").lower()
    assert [word for word in words if word not in pages] == []
