"""Delta's type widening: which type a column may be changed to without rewriting its files.

The list is that of Delta 4 (documentation page "Delta type widening", `TypeWidening.isTypeChangeSupported`). Delta
itself changes integers to decimal or double only by `ALTER TABLE`, never by automatic schema evolution; the plan names
every widening, so that the engine can do it that way.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.sql_types import MAX_PRECISION, VOID, DecimalType, ScalarType, SqlType
from spark_jobs.plan.conversion import integral_digits, lossless

_BY_NAME: dict[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
# Parquet stores the small integers as INT32, which its readers turn into decimal(10,0) and wider; INT64: decimal(20,0).
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
_STEPS = tuple(ScalarType(name) for name in ("smallint", "int", "bigint"))
_LAST = (ScalarType("double"), ScalarType("timestamp_ntz"))


def widens(before: SqlType, after: SqlType) -> bool:
    """Delta may change a column of the scalar type `before` to `after`; false for equal types. Transitive."""
    if before == after:
        return False
    if before == VOID:
        return True
    if isinstance(after, DecimalType):
        digits, scale = _delta_digits(before)
        return digits is not None and after.scale >= scale and after.precision - after.scale >= digits
    return (
        isinstance(before, ScalarType) and isinstance(after, ScalarType) and after.name in _BY_NAME.get(before.name, ())
    )


def common_type(table: SqlType, incoming: SqlType) -> SqlType | None:
    """The type a column of scalar type `table` must have to hold every value of scalar type `incoming` too.

    `table` itself where that is enough, else the first that the list allows of: `incoming`, a wider integer, the
    narrowest decimal that holds both, `double`, `timestamp_ntz`. Null when the list allows none.
    """
    if lossless(incoming, table):
        return table
    return next((t for t in _candidates(table, incoming) if widens(table, t) and lossless(incoming, t)), None)


def _candidates(table: SqlType, incoming: SqlType) -> Iterator[SqlType]:
    yield incoming
    yield from _STEPS
    decimal = _common_decimal(table, incoming)
    if decimal is not None:
        yield decimal
    yield from _LAST


def _common_decimal(table: SqlType, incoming: SqlType) -> DecimalType | None:
    before, scale = _delta_digits(table)
    digits = integral_digits(incoming)
    if before is None or digits is None:
        return None
    scale = max(scale, incoming.scale if isinstance(incoming, DecimalType) else 0)
    precision = max(before, digits) + scale
    return DecimalType(precision, scale) if precision <= MAX_PRECISION else None


def _delta_digits(kind: SqlType) -> tuple[int | None, int]:
    """Integral digits that Delta asks of a decimal which follows this type (null: none may), and its scale."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return (_DIGITS.get(kind.name) if isinstance(kind, ScalarType) else None), 0


def widened_number(stored: SqlType, incoming: SqlType) -> SqlType:
    """The type that holds numbers of both; `stored` where it is no number, or Delta's list allows none."""
    if isinstance(stored, DecimalType) or (isinstance(stored, ScalarType) and stored.name in (*_DIGITS, "float")):
        return common_type(stored, incoming) or stored
    return stored
