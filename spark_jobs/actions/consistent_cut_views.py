"""Views of a cut: proof that the history shows the cut's rows, and the view in its catalog (docs/as-of.md#views)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.consistent_cut import VIEWS_CODE, Cut, CutTable, cut_path, require_view
from airflow_gddl.contract.cut_views import CutView, view_query
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.extensions import EntryName
from airflow_gddl.contract.published import SqlReader, by_path
from airflow_gddl.stores import Storage
from spark_jobs.actions.consistent_cut_rows import CutRule, Included
from spark_jobs.batch.table_run import TableRun
from spark_jobs.catalogs.catalog_port import CatalogContext, CatalogError, ViewPort, open_catalog
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.rules.arrays import table_codes
from spark_jobs.rules.history import tracked_columns
from spark_jobs.rules.row_digest import rows_digest
from spark_jobs.rules.stored_columns import key_schema
from spark_jobs.rules.view_rows import ViewRule
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.held_rows import HISTORY, HeldRows, report_of, versions
from spark_jobs.tables.table_rows import Source, by_key

_CHANGES = "changes"
CUT, BEGUN = "gddl.cut", "gddl.cut.begun"
"""Properties of a view: the path of the cut's document, and when that cut was begun."""


def planned_view(run: TableRun, entry: CutTable, included: Included, columns: Sequence[Column]) -> CutTable:
    """The table's view, with its columns and its bound, as it has to be proven.

    Args:
        columns: of the table that the cut would be.

    Raises:
        FatalError: `CUT_VIEWS_UNSUPPORTED`.
    """
    spec, view = run.spec, require_view(entry)
    context = run.context()
    schema = context.stored_schema(run.ledger().state)
    if not spec.history or not context.engine.tables.exists(run.layout.history):
        raise _unsupported(run, "it has no history", "set history: true and rebuild it")
    shown = _shown(run, schema, columns)
    bound, is_last = _bound(run, schema, included)
    return replace(
        entry,
        columns={column.name: str(column.type) for column in shown},
        view=replace(
            view, path=run.layout.history, keys=tuple(schema.keys), marks=spec.delete == "soft",
            generation=entry.generation, bound=bound, is_last=is_last,
        ),
    )  # fmt: skip


def _unsupported(run: TableRun, what: str, remedy: str = "") -> FatalError:
    remedy = f"{remedy}, or make tables, --to tables" if remedy else "make tables: --to tables"
    what = f"{run.spec.table} can't be shown by a view: {what}"
    return FatalError(VIEWS_CODE, what, where=run.spec.table, remedy=f"{remedy}; {documented('as-of.md', 'views')}")


def _shown(run: TableRun, schema: TableSchema, columns: Sequence[Column]) -> list[Column]:
    """Columns of the view: keys, and those that open versions. Those that the CDC service adds are left out.

    Raises:
        FatalError: `CUT_VIEWS_UNSUPPORTED`: another column opens no version, or other columns order the changes.
    """
    if run.spec.shards:
        raise _unsupported(run, "its versions are of several sources, each with sequences of its own")
    opening = {*tracked_columns(schema), *schema.keys}
    of_source = [
        one for one in columns if one.name in schema.keys or not (one.name == GDDL or schema.is_technical(one.name))
    ]
    if others := [one.name for one in of_source if one.name not in opening]:
        what = f"changes of {', '.join(others)} open no version of its history (track_history_except)"
        raise _unsupported(run, what)
    if run.spec.sequence_by and not schema.log_positions:
        raise _unsupported(run, "sequence_by orders its changes by columns of its own, not by the source's log")
    return of_source


