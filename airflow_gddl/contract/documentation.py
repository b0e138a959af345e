"""The documentation, as messages name it: pip installs no page, so that each is named by its URL.

What `docs/codes.md` says of codes is in the package, for the page in Airflow and for commands.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from airflow_gddl.contract.errors import QUARANTINE_REMEDIES, documented

CODES = "codes.md"
_ROW = re.compile(r"\| `([A-Z0-9_]+)` \| ([^|]+) \| (.+) \| (.+) \|")
_TABLE = re.compile(r"--table T\b")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class CodeText:
    """What a code means, and what to do; `kind` is one of those that the page explains."""

    kind: str
    meaning: str
    remedy: str


@functools.cache
def code_texts() -> Mapping[str, CodeText]:
    """By code; empty where the package was built without the page."""
    found = {}
    for line in _text().splitlines():
        if row := _ROW.fullmatch(line.strip()):
            code, kind, meaning, remedy = (_LINK.sub(r"\1", part.replace("\\|", "|")).strip() for part in row.groups())
            found[code] = CodeText(kind, meaning, remedy)
    return found


def _text() -> str:
    """The page in the wheel, else in the tree beside the package."""
    try:
        return resources.files("airflow_gddl").joinpath(CODES).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        beside = Path(__file__).parents[2] / "docs" / CODES
        return beside.read_text(encoding="utf-8") if beside.is_file() else ""


def of_code(code: str, table: str = "T") -> str:
    """What to do about a code, as far as the page says it, and where to read more.

    Args:
        table: that its commands name.
    """
    text = code_texts().get(code)
    more = documented(CODES)
    if text is None or not text.remedy.strip("\u2013 "):
        return f"see {more}"
    return f"{_for_table(text.remedy, table)} ({more})"


def of_quarantined(code: str, table: str) -> str:
    """What to do about a table's rows in quarantine with a code."""
    return _for_table(QUARANTINE_REMEDIES.get(code, ""), table) or of_code(code, table)


def _for_table(remedy: str, table: str) -> str:
    return _TABLE.sub(lambda _: f"--table {table}", remedy)
