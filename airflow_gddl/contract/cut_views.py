"""Views of cuts over histories, as SQL of each reader (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from airflow_gddl.contract.published import (
    END,
    END_GENERATION,
    MARK,
    MARKS,
    START,
    START_GENERATION,
    SqlReader,
    ViewName,
    athena_table,
    by_path,
    quoted,
    text_literal,
)
from airflow_gddl.contract.sql_types import DecimalType, ScalarType, parse_type

_DELETED, _NEWEST = "_gddl__deleted", "_gddl__newest"
"""Columns inside of a view that shows deleted rows."""
_GROWING = ("tinyint", "smallint", "int", "bigint", "float", "double", "date")
"""Scalar types that Delta widens: a column of a view keeps the type of its moment."""
_NAMES = {"athena": {"float": "real"}}
"""Types that a reader has another name for in queries."""
_REGISTERED = "__history"


@dataclass(frozen=True, kw_only=True)
class CutView:
    """The view of a table of a cut: the versions of its history that are valid at the cut's bound.

    A version is valid that began before the bound in the cut's generation, or in an earlier generation, and that has
    not ended so.

    Attributes:
        name: `database.table`, in the catalog or for the reader.
        reader: in whose SQL it is, see `published.SqlReader`.
        catalog: of `gddl.yaml`, in which a job makes it; empty: its statements are printed.
        path: of the history; empty: the view is not proven yet.
        version: of the history at which the view was last found to have the rows of the table's digest.
        keys: key columns.
        marks: rows that were deleted by the moment are shown, too, and `_gddl.deleted` says so.
        generation: of the cut, whose full load it begins with.
        is_stale: a key was erased while the view was proven, so that its digest may be another one.
        bound: sequence, as text; None: the table has no change before. `is_last`: of the last change that the cut has,
            else of the first that it may lack.
    """

    name: str
    reader: str
    catalog: str = ""
    path: str = ""
    version: int | None = None
    keys: tuple[str, ...] = ()
    marks: bool = False
    generation: int = 1
    bound: str | None = None
    is_last: bool = False
    is_stale: bool = False


def view_name(cut: str, table: str) -> str:
    """The name of a view in the database of its table; `table`: the table's name there."""
    return f"{cut}__{table}"


def entry_names(view: CutView) -> tuple[str, ...]:
    """Names of all entries that `view_statements` makes, in lower case: the view's, and of Athena its history's."""
    name = view.name.lower()
    return (name, f"{name}{_REGISTERED}") if view.reader == "athena" else (name,)


def view_statements(view: CutView, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Statements that create a view, in order, without semicolons; none replaces what is there.

    Args:
        columns: names to SQL types.
    """
    name = _name_of(view)
    reader = cast("SqlReader", view.reader)
    if reader == "athena":
        first, relation = athena_table(view.path, name, _REGISTERED, is_new=True)
    else:
        first = (f"CREATE SCHEMA IF NOT EXISTS {quoted(name.database, reader)}",)
        relation = by_path(view.path, reader)
    return (*first, f"CREATE VIEW {_quoted(view)} AS\n{view_query(view, columns, relation)}")


def drop_statements(view: CutView) -> tuple[str, ...]:
    """Statements that undo `view_statements`, but for the schema."""
    dropped = f"DROP VIEW IF EXISTS {_quoted(view)}"
    if view.reader != "athena":
        return (dropped,)
    name = _name_of(view)
    return (dropped, f"DROP TABLE IF EXISTS `{name.database}`.`{name.name}{_REGISTERED}`")


def view_query(view: CutView, columns: Mapping[str, str], relation: str) -> str:
    """The query of a view.

    Args:
        columns: names to SQL types.
        relation: the history as the view's reader names it, quoted.
    """
    reader = cast("SqlReader", view.reader)
    shown = [_column(name, kind, reader) for name, kind in columns.items()]
    began, valid = _began(view, reader), _is_valid(view, reader)
    if not view.marks:
        return f"{_select(shown)}\nFROM {relation}\nWHERE {began}\n  AND {valid}"
    keys = ", ".join(quoted(key, reader) for key in view.keys)
    newest = f"{quoted(START_GENERATION, reader)} DESC, {quoted(START, reader)} DESC NULLS LAST"
    inner = [
        *(quoted(name, reader) for name in columns),
        f"NOT coalesce({valid}, false) AS {quoted(_DELETED, reader)}",
        f"row_number() OVER (PARTITION BY {keys} ORDER BY {newest}) AS {quoted(_NEWEST, reader)}",
    ]
    versions = f"{_select(inner)}\nFROM {relation}\nWHERE {began}"
    marked = f"{_marks(quoted(_DELETED, reader), reader)} AS {quoted(MARKS, reader)}"
    return (
        f"{_select([*shown, marked])}\nFROM (\n{versions}\n) AS {quoted('versions', reader)}\n"
        f"WHERE {quoted(_NEWEST, reader)} = 1"
    )


def _name_of(view: CutView) -> ViewName:
    database, _, name = view.name.partition(".")
    return ViewName(database=database, name=name)


def _quoted(view: CutView) -> str:
    name, reader = _name_of(view), cast("SqlReader", view.reader)
    return f"{quoted(name.database, reader)}.{quoted(name.name, reader)}"


def _select(columns: Sequence[str]) -> str:
    return "SELECT\n  " + ",\n  ".join(columns)


def _column(name: str, kind: str, reader: SqlReader) -> str:
    """A column in the type of the moment, whatever the history's has grown to."""
    parsed, shown = parse_type(kind), quoted(name, reader)
    if not isinstance(parsed, DecimalType) and not (isinstance(parsed, ScalarType) and parsed.name in _GROWING):
        return shown
    return f"CAST({shown} AS {_NAMES.get(reader, {}).get(kind, kind)}) AS {shown}"


def _began(view: CutView, reader: SqlReader) -> str:
    """Whether a version began before the bound; never null of a row that a history holds."""
    generation, start, at = quoted(START_GENERATION, reader), quoted(START, reader), view.generation
    before = f"{start} IS NULL"
    if view.bound is not None:
        before += f" OR {start} {'<=' if view.is_last else '<'} {text_literal(view.bound, reader)}"
    return f"({generation} < {at} OR ({generation} = {at} AND ({before})))"


def _is_valid(view: CutView, reader: SqlReader) -> str:
    """Whether a version that began has not ended before the bound."""
    generation, end, at = quoted(END_GENERATION, reader), quoted(END, reader), view.generation
    if view.bound is None:
        return f"({generation} IS NULL OR {generation} >= {at})"
    after = f"{end} {'>' if view.is_last else '>='} {text_literal(view.bound, reader)}"
    return f"({generation} IS NULL OR {generation} > {at} OR ({generation} = {at} AND {after}))"


def _marks(deleted: str, reader: SqlReader) -> str:
    """`_gddl` with the one field that a view knows."""
    if reader == "duckdb":
        return f"{{'{MARK}': {deleted}}}"
    if reader == "athena":
        return f"CAST(ROW({deleted}) AS ROW({MARK} boolean))"
    return f"named_struct('{MARK}', {deleted})"
