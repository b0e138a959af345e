"""A row to a `TableSpec`, or to all that is wrong with it."""

from __future__ import annotations

from collections.abc import Container

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem, spec_problem
from airflow_gddl.metadata.checks import check_spec
from airflow_gddl.metadata.keys import Keys, conflict
from airflow_gddl.metadata.layers import Layer, merged, report
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.screen import screen
from airflow_gddl.metadata.table_files import Row
from airflow_gddl.metadata.validation import TABLE

MAX_PROBLEMS = 50
"""A row may be any garbage; more than this helps nobody."""


def assess(row: Row, keys: Keys, tiers: Container[str]) -> TableSpec | tuple[Problem, ...]:
    """The spec a row makes, defaults filled in; else its problems, each at the place that set the value."""
    layers = _layers(row, keys)
    found = screen(row.own.values) or _check(row, layers, keys, tiers)
    if isinstance(found, TableSpec):
        return found
    return tuple(report(problem, layers, row.table) for problem in found[:MAX_PROBLEMS])


def _layers(row: Row, keys: Keys) -> tuple[Layer, ...]:
    entry = keys.of(row.table)
    return (row.own, *row.below) if entry is None else (row.own, entry.layer, *row.below)


def _check(
    row: Row, layers: tuple[Layer, ...], keys: Keys, tiers: Container[str]
) -> TableSpec | tuple[SpecProblem, ...]:
    entry = keys.of(row.table)
    if entry is not None and (problem := conflict(entry, row.own.values.get("keys"))):
        return (problem,)
    values = merged(layers)
    if "keys" not in values:
        message = "no keys, neither in the row nor in a keys file"
        remedy = "add keys: [column, ...] to the row; [] makes an append-only replica"
        missing = (spec_problem("KEYS_MISSING", ("keys",), None, message, remedy),)
        others = TABLE.build({**values, "keys": []})
        return missing if isinstance(others, TableSpec) else (*missing, *others)
    spec = TABLE.build(values)
    return spec if isinstance(spec, tuple) else check_spec(spec, tiers) or spec