def _bound(run: TableRun, schema: TableSchema, included: Included) -> tuple[str | None, bool]:
    """`CutView.bound` and `is_last`: of a log the cut's bound; by commit times the newest change of the cut, where the
    order of the log is that of the times.

    Raises:
        FatalError: `CUT_VIEWS_UNSUPPORTED`.
    """
    rule, state = included.rule, run.ledger().state
    if rule.kind == "log":
        return rule.bound, False
    if state.max_sequence is None and rule.generation == 1:
        return None, True
    text = state.floors[rule.generation - 1].sequence
    floor = "" if text is None else json.loads(text)
    if schema.sequence_type != "string" or not isinstance(floor, str):
        raise _unsupported(
            run, f"the sequence of its changes is of the type {schema.sequence_type}, not the log's text"
        )
    last = max(included.highest or "", floor)
    if included.lowest is not None and included.lowest <= last:
        raise _unsupported(run, "around the moment, the order of the source's log is another than that of commit times")
    return last, True


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows of a view, beside those that its table would have.

    Attributes:
        differing: columns in which rows of the two differ, or the mark of deleted rows.
        missing, extra: keys that the table alone has, and the view alone.
    """

    shown: HeldRows
    differing: tuple[str, ...]
    missing: int
    extra: int


def compared(tables: Tables, changes: str, entry: CutTable, rule: CutRule) -> Comparison:
    """The rows of a view beside those that the changes of the cut give.

    Args:
        changes: path of the change table.
    """
    view = ViewRule.of(require_view(entry), entry.columns)
    snapshot = tables.existing(view.view.path)
    sources = {_CHANGES: Source.of(tables.existing(changes), rule.changes), HISTORY: versions(snapshot, view)}
    encoded = by_key(tables, sources, key_schema(rule.schema), _Compare(view, rule))
    reports = [json.loads(report) for report in encoded]
    return Comparison(
        shown=HeldRows.of(reports, snapshot.log.version),
        missing=sum(one["missing"] for one in reports), extra=sum(one["extra"] for one in reports),
        differing=tuple(dict.fromkeys(name for one in reports for name in one["differing"])),
    )  # fmt: skip


@dataclass(frozen=True)
class _Compare:
    """Sent to tasks."""

    view: ViewRule
    rule: CutRule

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        found = self.view.rows(rows[HISTORY])
        return report_of(found, **self._differences(found, self.view.of_table(self.rule.rows(rows[_CHANGES]))))

    def _differences(self, found: pa.Table, made: pa.Table) -> dict[str, object]:
        if rows_digest(made) == rows_digest(found) and made.num_rows == found.num_rows:
            return {"differing": [], "missing": 0, "extra": 0}
        keys = list(self.view.view.keys)
        theirs, mine = table_codes((found, made), keys)
        missing, extra = (int(np.sum(~np.isin(one, other))) for one, other in ((mine, theirs), (theirs, mine)))
        found, made = (
            rows.filter(pa.array(np.isin(one, other)))
            for rows, one, other in ((found, theirs, mine), (made, mine, theirs))
        )
        differing = [name for name in made.column_names if name not in keys and _differ(found, made, [*keys, name])]
        return {"differing": differing, "missing": missing, "extra": extra}


def _differ(one: pa.Table, other: pa.Table, names: Sequence[str]) -> bool:
    """Whether the rows of two tables are not the same in these columns."""
    first, second = table_codes((one, other), names)
    return not np.array_equal(np.sort(first), np.sort(second))


def require_equal(run: TableRun, found: Comparison) -> None:
    """
    Raises:
        FatalError: `CUT_VIEWS_UNSUPPORTED`: the view's rows are not those of the table.
    """
    reasons = [f"rows have other values in {', '.join(found.differing)}"] if found.differing else []
    reasons += [f"it lacks {found.missing} rows"] if found.missing else []
    reasons += [f"it has {found.extra} rows too many"] if found.extra else []
    if reasons:
        raise _unsupported(run, f"its history doesn't show the moment: {'; '.join(reasons)}")


def registered(run: TableRun, cut: Cut, entry: CutTable) -> None:
    """Make the view in its catalog. One of this cut, which a killed command has left, is made anew.

    Raises:
        FatalError: `CUT_EXISTS`: the name is another entry's; the catalog's code.
    """
    view, name = require_view(entry), _name_of(entry)
    query = view_query(view, entry.columns, by_path(view.path, cast("SqlReader", view.reader)))
    comment, properties = f"{cut.source} as of {cut.moment.shown}", _properties(run, cut)
    with _in_catalog(run, view) as port:
        if port.create_view(name, query, comment, properties):
            return
        if _is_own(port, name, properties):
            port.drop_view(name)
            if port.create_view(name, query, comment, properties):
                return
        what = f"the catalog {view.catalog} has another entry {view.name}"
        raise FatalError("CUT_EXISTS", what, where=run.spec.table, remedy="take another --prefix")


def unregistered(run: TableRun, cut: Cut, entry: CutTable) -> bool:
    """Drop the view from its catalog; False: there is none, or the name is another entry's, which stays.

    Raises:
        FatalError: the catalog's code.
    """
    view, name = require_view(entry), _name_of(entry)
    with _in_catalog(run, view) as port:
        if not _is_own(port, name, _properties(run, cut)):
            return False
        port.drop_view(name)
    return True


def is_registered(run: TableRun, cut: Cut, entry: CutTable) -> bool:
    """Whether the view is in its catalog.

    Raises:
        FatalError: the catalog's code.
    """
    with _in_catalog(run, require_view(entry)) as port:
        return _is_own(port, _name_of(entry), _properties(run, cut))


def _name_of(entry: CutTable) -> EntryName:
    database, _, name = require_view(entry).name.partition(".")
    return EntryName(database, name)


def _properties(run: TableRun, cut: Cut) -> dict[str, str]:
    return {CUT: cut_path(run.job.roots.lake, cut.name), BEGUN: cut.begun_at}


def _is_own(port: ViewPort, name: EntryName, properties: Mapping[str, str]) -> bool:
    """Whether an entry is a view that was made with these properties."""
    found = port.view_properties(name)
    return found is not None and properties.items() <= found.items()


@contextmanager
def _in_catalog(run: TableRun, view: CutView) -> Iterator[ViewPort]:
    """The catalog of a view.

    Raises:
        FatalError: with the code of what it refuses.
    """
    catalog = run.job.catalogs.get(view.catalog)
    remedy = "see the catalog's reason, and run the command again"
    if catalog is None:
        what = f"gddl.yaml has no catalog {view.catalog}, which has the view {view.name}"
        raise FatalError("CATALOG_UNKNOWN", what, where=run.spec.table, remedy="add it again")
    runtime = run.runtime
    around = CatalogContext(
        spark=runtime.spark.for_table, environ=runtime.environ, storage=runtime.storage, lake=run.job.roots.lake
    )
    try:
        port = open_catalog(catalog, around)
        if not isinstance(port, ViewPort):
            raise _unsupported(run, f"gddl makes no views in catalogs of the kind {catalog.kind}")
        yield port
    except CatalogError as error:
        raise FatalError(error.code, error.message, where=view.name, remedy=remedy) from error
