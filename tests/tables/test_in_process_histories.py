"""Random histories through the pipeline without a JVM: the oracle judges all tables after every run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import DeleteMode, JobOptions, TableSpec
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.places import TaskBounds
from tests.harness.examples import examples
from tests.harness.lake import Lake
from tests.harness.strategies import EVERYTHING, TYPES, Case, Traits, cases, dense, file_of, sequence_value
from tests.oracle import Run, replay
from tests.spark.table_lines import by_engine, by_oracle, counts_of, differences

SORTS = {
    "everything": dense(EVERYTHING),
    "loads": dense(Traits(loads_only=True, most_reloads=3)),
    "reloads": dense(Traits(most_reloads=3, steps=True)),
    "clocks": dense(Traits(clock=True, most_reloads=3, renames=True)),
    "clocks and truncates": dense(Traits(clock=True, most_reloads=2, truncates=True)),
    "conditions": dense(Traits(conditions=True, renames=True, images=True, most_reloads=2)),
    "conditions of parts": dense(Traits(conditions=True, partial=True, variants=False)),
    "truncates": dense(Traits(truncates=True, most_reloads=2)),
    "truncates of parts": dense(Traits(truncates=True, partial=True, forced=True, renames=True, images=True)),
    "truncates without keys": dense(Traits(truncates=True, keyless=True)),
    "reloads without keys": dense(Traits(keyless=True, most_reloads=3)),
    "conditions without keys": dense(Traits(conditions=True, keyless=True)),
}
"""Beside those of `tests/spark/test_histories.py`, which the same pipeline plays, with repairs at the end."""


@pytest.mark.parametrize("sort", SORTS)
def test_pipeline_and_oracle_agree(sort: str) -> None:
    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(st.deferred(lambda: cases(SORTS[sort])))
    def agree(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _play(case, Lake(Path(folder)))

    agree()


@pytest.mark.parametrize("sort", ["everything", "reloads", "truncates of parts"])
def test_tables_whose_files_are_written_again_one_by_one(sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those are that are too large to be in memory as a whole."""
    monkeypatch.setattr(Tables, "bounds", TaskBounds(whole=-1))
    test_pipeline_and_oracle_agree(sort)


def _change(op: str, number: int, **values: object) -> dict[str, object]:
    row = {"Op": op, "transact_seq": sequence_value(number, numbered=False), "id": None, "v": "x", "forced": False}
    return row | values


def _landed(number: int, *rows: dict[str, object]) -> Run:
    return Run((file_of(f"20240101-{number:09d}.parquet", False, rows),))


_INSERT = _landed(1, _change("I", 1, id="a"), _change("I", 9, id="b"))


@pytest.mark.parametrize("delete", ["hard", "soft"])
@pytest.mark.parametrize(
    "runs",
    {
        "of a change at the same sequence, again by a later full load": [
            Run((file_of("LOAD00000001.parquet", True, [{"id": "b", "v": "x"}]),)),
            _landed(1, _change("I", 2, id="a")),
            _landed(2, _change("T", 2), _change("I", 9, id="b")),
            Run((file_of("LOAD00000001.parquet", True, [{"id": "b", "v": "y"}]),)),
            _landed(2, _change("T", 2)),
        ],
        "that come before known ones": [
            Run((file_of("LOAD00000001.parquet", True, [{"id": "a", "v": "x"}]),)),
            _landed(2, _change("T", 4), _change("T", 2)), _landed(3, _change("T", 1)), _landed(4, _change("T", 3)),
        ],
        "that come before known ones, and before their rows": [
            _landed(2, _change("T", 4)), _landed(3, _change("T", 1)),
            Run((file_of("LOAD00000001.parquet", True, [{"id": "a", "v": "x"}]),)),
            _landed(4, _change("I", 2, id="a"), _change("I", 3, id="b"), _change("I", 5, id="c")),
        ],
        "of a forced change that came after one": [
            _INSERT, _landed(2, _change("T", 3)), _landed(3, _change("U", 2, id="a", forced=True)),
            _landed(4, _change("T", 5)),
        ],
        "of a forced change that came after two": [
            _INSERT, _landed(2, _change("T", 3), _change("T", 5)), _landed(3, _change("U", 2, id="a", forced=True)),
            _landed(4, _change("U", 4, id="a")), _landed(5, _change("T", 6)),
        ],
        "of a forced insert of a new key": [
            _INSERT, _landed(2, _change("T", 3), _change("T", 5)), _landed(3, _change("I", 2, id="c", forced=True)),
            _landed(4, _change("T", 4)), _landed(5, _change("U", 5, id="c", v="y")),
        ],
    }.items(),
    ids=lambda case: case[0],
)  # fmt: skip
def test_histories_with_truncates_equal_the_model(
    runs: tuple[str, list[Run]], delete: DeleteMode, tmp_path: Path
) -> None:
    spec = TableSpec(table="s.t", keys=("id",), delete=delete, history=True, truncate="apply", force_update="forced")
    _play(Case(spec, tuple(runs[1]), TYPES), Lake(tmp_path))


def _play(case: Case, lake: Lake) -> None:
    for number, run in enumerate(case.runs):
        lake.land(case.spec, run, case.types)
        result = lake.raising(case.spec)
        outcome = replay(case.spec, case.runs[: number + 1])
        assert differences(by_oracle(outcome, case.spec), by_engine(lake.layout(case.spec))) == []
        assert counts_of(result) == outcome.counts[number]
    context, state = lake.table_run(case.spec).context(), lake.ledger(case.spec).state
    verdict = context.stored.verify(context.stored_schema(state), state.swept, limit=5)
    assert verdict.equal, verdict
    rebuilt = lake.result(case.spec, JobOptions(action=Rebuild()))
    assert rebuilt.error is None or rebuilt.error.code == "NOTHING_TO_REFRESH", rebuilt.error
    outcome = replay(case.spec, case.runs)
    assert differences(by_oracle(outcome, case.spec), by_engine(lake.layout(case.spec))) == [], "rebuilt"
