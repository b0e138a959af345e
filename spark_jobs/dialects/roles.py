"""The roles of a file's columns by its dialect. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.dialects.base import Dialect
from spark_jobs.plan.types import convertible


@dataclass(frozen=True)
class SortOrder:
    """How a table's changes are ordered.

    Attributes:
        columns: names compared left to right.
        total: false where it is only the commit time, which two changes can share.
    """

    columns: tuple[str, ...]
    total: bool


def match(names: Iterable[str], wanted: str | None) -> str | None:
    """A column's name as delivered: an exact match first, then one ignoring case; null when it is absent."""
    if wanted is None:
        return None
    names = list(names)
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)


def resolve_sequence(
    dialect: Dialect, change_columns: Sequence[Iterable[str]], load_columns: Sequence[Iterable[str]]
) -> SortOrder | None:
    """The columns that order changes: the row's own, else the dialect's choice.

    Args:
        change_columns: column names of each group of change files at hand.
        load_columns: those of LOAD files, used only without change files.

    Returns:
        None while there is only a full load without any such column; the first change files decide.

    Raises:
        FatalError: `SEQUENCE_MISSING` when change files have none.
    """
    spec = dialect.spec
    if spec.sequence_by:
        return SortOrder(spec.sequence_by, total=True)
    usual = (*dialect.total_order, *dialect.commit_times)
    for groups in (change_columns, load_columns):
        for candidates, total in ((dialect.total_order, True), (dialect.commit_times, False)):
            for wanted in candidates:
                if any(match(names, wanted) for names in groups):
                    return SortOrder((wanted,), total)
        if groups is change_columns and change_columns:
            raise FatalError(
                "SEQUENCE_MISSING",
                f"{spec.table}: none of {', '.join(usual)} is in its change files",
                remedy="name the columns that order its changes in `sequence_by`",
            )
    return None


def sequence_type(name: str, types: Iterable[str], dialect: Dialect) -> str:
    """The type a sequence column is kept in, from the types it is delivered with (first one decides).

    Whole numbers are kept as bigint and times as timestamp, so that a narrower file changes nothing. Times that are
    declared as text are kept as text with all digits.
    """
    declared = next((v for k, v in dialect.options.types.items() if k.lower() == name.lower()), None)
    first = declared or next((t for t in types if t != "void"), "string")
    if declared is None and first == "string" and any(name.lower() == t.lower() for t in dialect.commit_times):
        return "timestamp"
    if first in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    return "timestamp" if first.startswith("timestamp") else first


def declared_types(columns: Mapping[str, str], dialect: Dialect) -> dict[str, str]:
    """Columns that have another type in `options.types`: file column to SQL type.

    Text is read as the declared type; a column of any scalar type but bytes becomes text where that is declared. A
    before image has the type of its column.
    """
    declared = {name.lower(): kind for name, kind in dialect.options.types.items()}
    prefix = dialect.spec.before_image_prefix
    images = {} if prefix is None else {(prefix + name).lower(): kind for name, kind in declared.items()}
    known = images | declared
    found = {name: known[name.lower()] for name in columns if name.lower() in known}
    texts = lowered(declared_texts(dialect)) | lowered(images)
    return {
        name: kind for name, kind in found.items()
        if columns[name] == "string" or (name.lower() in texts and _is_text_of(columns[name], kind))
    }  # fmt: skip


def _is_text_of(delivered: str, declared: str) -> bool:
    kind = parse_type(delivered)
    return declared == "string" and delivered not in ("void", "binary") and convertible(kind, parse_type(declared))


def declared_texts(dialect: Dialect) -> tuple[str, ...]:
    """Columns that the row declares to be text; a column of the sequence is so only in `_gddl.sequence`."""
    ordered = lowered(dialect.spec.sequence_by)
    return tuple(n for n, kind in dialect.options.types.items() if kind == "string" and n.lower() not in ordered)


def applied_columns(dialect: Dialect, sequence: Sequence[str]) -> frozenset[str]:
    """Columns, in lower case, without which a row of the quarantine can't be replayed, excluded or not."""
    spec = dialect.spec
    order = sequence if spec.sequence_by else (*sequence, *dialect.total_order)
    named = (*order, *dialect.commit_times, spec.columns_to_update, spec.force_update, dialect.carried)
    return lowered(name for name in named if name is not None)
