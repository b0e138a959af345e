"""Selects tables by what their rows say, in the words of dbt's selectors."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.topology.rows import TableRow

METHODS = ("table", "tag", "owner", "source", "tier")


def selected(rows: Iterable[TableRow], select: Sequence[str], exclude: Sequence[str] = ()) -> list[TableRow]:
    """Rows that any selector of `select` matches (all, where there is none) and no selector of `exclude`.

    A selector is a method and a value, `tag:domain` or `tag:domain:sales`; `shop.*` is short for `table:shop.*`. Values
    may have `*`, `?` and `[…]`. Selectors joined by commas must all match.

    Raises:
        MetadataError: `SELECTOR_INVALID`.
    """
    wanted, unwanted = [_parsed(one) for one in select], [_parsed(one) for one in exclude]
    return [
        row
        for row in rows
        if (not wanted or any(_matches(row, one) for one in wanted)) and not any(_matches(row, one) for one in unwanted)
    ]


def _parsed(selector: str) -> list[tuple[str, str]]:
    parts = []
    for part in selector.split(","):
        method, colon, value = part.strip().partition(":")
        if not colon:
            method, value = "table", method
        if method not in METHODS or not value:
            remedy = f"write e.g. tag:finance or shop.*; methods are {', '.join(METHODS)}"
            raise MetadataError("SELECTOR_INVALID", f"not a selector of tables: {selector!r}", remedy=remedy)
        parts.append((method, value))
    return parts


def _matches(row: TableRow, parts: Iterable[tuple[str, str]]) -> bool:
    values = {"table": (row.table,), "owner": (row.owner or "",), "source": (row.source,), "tier": (row.tier,)}
    return all(
        any(fnmatch.fnmatchcase(found, value) for found in (row.tags if method == "tag" else values[method]))
        for method, value in parts
    )
