"""Random histories out of which a key is erased, by runs that die and runs that don't: the others are the oracle's."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from airflow_gddl.contract.spec import JobOptions
from spark_jobs.batch.runtime import Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples, rich
from tests.harness.lake import Lake, read
from tests.harness.strategies import Case, Traits, cases, dense
from tests.oracle import Outcome, Value, replay
from tests.spark.playing import Stage, named
from tests.spark.table_lines import by_engine, by_oracle, differences, of_other_keys

SORTS = {
    "moved": Traits(renames=True, bad_rows=True),
    "parts": Traits(renames=True, partial=True, composite=True),
    "forced": Traits(renames=True, forced=True, variants=False),
}
STEPS = ("remembered", "changes", "before_images", "replica", "history", "tombstones", "errors", "leftovers")


class Died(BaseException):
    """Nothing of the job catches it."""


def erase(stage: Stage, case: Case, key: dict[str, str], dies_after: str | None = None) -> None:
    """Erase the key; with `dies_after`, be gone after that step, if it comes."""

    def observe(step: Step) -> None:
        if step.step == dies_after:
            raise Died

    job = stage.port.tiered(stage.lake.job([case.spec], JobOptions(action="erase", key=key), "erase"))
    runtime = replace(stage.port.runtime, observe=observe)
    try:
        found = attempt(TableRun(job=job, spec=case.spec, runtime=runtime), totals_of(job))
    except Died:
        return
    assert isinstance(found, TableOutcome)
    error = found.result.error
    # A table of which nothing was ever good has no key to erase.
    assert error is None or error.code == "ERASE_NOT_POSSIBLE", error


def chosen_key(case: Case) -> dict[str, Value]:
    """The key that comes most often, moved rows counted for the key before too: the more of it, the more to do.

    Not one with several versions of an update that moved a row to it: what is stored of them is a delete of the key
    before, so that the second is a re-delivery of the first (docs/repair.md). Nor one that alone has the greatest
    sequence, at which versions of a reload begin.
    """
    met: Counter[tuple[Value, ...]] = Counter()
    places: list[tuple[tuple[Value, ...], tuple[Value, ...]]] = []
    moves: dict[tuple[tuple[Value, ...], Value, Value], set[str]] = defaultdict(set)
    for row in (row for run in case.runs for file in run.files for row in file.rows):
        own = tuple(row.get(k) for k in case.spec.keys)
        before = tuple(row.get(f"BI_{k}") or own[at] for at, k in enumerate(case.spec.keys))
        if row.get("transact_seq") is not None and None not in own:
            places.append(((row["transact_seq"], row.get("step") or 0), own))
        if before != own:
            moves[own, row["transact_seq"], row.get("step")].add(repr(row))
        for key in {own, before}:
            met[key] += None not in key
    avoided = {own for (own, _, _), versions in moves.items() if len(versions) > 1}
    if len(highest := {key for place, key in places if place == max(places)[0]}) == 1:
        avoided |= highest
    (key, _), *_ = sorted(met.items(), key=lambda item: (item[0] in avoided, -item[1], repr(item[0])))
    return dict(zip(case.spec.keys, key, strict=True))


def without(outcome: Outcome, key: dict[str, Value]) -> Outcome:
    def other(columns: object) -> bool:
        return any(columns[name] != value for name, value in key.items())  # type: ignore[index]  # a mapping

    return replace(
        outcome,
        replica=tuple(row for row in outcome.replica if other(row.columns)),
        history=tuple(row for row in outcome.history if other(row.columns)),
    )


def judge(stage: Stage, case: Case, runs: int, key: dict[str, Value], when: str) -> None:
    wanted = by_oracle(without(replay(case.spec, case.runs[:runs]), key), case.spec)
    there = by_engine(stage.lake.layout(case.spec))
    named_ = ("replica", "history") if case.spec.history else ("replica",)
    stage.blame(case, when, differences({n: wanted[n] for n in named_}, {n: there[n] for n in named_}))
    forgotten(stage, case, key, when)


def forgotten(stage: Stage, case: Case, key: dict[str, Value], when: str) -> None:
    """No table names the key, in a row of its own or in a before image."""
    layout = stage.lake.layout(case.spec)
    for table in ("changes", "replica", "history", "tombstones"):
        held = [row for row in read(getattr(layout, table)) if all(row[k] == v for k, v in key.items())]
        images = [row for row in read(getattr(layout, table)) if all(row.get(f"BI_{k}") == v for k, v in key.items())]
        stage.blame(case, when, [f"{table} holds {row}" for row in (*held, *images)])


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_other_keys_are_unaffected(sort: str, count: int, tmp_path: Path) -> None:
    found = rich(cases(dense(SORTS[sort])), examples(count))
    deaths = drawn(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), len(found))
    stage = Stage(LocalPort("delta_rs"), Lake(tmp_path), named(found))
    keys = {case.spec.table: chosen_key(case) for case in stage.cases}
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.land(number)
        stage.blame_failures(
            f"in run {number}", stage.lake.results(stage.port, stage.lake.job([c.spec for c in active]))
        )
        for case, (when, step) in zip(stage.cases, deaths, strict=True):
            if case not in active:
                continue
            key = {name: str(value) for name, value in keys[case.spec.table].items()}
            erase(stage, case, key, step if number == when else None)
            if number != when:
                judge(stage, case, number + 1, keys[case.spec.table], f"after run {number}")
    for case in stage.cases:
        erase(stage, case, {name: str(value) for name, value in keys[case.spec.table].items()})
    everything = [case.spec for case in stage.cases]
    stage.blame_failures(
        "verify", stage.lake.results(stage.port, stage.lake.job(everything, JobOptions(action="verify")))
    )
    rebuild(stage)
    twin = Stage(stage.port, Lake(tmp_path / "twin"), stage.cases)
    for number in range(max(len(case.runs) for case in twin.cases)):
        twin.lake.results(twin.port, twin.lake.job([case.spec for case in twin.land(number)]))
    rebuild(twin)
    for case in stage.cases:
        key = keys[case.spec.table]
        wanted, there = (of_other_keys(by_engine(s.lake.layout(case.spec)), key) for s in (twin, stage))
        stage.blame(case, "after a rebuild", differences(wanted, there))
        forgotten(stage, case, key, "after a rebuild")
    assert not stage.wrong, "\n" + stage.report()


def rebuild(stage: Stage) -> None:
    everything = [case.spec for case in stage.cases]
    results = stage.lake.results(
        stage.port, stage.lake.job(everything, JobOptions(reload=True, confirmed=True), "refresh")
    )
    for case in stage.cases:
        error = results[case.spec.table].error
        if error is not None and error.code != "NOTHING_TO_REFRESH":
            stage.blame(case, "refresh", [str(error)])
