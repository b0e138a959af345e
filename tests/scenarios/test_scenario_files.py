"""The scenarios themselves: well formed, written to disk as meant, and in agreement with the oracle. No engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from tests.oracle import Outcome, ReplicaRow, Run, Value, replay
from tests.oracle.model import Change
from tests.scenarios.chosen import ON_MANY, ON_MANY_IN_THE_CORE
from tests.scenarios.comparing import assert_errors, assert_rows
from tests.scenarios.loading import ScenarioError, load_all, parse
from tests.scenarios.model import Expected, Row, Scenario
from tests.scenarios.playing import Variant, arranged, fit
from tests.scenarios.staging import land, oracle_run

SCENARIOS = load_all()
VARIANTS: tuple[Variant, ...] = ("plain", "shuffled", "one_go")
PLAYS = [(s, variant) for variant in VARIANTS for s in fit(SCENARIOS, variant) if s.not_modelled is None]
GOOD = """
rule: ["1"]
title: t
table: {keys: [id]}
runs: [{files: [{name: LOAD00000001.parquet, rows: [{id: 1}]}]}]
expect: {replica: [{id: 1}]}
"""


@pytest.mark.parametrize(
    "rule", [*map(str, sorted({*range(1, 15)} - {13})), "dms", "masks", "history", "expectations", "filter"]
)
def test_every_rule_has_a_scenario(rule: str) -> None:
    """But rule 13, which takes two processes at once."""
    assert [s.name for s in SCENARIOS if rule in s.rule]


def test_every_rule_runs_on_spark() -> None:
    assert {s.name for s in SCENARIOS} > {*ON_MANY, *ON_MANY_IN_THE_CORE}
    played = {rule for s in SCENARIOS if s.name in (*ON_MANY, *ON_MANY_IN_THE_CORE) for rule in s.rule}
    assert played == {rule for s in SCENARIOS for rule in s.rule}


@pytest.mark.parametrize(
    ("good", "bad", "where"),
    [
        ("rows:", "rwos:", "Scenario.runs[0].files[0].rwos"),
        ("replica:", "replika:", "Scenario.expect.replika"),
        ("{keys: [id]}", "{kyes: [id]}", "TableSpec.kyes"),
        ("title: t", "title: t\ntypes: {uid: int32}", "uid"),
        ("title: t", "title: t\ntitle: u", "twice"),
        ("title: t", "title: t\norder_free: true", "one file has no order"),
        ("expect: {", "expect: {result: {stauts: failed}, ", "stauts"),
    ],
)
def test_typo_in_a_scenario_is_reported(good: str, bad: str, where: str) -> None:
    assert parse(GOOD, "g").title == "t"
    with pytest.raises((ScenarioError, FatalError), match=where.replace("[", r"\[")):
        parse(GOOD.replace(good, bad), "b")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenario_files_can_be_landed(scenario: Scenario, tmp_path: Path) -> None:
    for run in scenario.runs:
        land(scenario, run, tmp_path / "t")
        assert all((tmp_path / "t" / file.name).is_file() for file in run.files)


@pytest.mark.parametrize(("scenario", "variant"), PLAYS, ids=str)
def test_oracle_agrees(scenario: Scenario, variant: Variant) -> None:
    runs = [oracle_run(scenario, run) for run in arranged(scenario, variant).runs]
    for number in range(len(runs)):
        last = number == len(runs) - 1
        if last or variant == "plain":
            expected = scenario.expect if last else scenario.expected(number)
            assert_outcome(scenario, expected, runs[: number + 1], compare_counts=variant == "plain")


def assert_outcome(scenario: Scenario, expected: Expected, runs: list[Run], *, compare_counts: bool) -> None:
    outcome = replay(scenario.spec(), runs)
    by = scenario.spec().sequence_by
    if expected.replica is not None and "replica" not in expected.not_by_oracle:
        assert_rows("replica", expected.replica, replica_rows(outcome, by), expected)
    if isinstance(expected.changes, int):
        assert len(outcome.changes) == expected.changes
    elif expected.changes is not None:
        assert_rows("change table", expected.changes, change_rows(outcome, by), expected)
    if expected.history is not None:
        assert_rows("history", expected.history, history_rows(outcome, by), expected)
    if expected.errors is not None:
        errors = [
            {"code": q.code, "column": q.column, "source_file": q.file, "position": q.position}
            for q in (*outcome.settled, *outcome.quarantined)
        ]
        assert_errors([_without_texts(error) for error in expected.errors], errors)
    if expected.columns is not None:
        assert outcome.columns == expected.columns
    if compare_counts:
        assert_expected_counts(expected, outcome)
    reported = {w.code for w in expected.warnings or ()}
    if expected.warnings is not None:
        assert ("SEQUENCE_TIE" in reported) == bool(outcome.ties)


def assert_expected_counts(expected: Expected, outcome: Outcome) -> None:
    counts = outcome.counts[-1]
    known = {
        "rows_read": counts.rows_read,
        "changes_written": counts.appended,
        "redelivered": counts.redelivered,
        "quarantined": counts.quarantined,
    }
    said = {name: value for name, value in expected.result.items() if name in known}
    assert said == {name: known[name] for name in said}


def _without_texts(error: Any) -> Any:
    """The oracle keeps no record of a bad row."""
    return type(error)(code=error.code, column=error.column, file=error.file, position=error.position)


def replica_rows(outcome: Outcome, by: tuple[str, ...]) -> list[Row]:
    return [{**r.columns, "_gddl": {**_meta(r, by), "deleted": r.deleted}} for r in outcome.replica]


def change_rows(outcome: Outcome, by: tuple[str, ...]) -> list[Row]:
    return [{**c.row, "_gddl": _meta(c, by)} for c in outcome.changes]


def history_rows(outcome: Outcome, by: tuple[str, ...]) -> list[Row]:
    return [
        {**v.columns, "__start_at": sequence(v.start, by), "__end_at": sequence(v.end, by),
         "__start_generation": v.start_generation, "__end_generation": v.end_generation,
         "__valid_from": v.valid_from, "__valid_to": v.valid_to}
        for v in outcome.history
    ]  # fmt: skip


def _meta(row: ReplicaRow | Change, by: tuple[str, ...]) -> dict[str, Value]:
    return {"op": row.op, "sequence": sequence(row.sequence, by), "generation": row.generation}


def sequence(parts: tuple[Value, ...] | None, by: tuple[str, ...]) -> Value:
    """One column as its value, several as a struct."""
    if parts is None:
        return None
    return parts[0] if len(parts) == 1 else dict(zip(by, parts, strict=True))
