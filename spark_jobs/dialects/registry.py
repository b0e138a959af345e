"""The dialect of a row, loaded on first use."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from airflow_gddl.contract import codec, dialects
from airflow_gddl.contract.spec import TableSpec, TierSpec
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.probed import ReadBounds


def dialect_of(spec: TableSpec, tier: TierSpec | None = None) -> Dialect:
    """
    Args:
        tier: bounds what files may hold; null: those of a small one.

    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`; `SPEC_INVALID` for options that the dialect does not have.
    """
    found = dialects.registered(spec.dialect)
    options = codec.decode(dialects.load(found.options), dict(spec.options))
    reading = cast("type[Dialect]", dialects.load(found.reading))
    if spec.keys and spec.columns_to_update is None:
        spec = replace(spec, columns_to_update=reading.carried)
    tier = tier or TierSpec()
    bounds = ReadBounds(most=tier.inflated_bytes, ratio=tier.max_inflation)
    return replace(reading(spec, options), bounds=bounds)
