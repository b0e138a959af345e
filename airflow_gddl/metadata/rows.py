"""Builds a spec from a row and its layers, or collects its problems."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.metadata.checks import check_spec
from airflow_gddl.metadata.identities import resolved
from airflow_gddl.metadata.keys import Keys, KeysEntry, conflict
from airflow_gddl.metadata.layers import Layer, merged, report
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.screen import screen
from airflow_gddl.metadata.shards import with_shards
from airflow_gddl.metadata.sources import Source
from airflow_gddl.metadata.table_files import Row
from airflow_gddl.metadata.validation import TABLE, options_of

MAX_PROBLEMS = 50
"""Maximum number of problems reported for a row."""
# Placeholders for invalid fields, so that the others can be checked; valid with any other values.
_PLACEHOLDERS = {"table": "schema.name", "keys": ["(placeholder)"]}


def assess(
    row: Row, keys: Keys, tiers: Collection[str], sources: Mapping[str, Source]
) -> TableSpec | tuple[Problem, ...]:
    """The spec a row makes, defaults filled in; else all its problems, each at the place that set the value."""
    entry = keys.of(row.table, row.identity)
    layers = (row.own, *row.below) if entry is None else (row.own, entry.layer, *row.below)
    found = screen(row.own.values) or _check(row, layers, entry, tiers)
    if isinstance(found, TableSpec):
        named = resolved(found, None if found.shards else row.landing)
        found = with_shards(named, sources) if isinstance(named, TableSpec) else (named,)
        if isinstance(found, TableSpec):
            return found
    return tuple(report(problem, layers, row.shown) for problem in found[:MAX_PROBLEMS])


def _check(
    row: Row, layers: tuple[Layer, ...], entry: KeysEntry | None, tiers: Collection[str]
) -> TableSpec | tuple[SpecProblem, ...]:
    values = merged(layers)
    of_keys = conflict(entry, row.own.values.get("keys")) if entry is not None else None
    if entry is not None and values.get("keys") is None:
        values["keys"] = list(entry.keys)
    elif values.get("keys") is None:
        message = "no keys, neither in the row nor in a keys file"
        remedy = "add keys: [column, ...] to the row; [] makes an append-only replica"
        of_keys = SpecProblem("KEYS_MISSING", ("keys",), None, message, remedy)
    problems: tuple[SpecProblem, ...] = () if of_keys is None else (of_keys,)
    if problems:
        values["keys"] = _PLACEHOLDERS["keys"]
    built = TABLE.build(values)
    problems += built if isinstance(built, tuple) else ()
    spec = _of_sound_fields(values, problems) if isinstance(built, tuple) else built
    if spec is not None:
        spec = _with_lists(spec)
        problems += _beside(check_spec(spec, tiers), problems)
    return spec if spec is not None and not problems else problems


def _of_sound_fields(values: Mapping[str, Any], problems: Collection[SpecProblem]) -> TableSpec | None:
    """The spec without the fields that have problems; null where it can't be built without them."""
    wrong = {problem.path[0] for problem in problems if problem.path}
    sound = {name: value for name, value in values.items() if name not in wrong}
    built = TABLE.build({**_PLACEHOLDERS, **sound})
    return built if isinstance(built, TableSpec) else None


def _beside(found: Collection[SpecProblem], known: Collection[SpecProblem]) -> tuple[SpecProblem, ...]:
    """Problems of fields that have none yet; options are those of a dialect."""
    wrong = {problem.path[0] for problem in known if problem.path}
    wrong |= {"options"} if "dialect" in wrong else set()
    return tuple(problem for problem in found if problem.path[0] not in wrong)


def _with_lists(spec: TableSpec) -> TableSpec:
    """The spec with a single text of an option as a list of one, where the dialect expects a list."""
    if not spec.options:
        return spec
    try:
        return replace(spec, options=options_of(spec.dialect).listed(spec.options))
    except FatalError:
        return spec  # `check_spec` reports the dialect
