"""Plays many scenarios side by side: one lake, and one job for each round of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TierSpec
from tests.harness.asked import options_of
from tests.harness.engine_port import EnginePort
from tests.scenarios import delta_log
from tests.scenarios.model import NOTHING, Expected, Row, RunStep, Scenario
from tests.scenarios.staging import Ground

Variant = Literal["plain", "shuffled", "one_go"]
TIERS = {**DEFAULT_TIERS, "one_file": TierSpec(max_files_per_batch=1)}
TABLES = ("replica", "changes", "history", "errors")


@dataclass(frozen=True)
class Seen:
    """A table after a run.

    Attributes:
        rows: rows of those of the four tables that the scenario speaks of.
        columns: the replica's columns and SQL types.
        commits: commits of each of the four tables so far.
    """

    result: JobResult
    rows: Mapping[str, list[Row]]
    columns: Mapping[str, str]
    commits: Mapping[str, int]


def arranged(scenario: Scenario, variant: Variant) -> Scenario:
    """The scenario with its files dealt otherwise; what a single run must lead to is then no longer said."""
    files = [file for run in scenario.runs for file in run.files]
    if variant == "plain":
        return scenario
    if variant == "one_go":
        return replace(scenario, runs=(RunStep(files=tuple(files)),))
    executor = max(2, len(scenario.runs))
    backwards = files[::-1]
    return replace(scenario, runs=tuple(RunStep(files=tuple(backwards[n::executor])) for n in range(executor)))


def fit(scenarios: Iterable[Scenario], variant: Variant) -> list[Scenario]:
    """The scenarios that can be played so."""
    wanted = {"plain": "name", "shuffled": "order_free", "one_go": "one_go"}[variant]
    return [scenario for scenario in scenarios if getattr(scenario, wanted)]


def play(engine: EnginePort, scenarios: Sequence[Scenario], ground: Ground) -> dict[str, list[Seen]]:
    """All runs of all scenarios, and one more in which nothing is new; by scenario, in order."""
    seen: dict[str, list[Seen]] = {scenario.name: [] for scenario in scenarios}
    for number in range(max(len(s.runs) for s in scenarios)):
        active = [s for s in scenarios if number < len(s.runs)]
        for scenario in active:
            ground.land(scenario, scenario.runs[number])
        for scenario, result in _round(engine, active, number, ground.roots):
            expected = scenario.expected(number)
            seen[scenario.name].append(_observe(engine, scenario, result, expected, ground))
    for scenario, result in _job(engine, scenarios, "idle", None, ground.roots, JobOptions()):
        seen[scenario.name].append(_observe(engine, scenario, result, NOTHING, ground))
    return seen


def _round(
    engine: EnginePort, active: Iterable[Scenario], number: int, roots: Roots
) -> Iterable[tuple[Scenario, JobResult]]:
    """A job for each set of options."""

    def options(scenario: Scenario) -> str:
        return to_json(options_of(**scenario.runs[number].options))

    for _, group in groupby(sorted(active, key=options), key=options):
        members = list(group)
        chosen = options_of(**members[0].runs[number].options)
        yield from _job(engine, members, f"run-{number}", number, roots, chosen)


def _job(
    engine: EnginePort,
    scenarios: Sequence[Scenario],
    run_id: str,
    number: int | None,
    roots: Roots,
    options: JobOptions,
) -> list[tuple[Scenario, JobResult]]:
    specs = tuple(scenario.spec(number) for scenario in scenarios)
    results = engine.run(JobSpec(run_id=run_id, roots=roots, tables=specs, tiers=TIERS, options=options))
    assert [r.table for r in results] == [s.table for s in specs]
    return list(zip(scenarios, results, strict=True))


def _observe(engine: EnginePort, scenario: Scenario, result: JobResult, expected: Expected, ground: Ground) -> Seen:
    layout = Layout.of(ground.roots, scenario.spec())
    paths = {table: getattr(layout, table) for table in TABLES}
    return Seen(
        result=result,
        rows={table: list(engine.read(path)) for table, path in paths.items() if getattr(expected, table) is not None},
        columns=delta_log.columns(ground.storage, layout.replica),
        commits={table: delta_log.commits(ground.storage, path) for table, path in paths.items()},
    )
