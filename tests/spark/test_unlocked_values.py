"""Quarantined values of a column that became text are loaded, even if the job dies by SIGKILL before they are."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import write
from tests.harness.sharded import Sharded
from tests.harness.strategies import file_of
from tests.oracle import Run, Value
from tests.spark.children import Ended, killed_at

pytestmark = pytest.mark.deep_on_many

COLUMNS = ("Op", "seq", "id", "n")
NUMBERS, TEXTS = ({"Op": "string", "seq": "int64", "id": "int64", "n": kind} for kind in ("int64", "string"))
REBUILD = JobOptions(action=Rebuild())
DEATHS: Sequence[tuple[str, int, bool]] = (
    ("plan", 1, False),
    ("append", 1, False),
    ("commit", 1, False),
    ("committed", 1, False),
    ("plan", 2, False),
    ("append", 2, False),
    ("replica", 2, False),
    ("commit", 1, True),
    ("committed", 1, True),
    ("plan", 2, True),
    ("append", 2, True),
)
"""Step, its occurrence, and whether a rebuild makes the column text; else a batch does."""


def changes(*rows: tuple[int, int | str, str], name: str) -> Run:
    values: list[dict[str, Value]] = [{"Op": "I", "seq": seq, "id": key, "n": n} for seq, key, n in rows]
    return Run((file_of(name, load=False, rows=values, columns=COLUMNS),))


LOADED = Run((
    file_of("LOAD00000001.parquet", load=True, columns=COLUMNS, rows=[{"Op": None, "seq": None, "id": 1, "n": 5}]),
))  # fmt: skip
MISFIT = changes((1, 2, "A-7"), (2, 3, "8"), name="20240101-000000001.parquet")
NEXT = changes((3, 4, "A-9"), name="20240101-000000002.parquet")
WANTED = [(1, "5"), (2, "A-7"), (3, "8"), (4, "A-9")]


def spec_of(step: str, occurrence: int, rebuilt: bool) -> TableSpec:
    return TableSpec(table=f"s.{step}{occurrence}{'_rebuild' if rebuilt else ''}", keys=("id",), sequence_by=("seq",))


def as_text(spec: TableSpec, rebuilt: bool) -> TableSpec:
    if rebuilt:
        return replace(spec, options={"types": {"n": "string"}})
    return replace(spec, schema_evolution=SchemaEvolution(type_change="text"))


@dataclass(frozen=True)
class Played:
    """Attributes:
    ended: processes that were killed.
    rerun, idle: results by table of the run after the kill, and of one more.
    rows, left: by table, key and value in the replica, and records in quarantine.
    unlocked: by table, the ledger's number in the end.
    """

    ended: Sequence[Ended]
    rerun: Mapping[str, JobResult]
    idle: Mapping[str, JobResult]
    rows: Mapping[str, list[tuple[int, str]]]
    left: Mapping[str, int]
    unlocked: Mapping[str, int]


def before(lake: Lake, port: LocalPort, specs: Sequence[TableSpec]) -> None:
    for run, types in ((LOADED, NUMBERS), (MISFIT, TEXTS)):
        for spec in specs:
            lake.land(spec, run, types)
    done = lake.results(port, lake.job(specs))
    assert {(r.status, r.quarantined) for r in done.values()} == {("succeeded", 1)}, done


def deaths(lake: Lake, port: LocalPort) -> Iterator[Ended]:
    for rebuilt in (False, True):
        for nth in (1, 2):
            dying = [death for death in DEATHS if death[1:] == (nth, rebuilt)]
            specs = [spec_of(*death) for death in dying]
            job = lake.job([as_text(spec, rebuilt) for spec in specs], REBUILD if rebuilt else None, "dies")
            yield killed_at(port.tiered(job), {s.table: death[0] for s, death in zip(specs, dying, strict=True)}, nth)


@pytest.fixture(scope="module")
def played(engine: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> Played:
    lake = Lake(tmp_path_factory.mktemp("unlocked"))
    before(lake, engine, [spec_of(*death) for death in DEATHS])
    specs = [as_text(spec_of(*death), death[2]) for death in DEATHS]
    for spec in specs:
        lake.land(spec, NEXT, TEXTS)
    ended = list(deaths(lake, engine))
    rerun, idle = (lake.results(engine, lake.job(specs, run_id=name)) for name in ("rerun", "idle"))
    return Played(
        ended, rerun, idle,
        rows={s.table: sorted((row["id"], row["n"]) for row in read(lake.layout(s).replica)) for s in specs},
        left={s.table: sum(e["resolved_at"] is None for e in read(lake.layout(s).errors)) for s in specs},
        unlocked={s.table: lake.ledger(s).state.unlocked for s in specs},
    )  # fmt: skip


def test_children_are_killed(played: Played) -> None:
    assert [ended.status for ended in played.ended] == [-signal.SIGKILL] * 4, played.ended


@pytest.mark.parametrize("death", DEATHS, ids=lambda d: f"{d[0]}{d[1]}{'-rebuild' if d[2] else ''}")
def test_next_run_loads_the_values(death: tuple[str, int, bool], played: Played) -> None:
    table = spec_of(*death).table
    assert played.rerun[table].status == "succeeded", played.rerun[table].error
    assert (played.rows[table], played.left[table]) == (WANTED, 0)
    assert (played.unlocked[table], played.idle[table].batches) == (0, 0)


def test_what_stays_in_quarantine_is_tried_once(engine: LocalPort, tmp_path: Path) -> None:
    """A row whose key is no number is none after its other column became text, either."""
    lake, spec = Lake(tmp_path), replace(spec_of("plan", 0, False), options={"types": {"id": "bigint"}})
    before(lake, engine, [spec])
    wrong = changes((4, "five", "1"), name="20240101-000000003.parquet")
    lake.land(spec, wrong, {**TEXTS, "id": "string"})
    (kept,) = lake.results(engine, lake.job([spec])).values()
    assert kept.quarantined == 1
    lake.land(as_text(spec, False), NEXT, TEXTS)
    (became, idle) = (lake.results(engine, lake.job([as_text(spec, False)]))[spec.table] for _ in range(2))
    assert (became.status, became.quarantined, idle.batches) == ("succeeded", 1, 0), became
    left = [e["record"] for e in read(lake.layout(spec).errors) if e["resolved_at"] is None]
    assert (len(left), "five" in left[0]) == (1, True)
    assert lake.ledger(spec).state.unlocked == 0


@pytest.mark.parametrize("unlocking", ["eu", "us"])
def test_values_of_all_sources_are_loaded(unlocking: str, engine: LocalPort, tmp_path: Path) -> None:
    """Before and after the turn of the source whose file makes the column text, and of one that is loaded later."""
    landed, lake = Sharded(tmp_path, ("eu", "us")), Lake(tmp_path)
    for shard in landed.shards:
        number = pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([5], pa.int64())})
        write(landed.folder(shard), "LOAD00000001.parquet", number)
        landed.land(shard, 1, [("I", 2, "")], n=[f"{shard}-2"])
    (result,) = engine.run(lake.job([landed.spec]))
    assert result.quarantined == 2, result
    landed.land(unlocking, 2, [("I", 3, "")], n=["A-3"])
    landed.shards = ("eu", "uk", "us")
    landed.land("uk", 1, [("I", 2, "")], n=["uk-2"])
    spec = replace(landed.spec, schema_evolution=SchemaEvolution(type_change="text"))
    result, idle = (*engine.run(lake.job([spec])), *engine.run(lake.job([spec])))
    assert (result.status, result.quarantined, idle.status, idle.in_quarantine) == ("succeeded", 0, "skipped", None)
    rows = {(r["_source"], r["id"], r["n"]) for r in engine.read(lake.layout(spec).replica)}
    own = {(shard, key, n) for shard in ("eu", "us") for key, n in ((1, "5"), (2, f"{shard}-2"))}
    assert rows == own | {("uk", 2, "uk-2"), (unlocking, 3, "A-3")}


LISTED = ("Op", "seq", "id", "n", "v", "carried")
LISTED_TYPES = {"Op": "string", "seq": "int64", "id": "int64", "n": "string", "v": "string", "carried": "string"}


@pytest.mark.parametrize("forced", [False, True])
def test_a_replayed_change_is_part_of_the_marked_row_of_a_swept_load(
    engine: LocalPort, tmp_path: Path, forced: bool
) -> None:
    """A marked row is what all changes of its load make of it, in whichever order they were readable."""
    spec = TableSpec(
        table="s.t", keys=("id",), sequence_by=("seq",), delete="soft", sweep_after="0s", sweep_limit=1.0,
        columns_to_update="carried", force_update="forced" if forced else None,
    )  # fmt: skip
    lake = Lake(tmp_path, port=engine)
    columns, types = (LISTED, LISTED_TYPES) if not forced else ((*LISTED, "forced"), {**LISTED_TYPES, "forced": "bool"})

    def land(name: str, *rows: Mapping[str, Value]) -> None:
        is_load = name.startswith("LOAD")
        kinds = NUMBERS | {"v": "string"} if is_load else types
        named = ("id", "n", "v") if is_load else columns
        lake.land(spec, Run((file_of(name, load=is_load, rows=list(rows), columns=named),)), kinds)

    def change(seq: int, **values: Value) -> Mapping[str, Value]:
        return dict.fromkeys(columns) | {"Op": "U", "seq": seq, "id": 1, "forced": seq == 1} | values

    land("LOAD00000001.parquet", {"id": 1, "n": 5, "v": "load"}, {"id": 2, "n": 6, "v": "load"})
    lake.done(spec)
    land("20240101-000000001.parquet", change(1, n="few", v="first", carried="n,v"), change(2, v="second", carried="v"))
    lake.done(spec)
    land("LOAD00000001.parquet", {"id": 2, "n": 6, "v": "load"})
    lake.done(spec)
    land("20240101-000000002.parquet", change(3, id=2, n="many", carried="n"))
    lake.done(as_text(spec, rebuilt=False))
    rows = {row["id"]: (row["n"], row["v"], row["_gddl"]["deleted"]) for row in read(lake.layout(spec).replica)}
    assert rows == {1: ("few", "first" if forced else "second", True), 2: ("many", "load", False)}
