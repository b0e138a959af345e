"""Random histories out of which a key is erased, by runs that die and runs that don't: the others are the oracle's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Erase, Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.runtime import Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples, rich
from tests.harness.lake import Lake, read
from tests.harness.strategies import TYPES, Case, Traits, cases, dense, file_of, sequence_value
from tests.oracle import DeliveredFile, Outcome, Run, Value, replay
from tests.oracle.model import rank
from tests.spark.playing import Stage, named
from tests.spark.table_lines import by_engine, by_oracle, differences, of_other_keys

pytestmark = pytest.mark.wide

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

    job = stage.port.tiered(stage.lake.job([case.spec], JobOptions(action=Erase(key=key)), "erase"))
    runtime = replace(stage.port.runtime, observe=observe)
    try:
        found = attempt(TableRun(job=job, spec=case.spec, runtime=runtime), totals_of(job))
    except Died:
        return
    assert isinstance(found, TableOutcome)
    error = found.result.error
    # A table of which nothing was ever good has no key to erase.
    assert error is None or error.code == "TABLE_WITHOUT_KEYS", error


def chosen_key(case: Case) -> dict[str, Value]:
    """The key that comes most often, moved rows counted for the key before too: the more of it, the more to do.

    Not one with several versions of an update that moved a row to it: what is stored of them is a delete of the key
    before, so that the second is a re-delivery of the first (docs/repair.md). Nor one that alone has the greatest
    sequence of the files that are left, at which versions of a reload begin.
    """
    met: Counter[tuple[Value, ...]] = Counter()
    moves: dict[tuple[tuple[Value, ...], Value, Value], set[str]] = defaultdict(set)
    for row in (row for run in case.runs for file in run.files for row in file.rows):
        own = tuple(row.get(k) for k in case.spec.keys)
        before = tuple(row.get(f"BI_{k}") or own[at] for at, k in enumerate(case.spec.keys))
        if before != own:
            moves[own, row["transact_seq"], row.get("step")].add(repr(row))
        for key in {own, before}:
            met[key] += None not in key
    avoided = {own for (own, _, _), versions in moves.items() if len(versions) > 1}
    if len(highest := keys_at_the_end(case)) == 1:
        avoided |= highest
    (key, _), *_ = sorted(met.items(), key=lambda item: (item[0] in avoided, -item[1], repr(item[0])))
    return dict(zip(case.spec.keys, key, strict=True))


def keys_at_the_end(case: Case) -> set[tuple[Value, ...]]:
    """Keys of the good changes with the greatest sequence, of the files that a reload reads."""
    files: dict[str, DeliveredFile] = {}
    for run in case.runs:
        files = {name: file for name, file in files.items() if name not in run.removed}
        files |= {file.name: file for file in run.files}
    changes = replay(case.spec, [Run(tuple(files.values()))]).changes
    places = [(rank(change.sequence), change.key) for change in changes if change.op != "R"]
    highest = max((place for place, _ in places), default=None)
    return {key for place, key in places if place == highest}


def sweeping(case: Case) -> Case:
    """The case with each sweep as soon as it is due: an erased row has no part in the share that `sweep_limit` bounds,
    and the oracle knows of no erasure.
    """
    return replace(case, spec=replace(case.spec, sweep_limit=1.0))


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
    found = [sweeping(case) for case in rich(cases(dense(SORTS[sort])), examples(count))]
    deaths = drawn(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), len(found))
    play(found, deaths, tmp_path)


def test_a_bad_row_is_no_place_at_which_a_reload_begins(tmp_path: Path) -> None:
    """The key with the greatest sequence is not erased, though a row in quarantine has a greater one."""

    def row(op: str, number: int, key: str) -> dict[str, Value]:
        return {"Op": op, "transact_seq": sequence_value(number, numbered=False), "id": key, "v": "x", "BI_id": None}

    def load(value: str) -> DeliveredFile:
        return file_of("LOAD00000001.parquet", True, [{"id": "a", "v": value}])

    changes = [row("I", 5, "c"), row("U", 5, "c"), row("D", 5, "c"), row("I", 2, "b"), row("X", 6, "a")]
    spec = TableSpec(table="s.t", keys=("id",), history=True, before_image_prefix="BI_", sweep_after="0s")
    runs = (Run((load("x"), file_of("20240101-000000001.parquet", False, changes))), Run((load("y"),)))
    case = sweeping(Case(spec, runs, TYPES))
    assert chosen_key(case) == {"id": "a"}
    play([case], [(2, STEPS[0])], tmp_path)


def play(found: Sequence[Case], deaths: Sequence[tuple[int, str]], tmp_path: Path) -> None:
    """
    Args:
        deaths: for each case the run after which the erasure dies, and the step after which it does.
    """
    stage = Stage(LocalPort("one"), Lake(tmp_path), named(found))
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
    verified = stage.lake.results(stage.port, stage.lake.job(everything, JobOptions(action=Verify())))
    held = {case.spec.table for case in stage.cases if stage.lake.ledger(case.spec).state.held}
    stage.blame_failures("verify", {table: one for table, one in verified.items() if table not in held})
    assert {verified[table].details["verdict"] for table in held} <= {"held"}
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
        stage.port, stage.lake.job(everything, JobOptions(action=Reload(confirmed=True)), "refresh")
    )
    for case in stage.cases:
        error = results[case.spec.table].error
        if error is not None and error.code != "NOTHING_TO_REFRESH":
            stage.blame(case, "refresh", [str(error)])
