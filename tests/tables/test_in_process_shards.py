"""Random histories of a table of several sources without a JVM, with runs that break off after any step."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.batch.runtime import Observer, Step, silent
from spark_jobs.batch.totals import RunTotals
from spark_jobs.job.table_job import act
from tests.harness.asked import options_of
from tests.harness.examples import examples
from tests.harness.lake import Lake
from tests.harness.sharded import Sharded, rows_of

pytestmark = pytest.mark.wide

SHARDS = ("a", "b", "server")
FIELDS = {"sweep_after": "0s", "sweep_limit": 1.0}


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Breaking:
    """An observer that breaks off at the n-th step, as a fault of one source or as the end of the process."""

    at: int
    kill: bool = False
    reported: list[str] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        self.reported.append(step.step)
        if len(self.reported) == self.at:
            raise KilledError if self.kill else ValueError(step.step)


class World:
    """Sources, lake and oracle."""

    def __init__(self, root: Path, **fields: Any) -> None:
        self.landed = Sharded(root, SHARDS, FIELDS | fields)
        self.lake = Lake(root)

    def run(self, observe: Observer = silent, **options: Any) -> JobResult:
        return act(self.lake.table_run(self.landed.spec, options_of(**options), observe=observe), RunTotals())

    def broken(self, observer: Breaking, **options: Any) -> None:
        """A run that may break off."""
        try:
            self.run(observer, **options)
        except (KilledError, ValueError, RuntimeError):
            assert len(observer.reported) >= observer.at

    @property
    def replica(self) -> dict[tuple[str, int], str]:
        return rows_of(self.lake.rows(self.lake.layout(self.landed.spec).replica))

    def versions(self, shard: str) -> set[tuple[Any, ...]]:
        """Of a source in the history."""
        rows = self.lake.rows(self.lake.layout(self.landed.spec).history)
        return _versions([row for row in rows if row["_source"] == shard])

    def alone(self, shard: str) -> set[tuple[Any, ...]]:
        """The same of a table of its own that has the source's files, after one more run."""
        lake = Lake(self.landed.root / f"alone-{shard}")
        spec = TableSpec(
            table="s.t", keys=("id",), sequence_by=("seq",), settle="0s",
            landing=self.landed.spec.shard_landings[shard], **self.landed.fields,
        )  # fmt: skip
        lake.raising(spec)
        return _versions(lake.rows(lake.layout(spec).history))

    @property
    def changes(self) -> int:
        return len(self.lake.rows(self.lake.layout(self.landed.spec).changes))


