"""Random histories as a year brings them: files vanish, policies of the row change, repairs run in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.conftest import LocalPort
from tests.harness.examples import examples, rich
from tests.harness.lake import Lake
from tests.harness.strategies import EVERYTHING, Case, Traits, cases
from tests.oracle import DeliveredFile, Run, replay
from tests.spark.playing import Stage, named, verify
from tests.spark.table_lines import by_engine, by_oracle, differences

pytestmark = pytest.mark.deep_on_many

SORTS = {
    "everything": replace(EVERYTHING, removals=True),
    "reloads": Traits(variants=False, ties=False, most_reloads=3, removals=True),
    "partial": Traits(partial=True, renames=True, images=True, removals=True),
    "rescued": Traits(partial=True, rescues=True, removals=True),
    "keyless": Traits(keyless=True, bad_rows=True, removals=True),
}
_POLICIES = ("add", "rescue", "ignore", "fail"), ("widen", "rescue", "text", "fail"), ("keep", "null", "fail")


@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_repairs_between_runs_change_nothing(sort: str, count: int, spark: LocalPort, tmp_path: Path) -> None:
    """The oracle knows of no repair, and of no policy but those of the runs: what it says holds after each of them."""
    stage = Stage(spark, Lake(tmp_path), named(rich(cases(SORTS[sort]), examples(count))))
    chance = Random(sort)  # noqa: S311 - a repeatable choice
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.land(number)
        results = stage.lake.results(stage.port, stage.lake.job([case.spec for case in active], run_id=f"run-{number}"))
        stage.blame_failures(f"in run {number}", results)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, number, results[case.spec.table])
        chosen = [case for case in active if chance.random() < 0.5]
        _repair(stage, chosen, number, lambda case: _with_other_policies(case.spec, chance))
    verify(stage)
    _reload(stage)
    assert not stage.wrong, "\n" + stage.report()


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.deep)])
def test_column_declared_as_text_later_is_as_if_it_always_was(count: int, spark: LocalPort, tmp_path: Path) -> None:
    """Whenever the row declares a column of numbers as text, all tables are those of a row that said so at first."""
    drawn = named(rich(cases(replace(EVERYTHING, declared=False, removals=True)), examples(count)))
    texts = [replace(case, spec=replace(case.spec, options={"types": {"n": "string"}})) for case in drawn]
    chance = Random(count)  # noqa: S311 - a repeatable choice
    since = {case.spec.table: chance.randrange(len(case.runs) + 1) for case in drawn}
    first, later = (Stage(spark, Lake(tmp_path / name), texts) for name in ("first", "later"))
    for number in range(max(len(case.runs) for case in drawn)):
        for stage in (first, later):
            stage.land(number)
        playing = [pair for pair in zip(drawn, texts, strict=True) if number < len(pair[0].runs)]
        _run(first, [text.spec for _, text in playing], number)
        _run(later, [(case if number < since[case.spec.table] else text).spec for case, text in playing], number)
    for stage in (first, later):
        _run(stage, [case.spec for case in texts], 99, JobOptions(action=Rebuild()))
        verify(stage)
        assert not stage.wrong, "\n" + stage.report()
    for case in texts:
        wanted, found = (by_engine(stage.lake.layout(case.spec)) for stage in (first, later))
        later.blame(case, f"text since run {since[case.spec.table]}", differences(wanted, found))
    assert not later.wrong, "\n" + later.report()


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", ["everything", "partial", "rescued"])
def test_changes_keep_the_settings_under_which_they_came(
    sort: str, count: int, spark: LocalPort, tmp_path: Path
) -> None:
    """Each run has other settings, policies among them; rebuilds in between, under yet others, change nothing."""
    chance = Random(sort)  # noqa: S311 - a repeatable choice
    drawn = named(rich(cases(replace(SORTS[sort], forced=True)), examples(count)))
    changing = [
        replace(
            case,
            runs=tuple(
                replace(run, settings=_other_settings(case.spec, chance, number))
                for number, run in enumerate(case.runs)
            ),
        )
        for case in drawn
    ]
    stage = Stage(spark, Lake(tmp_path), changing)
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.land(number)
        rows = [replace(case.spec, **case.runs[number].settings) for case in active]
        results = stage.lake.results(stage.port, stage.lake.job(rows, run_id=f"run-{number}"))
        stage.blame_failures(f"in run {number}", results)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, number, results[case.spec.table])
        verify(stage)
        chosen = [case for case in active if number == len(case.runs) - 1 or chance.random() < 0.3]
        _repair(stage, chosen, number, partial(_with_other_settings, number=number, chance=chance))
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()


def _with_other_settings(case: Case, number: int, chance: Random) -> TableSpec:
    """The row after a run with other settings than those of the run, but for those that say what the history tracks."""
    now, other = case.runs[number].settings, _other_settings(case.spec, chance)
    kept = {name: now[name] for name in ("columns_to_update", "force_update")}
    return _with_other_policies(replace(case.spec, **{**other, **kept}), chance)


def _other_settings(spec: TableSpec, chance: Random, number: int = 0) -> dict[str, Any]:
    """Those that each change keeps; its list of columns and its force are heeded or not."""
    new = chance.choice(("add", "ignore")) if number else "add"
    kind = spec.schema_evolution.type_change
    kind = chance.choice(("widen", "rescue", "text")) if kind == "rescue" else kind
    return {
        "ignore_null_updates": chance.random() < 0.5,
        "columns_to_update": chance.choice((None, spec.columns_to_update)),
        "force_update": chance.choice((None, spec.force_update)),
        "tie_break": chance.choice(("delete_wins", "last_arrival")),
        "schema_evolution": replace(
            spec.schema_evolution, new_column=new, type_change=kind, dropped_column=chance.choice(("keep", "null"))
        ),
    }


def _run(stage: Stage, specs: Sequence[TableSpec], number: int, options: JobOptions | None = None) -> None:
    results = stage.lake.results(stage.port, stage.lake.job(specs, options, f"run-{number}"))
    stage.blame_failures(f"in run {number}", results)


def _reload(stage: Stage) -> None:
    """Load tables from the files that are left: as if these had come in one run, and no others."""
    left = {case.spec.table: _left(case.runs) for case in stage.cases if not _rewritten(case.runs)}
    chosen = [case for case in stage.cases if case.spec.table not in stage.wrong and left.get(case.spec.table)]
    job = stage.lake.job([case.spec for case in chosen], JobOptions(action=Reload(confirmed=True)), "reload")
    stage.blame_failures("in the reload", stage.lake.results(stage.port, job))
    for case in chosen:
        reported = by_oracle(replay(case.spec, [Run(tuple(left[case.spec.table].values()))]), case.spec)
        live = by_engine(stage.lake.layout(case.spec))
        tables = ("replica", "history", "errors")
        found = differences({name: reported[name] for name in tables}, {name: live[name] for name in tables})
        stage.blame(case, "after the reload", found)
    verify(stage)


def _left(runs: Sequence[Run]) -> dict[str, DeliveredFile]:
    """Files that are there after the runs, by name."""
    found: dict[str, DeliveredFile] = {}
    for run in runs:
        found = {name: file for name, file in found.items() if name not in run.removed}
        found |= {file.name: file for file in run.files}
    return found


def _rewritten(runs: Sequence[Run]) -> bool:
    """Whether a file came with other rows under its name."""
    files = [file for run in runs for file in run.files]
    return any(one.name == other.name and one != other for one in files for other in files)


def _repair(stage: Stage, chosen: Sequence[Case], number: int, row: Callable[[Case], TableSpec]) -> None:
    """Rebuild tables whose rows are others now, in what a rebuild doesn't ask."""
    chosen = [case for case in chosen if case.spec.table not in stage.wrong]
    before = {case.spec.table: by_engine(stage.lake.layout(case.spec)) for case in chosen}
    specs = [row(case) for case in chosen]
    results = stage.lake.results(stage.port, stage.lake.job(specs, JobOptions(action=Rebuild()), f"rebuild-{number}"))
    for case in chosen:
        result = results[case.spec.table]
        if result.status == "failed":
            stage.blame(case, f"in the rebuild after run {number}", [str(result.error)])
        else:
            found = differences(before[case.spec.table], by_engine(stage.lake.layout(case.spec)))
            stage.blame(case, f"after the rebuild after run {number}", found)


def _with_other_policies(spec: TableSpec, chance: Random) -> TableSpec:
    new, kind, dropped = (chance.choice(policies) for policies in _POLICIES)
    evolution = SchemaEvolution(new_column=new, type_change=kind, dropped_column=dropped)
    return replace(spec, schema_evolution=evolution)
