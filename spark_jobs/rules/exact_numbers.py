"""Lossless conversion of numbers and booleans."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from airflow_gddl.contract.sql_types import DecimalType, SqlType
from spark_jobs.rules.text_grammar import BITS, rounded
from spark_jobs.rules.value_text import real_text


def converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    """Converts one value; None for a misfit."""
    if str(source) == "boolean" or str(target) == "boolean":
        return lambda value: _boolean(value, source, target)
    if isinstance(target, DecimalType):
        return lambda value: _to_decimal(value, source, target)
    if str(target) in BITS:
        return lambda value: _to_whole(value, BITS[str(target)])
    if str(target) in ("float", "double"):
        return lambda value: _to_real(value, source, single=str(target) == "float")
    return lambda _: None


def _boolean(value: Any, source: SqlType, target: SqlType) -> Any:
    if str(source) == "boolean":
        return (Decimal(int(value)) if isinstance(target, DecimalType) else int(value)) if _holds_one(target) else None
    return bool(value) if value in (0, 1) else None


def _holds_one(target: SqlType) -> bool:
    return not isinstance(target, DecimalType) or target.precision > target.scale


def _to_decimal(value: Any, source: SqlType, target: DecimalType) -> Decimal | None:
    if isinstance(value, float):
        if not np.isfinite(value):
            return None
        found = rounded(Decimal(real_text(value, single=False)), target)
        back = None if found is None else _as_real(found, single=str(source) == "float")
        return found if back == value else None
    found = rounded(Decimal(value), target)
    return found if found == value else None


def _to_whole(value: Any, bits: int) -> int | None:
    if not np.isfinite(float(value)) or value != int(value):
        return None
    return int(value) if -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1) else None


def _to_real(value: Any, source: SqlType, *, single: bool) -> float | None:
    found = _as_real(value, single=single)
    if isinstance(value, float):
        return found if found == value or (np.isnan(found) and np.isnan(value)) else None
    if isinstance(source, DecimalType):
        back = rounded(Decimal(real_text(found, single=False)), source) if np.isfinite(found) else None
        return found if back == value else None
    return found if np.isfinite(found) and int(found) == value and abs(found) < 2**63 else None


def _as_real(value: Any, *, single: bool) -> float:
    return float(np.float32(float(value))) if single else float(value)
