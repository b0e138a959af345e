"""Resolves table names: a target, `source:schema.table`, or the name in the source."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable
from string import Formatter
from typing import Protocol

from airflow_gddl.contract.errors import MetadataError

PLACEHOLDERS = ("source", "schema", "table")
REMEDY = "write e.g. '{source}_{schema}.{table}'"


def rendered(template: str, source: str, table: str) -> str:
    """The target of a table.

    Args:
        template: one without a fault.
        table: `schema.name` in the source.
    """
    schema, _, name = table.partition(".")
    values = {"source": source, "schema": schema, "table": name}
    return "".join(text + (values[field] if field is not None else "") for text, field in _parts(template))


def has_source(template: str) -> bool:
    """Whether a template without a fault names the source."""
    return any(field == "source" for _, field in _parts(template))


def template_fault(template: str) -> str:
    """Why a text is not a template; empty when it is one. Resulting names are checked separately."""
    try:
        unknown = [field for _, field in _parts(template) if field is not None and field not in PLACEHOLDERS]
    except ValueError as error:
        return f"not a template: {error}"
    if unknown:
        return f"no such placeholder: {{{unknown[0]}}}; there are {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
    return ""


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Text, and the placeholder after it (null: none).

    Raises:
        ValueError: a brace without its other, or a conversion or format within braces.
    """
    parts = []
    for text, field, form, conversion in Formatter().parse(template):
        if form or conversion:
            raise ValueError("a placeholder is a name alone")
        parts.append((text, field))
    return parts


_SHOWN = 5
# Limits of the search for a similar name, among many tables and for many unknown names.
_SEARCHED, _COMPARED, _NEAR_LENGTH = 500, 300, 3


class NamedTable(Protocol):
    """Names of a table: a `TableSpec`, or another row with these fields."""

    @property
    def table(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def name_in_source(self) -> str: ...


class TableNames:
    """Resolves names to targets."""

    def __init__(self, tables: Iterable[NamedTable], *, fold: bool = False) -> None:
        """
        Args:
            fold: compare in lower case; the names passed must be in lower case.
        """
        self._targets: set[str] = set()
        self._qualified: dict[str, str] = {}
        self._short: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for one in tables:
            target, short = (one.table.lower(), one.name_in_source.lower()) if fold else (one.table, one.name_in_source)
            qualified = f"{one.source.lower() if fold else one.source}:{short}"
            self._targets.add(target)
            self._qualified[qualified] = target
            self._short[short][qualified] = target

    def find(self, name: str) -> str | None:
        """The target; null when no table has the name. A target takes precedence over another table's name in its
        source.

        Raises:
            MetadataError: `TABLE_AMBIGUOUS`.
        """
        found = self.candidates(name)
        if len(found) > 1:
            raise MetadataError("TABLE_AMBIGUOUS", ambiguous(name, found), where=name, remedy=ambiguous_remedy(found))
        return next(iter(found.values()), None)

    def near(self, name: str) -> str | None:
        """The known name that is most similar; one that differs only in case comes first; null: none."""
        folded = name.lower()
        if (same := self._folded.get(folded)) is not None:
            return same
        alike = (one for one in self._folded if one[:1] == folded[:1] and abs(len(one) - len(folded)) <= _NEAR_LENGTH)
        found = difflib.get_close_matches(folded[:_COMPARED], itertools.islice(alike, _SEARCHED), n=1, cutoff=0.85)
        return self._folded[found[0]] if found else None

    @functools.cached_property
    def _folded(self) -> dict[str, str]:
        """Known names by their lower case."""
        known = (*sorted(self._targets), *sorted(self._qualified), *sorted(self._short))
        return {name.lower(): name for name in reversed(known)}

    def candidates(self, name: str) -> dict[str, str]:
        """Targets by the longer names that distinguish them; one or none when the name is clear."""
        if name in self._targets:
            return {name: name}
        if name in self._qualified:
            return {name: self._qualified[name]}
        return dict(self._short.get(name, {}))

    def candidates_within(self, name: str, source: str) -> dict[str, str]:
        """The same where a row of `source` names the table: a table of its own source comes before those of others.

        More than one where its own source's table and another table's target have this name.
        """
        qualified = f"{source}:{name}"
        if (own := self._qualified.get(qualified)) is None:
            return self.candidates(name)
        return {qualified: own} | ({name: name} if name in self._targets else {}) if own != name else {name: own}


def ambiguous(name: str, found: Iterable[str]) -> str:
    names = sorted(found)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{name!r} may be {', '.join(names[:_SHOWN])}{more}"


def ambiguous_remedy(found: Iterable[str]) -> str:
    return f"write source:schema.table, e.g. {min(found)}, or the name of the lake's table"
