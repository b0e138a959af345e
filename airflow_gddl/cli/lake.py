"""`Lake`: the tables of a metadata folder for notebooks and scripts, as Arrow tables; what `gddl` shows, as values."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_gddl.cli import context
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, run_tables
from airflow_gddl.cli.schema import replica_fields
from airflow_gddl.cli.status import StatusLine, status_lines
from airflow_gddl.contract.actions import Explain
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.published import published_columns
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores.delta_tables import opened, unresolved
from airflow_gddl.topology.table_row import select

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gddl.metadata.loading import LoadedMetadata


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """A valid row, and the paths of its Delta tables; `history` is null where it keeps none."""

    table: str
    source: str
    name_in_source: str
    keys: list[str]
    size: str
    schedule: str | None
    owner: str | None
    enabled: bool
    description: str | None
    replica: str
    history: str | None
    changes: str
    errors: str

    @classmethod
    def of(cls, loaded: LoadedMetadata, spec: TableSpec) -> TableLine:
        layout, cadence = Layout.of(loaded.roots, spec), spec.cadence
        return cls(
            table=spec.table,
            source=spec.source,
            name_in_source=spec.name_in_source,
            keys=list(spec.keys),
            size=spec.size,
            schedule=cadence if isinstance(cadence, str) or cadence is None else json.dumps(plain(cadence)),
            owner=spec.owner,
            enabled=spec.enabled,
            description=spec.description,
            replica=layout.replica,
            history=layout.history if spec.history else None,
            changes=layout.changes,
            errors=layout.errors,
        )


@dataclass(frozen=True, kw_only=True)
class QuarantineLine:
    """A row or a file in quarantine; `record`, its values as JSON text, and `position` are null for a file."""

    table: str
    code: str
    reason: str | None
    column: str | None
    record: str | None
    source_file: str
    position: int | None
    kind: str
    occurred_at: datetime
    batch_id: str


@dataclass(frozen=True)
class Lake:
    """The tables of a metadata folder. Each call reads metadata and lake again; nothing is changed.

    Results are `pyarrow.Table`; `.to_pandas()` makes a DataFrame of each.

    Attributes:
        metadata: the folder, or its `s3://` URL; None: `GDDL_METADATA`, else `metadata`.
        environ: variables that override settings and say how S3 is reached; those of the process unless given.

    Raises:
        MetadataError: by each method, as the command of its name: `METADATA_MISSING`, `SETTINGS_INVALID`, ...
    """

    metadata: str | Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def tables(self) -> pa.Table:
        """A row for each valid table: names, keys, size, schedule, owner, and the paths of its Delta tables.

        `history` is null where the row keeps none; a path says nothing of whether the table was loaded.
        """
        loaded = self._metadata()
        return _arrow(TableLine, [TableLine.of(loaded, spec) for spec in loaded.tables])

    def status(self, *tables: str) -> pa.Table:
        """A row for each of the named tables (none: all enabled ones), with the keys of `gddl status --json`."""
        return _arrow(StatusLine, status_lines(self._cli(), self._folder, tables))

    def errors(self, *tables: str, codes: Collection[str] = ()) -> pa.Table:
        """Rows and files in quarantine, oldest first.

        Args:
            tables: none: all enabled ones.
            codes: of the rows that are wanted; empty: all.
        """
        loaded = self._metadata()
        parts = [self._quarantined(loaded, one) for one in self._chosen(loaded, tables)]
        rows = [QuarantineLine(**row) for part in parts for row in part if not codes or row["code"] in codes]
        return _arrow(QuarantineLine, sorted(rows, key=attrgetter("occurred_at")))

    def explain(self, table: str, **key: object) -> dict[str, Any]:
        """What happened to one key: `details` of `gddl explain --json`. Starts a job, as the command does.

        Args:
            key: value by key column; for names that Python can't write, `**{"order id": 7}`.

        Raises:
            FatalError: the code that the command shows, e.g. `KEY_NOT_FOUND`, `EXPLAIN_KEY_INVALID`.
        """
        loaded = self._metadata()
        job_options = JobOptions(action=Explain(key={name: str(value) for name, value in key.items()}))
        request = Request(metadata=self._folder, tables=(table,), options=job_options)
        (result,) = run_tables(self._cli(), loaded, self._chosen(loaded, (table,)), request).results
        if result.error is not None:
            raise FatalError(result.error.code, result.error.message, where=result.table)
        return dict(result.details or {})

    def read(self, table: str) -> pa.Table:
        """The published columns of a table, without rows that are marked as deleted; in memory, whole.

        Raises:
            FatalError: `REPLICA_MISSING`, `PUBLISHED_COLUMN_MISSING`, `PACKAGE_MISSING`.
        """
        pyarrow, loaded = _pyarrow(), self._metadata()
        (spec,) = self._chosen(loaded, (table,))
        found = replica_fields(loaded.roots, spec, self.environ)
        columns = list(published_columns(spec, list(found)))
        marks = found["_gddl"]["type"]["fields"] if "_gddl" in found else []
        is_left = "NOT _gddl['deleted']" if any(mark["name"] == "deleted" for mark in marks) else None
        with opened(Layout.of(loaded.roots, spec).replica, self.environ) as delta:
            return pyarrow.table(delta.scan(columns=columns, predicate=is_left))

    def _quarantined(self, loaded: LoadedMetadata, spec: TableSpec) -> Iterator[dict[str, Any]]:
        pyarrow, names = _pyarrow(), [one.name for one in fields(QuarantineLine) if one.name != "table"]
        with opened(Layout.of(loaded.roots, spec).errors, self.environ) as delta:
            for batch in () if delta is None else unresolved(delta, names):
                yield from ({"table": spec.table, **row} for row in pyarrow.record_batch(batch).to_pylist())

    @property
    def _folder(self) -> str:
        return str(self.metadata or self.environ.get("GDDL_METADATA") or "metadata")

    def _cli(self) -> CliContext:
        return replace(context.real(), environ=self.environ)

    def _metadata(self) -> LoadedMetadata:
        return metadata_folder.read(self._cli(), self._folder)

    @staticmethod
    def _chosen(loaded: LoadedMetadata, names: tuple[str, ...]) -> tuple[TableSpec, ...]:
        bad = [problem.table for problem in loaded.problems if problem.table is not None]
        return select(loaded.tables, names, bad)


def _pyarrow() -> Any:
    """
    Raises:
        FatalError: `PACKAGE_MISSING`.
    """
    with needed_by("Lake", install="airflow-gddl[cli,spark]"):
        return importlib.import_module("pyarrow")


def _arrow(kind: type, lines: Iterable[object]) -> pa.Table:
    """A column for each field of a dataclass, with its type also where there are no rows."""
    pyarrow, hints = _pyarrow(), typing.get_type_hints(kind)
    types = {str: pyarrow.string(), bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(),
             datetime: pyarrow.timestamp("us", "UTC"), list[str]: pyarrow.list_(pyarrow.string()),
             dict[str, float]: pyarrow.map_(pyarrow.string(), pyarrow.float64())}  # fmt: skip
    field_types = {name: hint if hint in types else _without_none(hint) for name, hint in hints.items()}
    schema = pyarrow.schema([(name, types[of]) for name, of in field_types.items()])
    rows = [{name: list(v.items()) if isinstance(v, dict) else v for name, v in vars(one).items()} for one in lines]
    return pyarrow.Table.from_pylist(rows, schema=schema)


def _without_none(hint: Any) -> Any:
    return next(one for one in typing.get_args(hint) if one is not type(None))
