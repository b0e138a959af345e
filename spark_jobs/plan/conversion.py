"""Which scalar values go from one type into another: always without loss, sometimes, or never."""

from __future__ import annotations

from typing import Literal

from airflow_gddl.contract.sql_types import VOID, DecimalType, ScalarType, SqlType

Family = Literal["number", "boolean", "text", "binary", "time"]
_INTEGER_MAX = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
_EXACT_UP_TO = {"float": 2**24, "double": 2**53}
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys((*_INTEGER_MAX, *_EXACT_UP_TO), "number"),
    "boolean": "boolean",
    "string": "text",
    "binary": "binary",
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "time"),
}
_TIMES = {
    "date": ("date", "timestamp", "timestamp_ntz"),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "timestamp_ntz": ("timestamp", "timestamp_ntz"),
}


def lossless(source: SqlType, target: SqlType) -> bool:
    """Every value of the scalar `source` is a value of the scalar `target`: the data need not be read.

    Integers and decimals by range, numbers to `double` and `float` where these are exact, dates to timestamps, and the
    two timestamps into each other, which is exact because every session runs in UTC. Transitive; contains all of
    Delta's widenings. Complex types are only lossless to themselves here; `spark_jobs.plan.merging` handles parts.
    """
    if source in (target, VOID):
        return True
    if isinstance(source, DecimalType):
        return _decimal_into(source, target)
    if not isinstance(source, ScalarType):
        return False
    if source.name in _INTEGER_MAX:
        return _range_into(_INTEGER_MAX[source.name], target)
    if isinstance(target, ScalarType) and source.name in _TIMES:
        return target.name in _TIMES[source.name]
    return source == ScalarType("float") and target == ScalarType("double")


def convertible(source: SqlType, target: SqlType) -> bool:
    """Some values of `source` have an equal in `target`, so that trying them one by one makes sense.

    Text with every scalar, numbers with numbers, times with times, 0 and 1 with booleans. Numbers are never taken for
    times (seconds or microseconds?), nor anything complex for a scalar.
    """
    pair = {_family(source), _family(target)}
    return None not in pair and (len(pair) == 1 or "text" in pair or pair == {"number", "boolean"})


def integral_digits(kind: SqlType) -> int | None:
    """Digits before the point that the widest value of an integer or decimal needs; null for other types."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale
    if isinstance(kind, ScalarType) and kind.name in _INTEGER_MAX:
        return len(str(_INTEGER_MAX[kind.name]))
    return None


def _family(kind: SqlType) -> Family | None:
    if isinstance(kind, DecimalType):
        return "number"
    return _FAMILIES.get(kind.name) if isinstance(kind, ScalarType) else None


def _decimal_into(source: DecimalType, target: SqlType) -> bool:
    if isinstance(target, DecimalType):
        grown = target.scale - source.scale
        return 0 <= grown <= target.precision - source.precision
    return source.scale == 0 and _range_into(10**source.precision - 1, target)


def _range_into(largest: int, target: SqlType) -> bool:
    """Whole numbers up to `largest` in size; below zero integers reach one further, sources and targets alike."""
    if isinstance(target, DecimalType):
        return len(str(largest)) <= target.precision - target.scale
    if not isinstance(target, ScalarType):
        return False
    return largest <= {**_INTEGER_MAX, **_EXACT_UP_TO}.get(target.name, 0)
