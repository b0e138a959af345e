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
FOLDERS = ("airflow_gddl", "spark_jobs", "devtools")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
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


def kinds_of_lake() -> dict[str, re.Pattern[str]]:
    """Patterns of paths below `_gddl`, by what docs/lake-files.md calls them."""
    named = [name for row in rows(page("lake-files.md")) for name in re.findall(r"`([^`]+)`", row[0])]
    return {name: re.compile(_path_pattern(name)) for name in named}


def _path_pattern(name: str) -> str:
    parts = {"table": r"[^/]+/[^/]+", "n": r"\d+", "id": r"[0-9a-f-]+"}
    found = re.split(r"<(\w+)>|…", name)
    text = [
        re.escape(part or "") if at % 2 == 0 else parts.get(part or "", ".+" if part is None else r"[^/]+")
        for at, part in enumerate(found)
    ]
    return "".join(text)


def unknown_to_page(lake: Path) -> list[str]:
    """Files below `_gddl` that the page does not name."""
    return sorted(path for path in files_of_lake(lake) if not any(p.fullmatch(path) for p in kinds_of_lake().values()))


def found_kinds(lake: Path) -> set[str]:
    """Kinds of the page of which the lake has a file."""
    files = files_of_lake(lake)
    return {name for name, pattern in kinds_of_lake().items() if any(map(pattern.fullmatch, files))}


def files_of_lake(lake: Path) -> list[str]:
    """Without locks of local folders."""
    found = (path for path in (lake / "_gddl").rglob("*") if path.is_file() and path.name != ".lock")
    return [path.relative_to(lake / "_gddl").as_posix() for path in found]


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
            if command.invoke_without_command:
                yield f"{path} {name}", _options(command)
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", _options(command)


def _options(command: Any) -> set[str]:
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    return options - {"--help"}
