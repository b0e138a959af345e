"""Columns of a replica that consumers see: those of the source, without the columns that CDC and this package add.

Pure, for commands, the page and jobs alike. Column names compare without case, as Delta does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.dms import COMMIT_TIMES, TOTAL_ORDER
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.contract.table_spec import lowered

EVERY = "*"
"""In `published`: every column that is not technical and not named beside it."""
MARKS = "_gddl"
MARK = "deleted"
_OURS = frozenset({MARKS, "_rescued_data"})
_OF_SERVICES = lowered((*TOTAL_ORDER, *COMMIT_TIMES))
_PREFIXES = ("ar_h_", "_dbz_")
"""Prefixes of columns that AWS DMS and the dialect `debezium` add."""


@dataclass(frozen=True, kw_only=True)
class ReplicaSchema:
    """Current top-level columns of a replica.

    Attributes:
        columns: names in table order.
        marks_deletes: `_gddl` has the field `deleted`, so that some rows may be marked as deleted.
    """

    columns: tuple[str, ...]
    marks_deletes: bool

    @classmethod
    def of_json(cls, text: str) -> ReplicaSchema:
        """From Delta's `schemaString`."""
        fields: list[dict[str, Any]] = json.loads(text)["fields"]
        kinds = {field["name"]: field["type"] for field in fields}
        gddl = kinds.get(MARKS)
        inner = gddl.get("fields", []) if isinstance(gddl, dict) else []
        return cls(columns=tuple(kinds), marks_deletes=any(field["name"] == MARK for field in inner))


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Settings of a metadata row about published columns.

    Attributes:
        columns: the row's `published`; empty: the table is not published.
        technical: columns that the row names for ordering and applying changes, keys excepted.
    """

    columns: tuple[str, ...] = (EVERY,)
    technical: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: TableSpec) -> Publication:
        named = (*spec.sequence_by, spec.columns_to_update, spec.force_update, spec.options.get("timestamp_column"))
        keys = lowered(spec.keys)
        technical = tuple(name for name in named if isinstance(name, str) and name.lower() not in keys)
        return cls(columns=spec.published, technical=technical)

    def columns_of(self, schema: ReplicaSchema) -> tuple[str, ...]:
        """The published columns, in the spelling of the table and the order of `columns`.

        Raises:
            FatalError: `PUBLISHED_COLUMN_MISSING`: the row names a column that the table lacks, or none is left.
        """
        spelled = {name.lower(): name for name in schema.columns}
        if missing := [name for name in self.columns if name != EVERY and name.lower() not in spelled]:
            what = f"published names {', '.join(map(repr, missing))}, which the replica does not have"
            remedy = f"name columns of the replica: {', '.join(self._plain(schema.columns))}"
            raise FatalError("PUBLISHED_COLUMN_MISSING", what, remedy=remedy)
        named = lowered(self.columns)
        every = [name for name in self._plain(schema.columns) if name.lower() not in named]
        found = [c for name in self.columns for c in (every if name == EVERY else [spelled[name.lower()]])]
        if self.columns and not found:
            what = f"no column is left to publish: all {len(schema.columns)} are technical"
            raise FatalError("PUBLISHED_COLUMN_MISSING", what, remedy="name columns in `published`")
        return tuple(found)

    def _plain(self, columns: Iterable[str]) -> list[str]:
        technical = _OURS | _OF_SERVICES | lowered(self.technical)
        return [c for c in columns if c.lower() not in technical and not c.lower().startswith(_PREFIXES)]


def published_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Problems of the row's `published` that can be found without the replica."""
    absent = lowered(spec.exclude_columns) - lowered(spec.keys)
    seen: set[str] = set()
    for i, column in enumerate(spec.published):
        name, path = column.lower(), ("published", i)
        if not column.strip():
            yield SpecProblem("PUBLISHED_INVALID", path, column, "an empty column name", "name the column or drop it")
        elif name in seen:
            message = "the same column twice (case does not count)"
            yield SpecProblem("PUBLISHED_INVALID", path, column, message, "name each column once")
        elif name in absent:
            message = "a column that exclude_columns removes"
            yield SpecProblem("PUBLISHED_INVALID", path, column, message, "remove it from one of the two")
        seen.add(name)
