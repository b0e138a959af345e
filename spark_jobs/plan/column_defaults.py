"""Defaults of columns that files state: a converter may write them for null, and earlier rows may have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_gddl.contract.codes import ADDED_COLUMN_DEFAULT, DEFAULT_OR_NULL
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import TableSpec

_SHOWN = 5


@dataclass(frozen=True)
class ColumnDefault:
    """The default of a column in one file.

    Attributes:
        text: the default as JSON.
        alike: rows that have this value in a nullable column; `nulls`: rows that have null there.
    """

    column: str
    text: str
    alike: int = 0
    nulls: int = 0


def of_replaced_nulls(spec: TableSpec, defaults: Iterable[ColumnDefault]) -> tuple[RunWarning, ...]:
    """Values that are the default of a nullable column, where no file shows whether the converter writes it for null.

    The engine that jobs run themselves keeps nulls.
    """
    if spec.options.get("replace_null_with_default") is not None or reads_of(spec) == "log":
        return ()
    defaults = tuple(defaults)
    proven = {one.column for one in defaults if one.nulls}
    doubtful = [one for one in defaults if one.alike and one.column not in proven]
    if not doubtful:
        return ()
    message = (
        "values equal the default of their column, which a converter of Kafka Connect writes for null, too, unless "
        "replace.null.with.default is false; set it to false in the connector (for Avro ignore.default.for.nullables "
        "to true), and name it in the metadata row, options.replace_null_with_default: false; true where "
        "nulls of these columns "
        "may be lost"
    )
    names = tuple(dict.fromkeys(one.column for one in doubtful))
    count = sum(one.alike for one in doubtful)
    return (RunWarning(code=DEFAULT_OR_NULL, message=message, count=count, sample=names[:_SHOWN]),)


def of_added_columns(
    spec: TableSpec, added: Sequence[str], defaults: Iterable[ColumnDefault]
) -> tuple[RunWarning, ...]:
    """Columns that a batch adds to a table, with a default that rows from before may have at the source.

    A log that jobs read themselves has its own checks of changes to the source's table.
    """
    if reads_of(spec) == "log":
        return ()
    by_column = {landed_name(renamed(one.column, spec)).lower(): one for one in defaults if one.text != "null"}
    found = [by_column[name.lower()] for name in added if name.lower() in by_column]
    if not found:
        return ()
    message = (
        "columns were added whose default rows from before may have at the source, while they have null here; take a "
        "new snapshot of the table, or compare it with the source and run "
        f"`gddl resync --differences --table {spec.table}`"
    )
    sample = tuple(f"{one.column} default {one.text}" for one in found)
    return (RunWarning(code=ADDED_COLUMN_DEFAULT, message=message, count=len(found), sample=sample[:_SHOWN]),)