def _versions(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    names = ("id", "v", "__start_at", "__end_at", "__start_generation", "__end_generation")
    found = [tuple(row[name] for name in names) for row in rows]
    assert len(set(found)) == len(found)
    return set(found)


def full(root: Path, **fields: Any) -> World:
    world = World(root, **fields)
    for shard in SHARDS:
        world.landed.load(shard, dict.fromkeys(range(4), shard))
    world.run()
    return world


@pytest.mark.parametrize(("at", "kill"), [(at, at % 2 == 0) for at in range(1, 22)])
def test_the_next_run_goes_on_whatever_shard_broke_off(at: int, kill: bool, tmp_path: Path) -> None:
    world = full(tmp_path)
    landed = world.landed
    landed.load("a", {1: "reloaded", 7: "new"})
    landed.change("b", ("U", 1, "changed"), ("D", 2, ""))
    landed.change("server", ("D", 3, ""), ("I", 9, "new"))
    before = world.changes
    world.broken(Breaking(at, kill=kill))
    landed.change("b", ("U", 3, "later"), ("I", 2, "back"))
    landed.change("server", ("U", 0, "later"))
    world.run()
    assert world.replica == landed.expected
    assert world.changes == before + 2 + 4 + 3
    assert world.run().status == "skipped"


def test_a_batch_of_one_shard_is_finished_after_others_went_on(tmp_path: Path) -> None:
    """Transactions of one shard say nothing of another's."""
    for at in range(1, 12):
        world = full(tmp_path / str(at))
        world.landed.change("a", ("U", 1, "changed"), ("D", 2, ""))
        world.landed.change("b", ("U", 1, "changed"))
        observer = Breaking(at)
        world.broken(observer)
        world.landed.change("b", ("U", 2, "again"))
        world.run()
        assert world.replica == world.landed.expected, observer.reported


@pytest.mark.parametrize("at", range(2, 36, 3))
def test_a_rebuild_that_broke_off_is_finished_by_the_next_run(at: int, tmp_path: Path) -> None:
    world = full(tmp_path, history=True)
    for shard in SHARDS:
        world.landed.change(shard, ("U", 1, "changed"), ("D", 2, ""))
    world.run()
    versions = {shard: world.versions(shard) for shard in SHARDS}
    DeltaTable(world.lake.layout(world.landed.spec).replica).delete("id = 1")
    world.landed.change("b", ("I", 9, "waits"))
    world.broken(Breaking(at, kill=at % 2 == 0), action="rebuild")
    world.run()
    world.run(action="rebuild")  # of what the first had not begun
    assert world.replica == world.landed.expected
    assert {shard: world.versions(shard) for shard in ("a", "server")} == {s: versions[s] for s in ("a", "server")}
    assert world.versions("b") == versions["b"] | {(9, "waits", 200, None, 1, None)}
    assert world.run().status == "skipped"


@pytest.mark.parametrize("at", range(1, 30))
def test_quarantined_values_of_all_sources_wait_for_their_replay(at: int, tmp_path: Path) -> None:
    """A source makes a column text: the run, or a source in it, breaks off at any step, and the next runs load all."""
    world = World(tmp_path)
    landed = world.landed
    for shard in SHARDS:
        landed.load(shard, {1: "one"})
        landed.land(shard, 1, [("I", 1, "one")], n=pa.array([5], pa.int64()))
        landed.land(shard, 2, [("I", 2, "two")], n=[f"{shard}-2"])
    world.run()
    assert len(world.replica) == len(SHARDS)
    landed.fields = {**FIELDS, "schema_evolution": SchemaEvolution(type_change="text")}
    landed.land("b", 3, [("I", 3, "three")], n=["b-3"])
    world.broken(Breaking(at, kill=at % 2 == 0))
    world.run()
    rows = world.lake.rows(world.lake.layout(landed.spec).replica)
    assert {(row["_source"], row["n"]) for row in rows if row["id"] == 2} == {(s, f"{s}-2") for s in SHARDS}
    assert world.run().status == "skipped"


ROWS = st.dictionaries(st.integers(0, 4), st.sampled_from("xyz"), max_size=4)
CHANGES = st.lists(st.tuples(st.sampled_from("IUD"), st.integers(0, 4), st.sampled_from("uvw")), min_size=1, max_size=4)
EVENTS = st.one_of(st.tuples(st.just("load"), ROWS), st.tuples(st.just("change"), CHANGES))
ROUNDS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(SHARDS), EVENTS, max_size=3), st.integers(0, 25), st.booleans()),
    min_size=2,
    max_size=6,
)


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
@given(ROUNDS)
def test_each_source_has_its_own_history(rounds: list[tuple[dict[str, Any], int, bool]]) -> None:
    """That of a table of its own, whatever breaks off, reloads and truncates."""
    with tempfile.TemporaryDirectory() as folder:
        world = full(Path(folder), history=True, truncate="apply")
        for shard in SHARDS:  # sequences of all sources have one type, which a table of loads alone lacks
            world.landed.change(shard, ("I", 50, "first"))
            world.run()
            world.alone(shard)
        for number, (events, at, kill) in enumerate(rounds):
            for shard, (kind, rows) in events.items():
                if kind == "load":
                    world.landed.load(shard, {**rows, 100: f"load {number}"})
                else:
                    truncate = [("T", 0, "")] if number % 3 == 2 else []
                    world.landed.change(shard, *rows[:2], *truncate, *rows[2:])
            if at:
                world.broken(Breaking(at, kill=kill), action="rebuild" if number % 2 == 1 else "run")
            world.run(action="rebuild" if number % 3 == 1 else "run")
            assert {shard: world.versions(shard) for shard in SHARDS} == {s: world.alone(s) for s in SHARDS}


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(ROUNDS)
def test_histories_give_each_shard_its_own_rows(rounds: list[tuple[dict[str, Any], int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = full(Path(folder))
        for number, (events, at, kill) in enumerate(rounds):
            for shard, (kind, rows) in events.items():
                if kind == "load":
                    world.landed.load(shard, {**rows, 100: f"load {number}"})  # no load equals an earlier one
                else:
                    world.landed.change(shard, *rows)
            if at:
                world.broken(Breaking(at, kill=kill), action="rebuild" if number % 2 == 1 else "run")
            world.run(action="rebuild" if number % 3 == 1 else "run")
            assert world.replica == world.landed.expected
        for run in world.lake.table_run(world.landed.spec).shard_runs():
            context, state = run.context(), run.ledger().state
            assert context.stored.verify(context.stored_schema(state), state.swept, limit=5).equal
