"""Tiers: the contract's defaults, with changes and additions of `gddl.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_gddl.contract import durations, sizes
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.metadata.validation import FieldShape

# A tier's name goes into the name of its Airflow pool.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
AMOUNTS = ("memory", "delta_rs_memory")
DURATIONS = ("delta_rs_timeout", "run_timeout")
COUNTS = (
    "tables_per_job",
    "max_files_per_batch",
    "max_bytes_per_batch",
    "max_inflated_bytes",
    "max_inflation",
    "delta_rs_max_bytes",
    "cores",
    "workers",
    "slots",
)
TIER = FieldShape(
    TierSpec,
    remedies={**dict.fromkeys(AMOUNTS, sizes.remedy), **dict.fromkeys(DURATIONS, durations.remedy)},
)


def build_tiers(section: Mapping[str, Any]) -> tuple[dict[str, TierSpec], tuple[SpecProblem, ...]]:
    """All tiers by name, and what is wrong with the section (paths start with `tiers`)."""
    tiers = dict(DEFAULT_TIERS)
    problems: list[SpecProblem] = []
    for name, changes in section.items():
        built = _tier(name, {} if changes is None else changes)
        if isinstance(built, TierSpec):
            tiers[name] = built
            problems += (replace(problem, path=("tiers", name, *problem.path)) for problem in _check(built))
        else:
            problems += built
    return tiers, tuple(problems)


def _tier(name: str, changes: Any) -> TierSpec | tuple[SpecProblem, ...]:
    path = ("tiers", name)
    if not _NAME.fullmatch(name):
        return (SpecProblem("TIER_NAME_INVALID", path, name, "not a tier's name", "use letters, digits, _ and -"),)
    if not isinstance(changes, Mapping):
        return (SpecProblem("FIELD_TYPE", path, changes, "must be a mapping", "write e.g. {tables_per_job: 50}"),)
    base = plain(DEFAULT_TIERS.get(name, TierSpec()))
    return TIER.build({**base, **changes}, path)


def _check(tier: TierSpec) -> Iterator[SpecProblem]:
    for name in COUNTS:
        if (value := getattr(tier, name)) is not None and value < 1:
            yield SpecProblem("FIELD_VALUE", (name,), value, "must be 1 or more", "write a number from 1 up")
    yield from _wrong_amounts(tier)
    if tier.delta_merge and tier.engine != "spark":
        yield SpecProblem("FIELD_VALUE", ("delta_merge",), True, "is of engine spark alone", "set engine: spark, too")
    if "pod_override" in tier.executor_config:
        remedy = "set it in `on_dag` of build_dags"
        yield SpecProblem("FIELD_VALUE", ("executor_config",), "pod_override", "a Python object", remedy)
    if tier.queue is not None and not tier.queue.strip():
        yield SpecProblem("FIELD_VALUE", ("queue",), tier.queue, "is no name", "write a queue's name, or null")
    if tier.tables_per_job <= 1 and tier.airflow not in (None, "table"):
        what = "a tier of one table a job has no packs: each table has its own DAG"
        yield SpecProblem("FIELD_VALUE", ("airflow",), tier.airflow, what, "set tables_per_job above 1")


def _wrong_amounts(tier: TierSpec) -> Iterator[SpecProblem]:
    for name in AMOUNTS:
        if not sizes.MEMORY.fullmatch(value := getattr(tier, name)):
            yield SpecProblem("FIELD_VALUE", (name,), value, "not an amount of memory", sizes.remedy(value))
    for name in DURATIONS:
        if not durations.is_duration(value := getattr(tier, name)):
            yield SpecProblem("DURATION_INVALID", (name,), value, "not a duration", durations.remedy(value))
