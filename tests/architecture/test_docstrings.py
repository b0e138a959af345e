"""Docstrings begin with a sentence about the thing, not with its arguments, nor with what another docstring said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("airflow_gddl/contract", "spark_jobs/batch", "spark_jobs/plan", "spark_jobs/rules", "spark_jobs/tables")
"""Packages whose docstrings all begin so by now; a package joins the list when it does."""
_BEGINS_OTHERWISE = re.compile(r"(Attributes|Args|Raises|Returns):|Of |The same\b|As before|[Nn]ull\b")


def beginnings(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names of classes and functions, with the first lines of their docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node.name, text.partition("\n")[0]


def otherwise(tree: ast.AST) -> list[str]:
    return [name for name, first in beginnings(tree) if _BEGINS_OTHERWISE.match(first)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Raises:\n        FatalError: x.", ["f"]),
        ("\n    Args:\n        x: y.", ["f"]),
        ("Of a table.", ["f"]),
        ("The same of a row.", ["f"]),
        ("Rows of a table.", []),
        ("Often read.", []),
    ],
)
def test_docstrings_without_a_sentence_are_found(text: str, expected: list[str]) -> None:
    assert otherwise(ast.parse(f'def f():\n    """{text}"""')) == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_sentence(package: str) -> None:
    found = {name for path in (ROOT / package).rglob("*.py") for name in otherwise(ast.parse(path.read_text("utf-8")))}
    assert found == set()
