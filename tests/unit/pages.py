"""The project's pages, sources and tables, as the tests of the documentation read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = [path for folder in ("airflow_gddl", "spark_jobs") for path in sorted((ROOT / folder).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """Text below a heading of the second level, up to the next."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found, f"{name} has no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Cells of every table row but headings and rules."""
    found = [[cell.strip() for cell in line.split("|")] for line in ROW.findall(text)]
    return [row for row in found if row[0].startswith("`")]


def bare(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


def trees(paths: list[Path]) -> Iterator[ast.Module]:
    for path in paths:
        yield ast.parse(path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(group: Any, path: str = "gddl") -> Iterator[tuple[str, set[str]]]:
    """Each command with the long names of its options."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
            yield f"{path} {name}", options - {"--help"}
