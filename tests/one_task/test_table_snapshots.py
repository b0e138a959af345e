"""Snapshots as a source: what each run makes of exports of the whole table, in any order of arrival."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.runtime.state.recording import records_of
from airflow_gddl.runtime.state.table_status import NEEDS_ATTENTION
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import utc_now
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.plan.planned_batch import BatchPlan
from tests.harness.asked import options_of
from tests.harness.lake import Lake

Rows = Mapping[int, str]
FORMAT = {"path_format": "'dt='yyyy-MM-dd"}
SPEC = TableSpec(table="s.t", keys=("id",), mode="snapshots", options=FORMAT, sweep_limit=1.0, settle="0s")


@dataclass(frozen=True)
class Exports:
    """A lake, and the folder in which a table's exports land."""

    lake: Lake
    spec: TableSpec = SPEC

    def limited(self, **limits: int) -> Exports:
        """The same exports, read with smaller limits."""
        return replace(self, lake=replace(self.lake, limits=SourceLimits(**limits)))

    def folder(self, day: int) -> Path:
        return self.lake.root / "landing" / "s" / "t" / f"dt=2024-01-{day:02d}"

    def land(self, day: int, rows: Rows | pa.Table, *, complete: bool = True, files: int = 1) -> None:
        table = rows if isinstance(rows, pa.Table) else table_of(rows)
        self.folder(day).mkdir(parents=True, exist_ok=True)
        share = -(-table.num_rows // files)
        for number in range(files):
            part = table.slice(number * share, share)
            pq.write_table(part, self.folder(day) / f"part-{number:05d}.parquet", row_group_size=2)
        if complete:
            (self.folder(day) / "_SUCCESS").touch()

    def run(self, **options: Any) -> JobResult:
        return self.lake.done(self.spec, options_of(**options))

    def attention(self) -> tuple[str, ...]:
        """Why the status page says so, by the records of the table's runs."""
        record = records_of(self.lake.roots, [self.spec.table], time.time())[self.spec.table]
        return tuple(sorted({*record.newest.warnings}.intersection(NEEDS_ATTENTION)))

    def fault(self, **options: Any) -> str:
        """Code of the error of a run; empty: it had none."""
        outcome = self.lake.run(self.spec, options_of(**options))
        assert isinstance(outcome, TableOutcome)
        return outcome.result.error.code if outcome.result.error is not None else ""

    def replica(self) -> dict[int, str]:
        rows = pa.table(DeltaTable(self.lake.layout(self.spec).replica).scan()).to_pylist()
        return {row["id"]: row["v"] for row in rows if not row["_gddl"].get("deleted")}

    def as_of(self, day: int) -> dict[int, str]:
        """The history's state at the version of a snapshot."""
        version = f"202401{day:02d}{0:09d}"
        rows = pa.table(DeltaTable(self.lake.layout(self.spec).history).scan()).to_pylist()
        found = [
            (row["id"], row["v"])
            for row in rows
            if row["__start_at"] <= version and (row["__end_at"] is None or version < row["__end_at"])
        ]
        assert len(found) == len(dict(found))
        return dict(found)

    def captured(self) -> list[Path]:
        """Change files that are there."""
        return sorted(Path(self.lake.layout(self.spec).landing).glob("*"))


def table_of(rows: Rows) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int32()), "v": pa.array(list(rows.values()), pa.string())})


def codes(result: JobResult) -> dict[str, int]:
    return {warning.code: warning.count for warning in result.warnings}


@pytest.fixture
def exports(tmp_path: Path) -> Exports:
    return Exports(Lake(tmp_path))


def test_only_differences_are_appended(exports: Exports) -> None:
    exports.land(1, {1: "a", 2: "b", 3: "c"}, files=2)
    assert (exports.run().changes_written, exports.replica()) == (3, {1: "a", 2: "b", 3: "c"})
    assert exports.run().status == "skipped"
    exports.land(2, {1: "a", 2: "B", 4: "d"})
    assert (exports.run().changes_written, exports.replica()) == (3, {1: "a", 2: "B", 4: "d"})
    exports.land(3, {4: "d", 2: "B", 1: "a"}, files=3)
    assert exports.run().status == "skipped"
    changes = pa.table(DeltaTable(exports.lake.layout(SPEC).changes).scan()).to_pylist()
    assert sorted((row["AR_H_CHANGE_SEQ"][6:8], row["_gddl"]["op"], row["id"]) for row in changes) == [
        *(("01", "I", n) for n in (1, 2, 3)), ("02", "D", 3), ("02", "I", 4), ("02", "U", 2),
    ]  # fmt: skip
    exports.run()
    assert not exports.captured(), "what was ingested is in the change table"


@pytest.mark.parametrize(("seed", "days"), [(0, 30), *((seed, 10) for seed in range(1, 8))])
def test_snapshots_out_of_order(seed: int, days: int, tmp_path: Path) -> None:
    play_out_of_order(seed, days, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_snapshots_out_of_order(seed: int, tmp_path: Path) -> None:
    play_out_of_order(seed, 30, tmp_path)


def play_out_of_order(seed: int, days: int, tmp_path: Path) -> None:
    """After each run the replica is the newest snapshot that came, and the history at each version that came is it."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    limits = SourceLimits(decoded_bytes=20_000) if seed % 3 == 0 else SourceLimits()
    spec = replace(SPEC, history=True, delete=chosen.choice(["hard", "soft"]))
    exports, landed = Exports(Lake(tmp_path, limits=limits), spec), dict[int, dict[int, str]]()
    truth = dict[int, dict[int, str]]()
    state: dict[int, str] = {}
    for day in range(1, days + 1):
        for key in chosen.sample(range(6), chosen.randint(0, 3)):
            if chosen.random() < 0.4:
                state.pop(key, None)
            else:
                state[key] = chosen.choice("abc")
        truth[day] = dict(state)
    for group in in_groups(chosen.sample(range(1, days + 1), days), chosen):
        for day in group:
            exports.land(day, truth[day], files=chosen.randint(1, 2))
            landed[day] = truth[day]
        assert codes(exports.run()) == {}
        if Path(exports.lake.layout(spec).replica).exists():
            assert exports.replica() == landed[max(landed)]
            assert {day: exports.as_of(day) for day in landed} == landed
        else:
            assert not any(landed.values())


def test_late_snapshots_of_one_run_lack_no_prior_row(exports: Exports) -> None:
    """The change back to snapshot 23 is an update of what 18 has, until 21, of the same run, lacks the key."""
    exports.land(17, {1: "x", 5: "b"})
    exports.land(23, {1: "x", 5: "b"})
    exports.run()
    exports.land(18, {1: "x", 5: "a"})
    exports.land(21, {1: "x"})
    assert codes(exports.run()) == {}
    assert exports.replica() == {1: "x", 5: "b"}


def test_a_row_in_quarantine_is_a_prior_row_that_is_missing(exports: Exports) -> None:
    """Snapshot 4 updates the row of 3, which waits in quarantine, so that its change follows the delete of 2."""
    rule = {"known": Expectation(rule="v <> 'bad'")}
    exports = replace(exports, spec=with_expressions(replace(SPEC, expect=rule)))
    for day, rows in enumerate([{5: "a"}, {}, {5: "bad"}, {5: "b"}], start=1):
        exports.land(day, {1: "x", **rows})
    result = exports.run()
    assert (codes(result), result.quarantined) == ({"UPDATE_WITHOUT_PRIOR": 1}, 1)
    assert exports.replica() == {1: "x", 5: "b"}


def in_groups(days: Sequence[int], chosen: random.Random) -> Iterator[Sequence[int]]:
    at = 0
    while at < len(days):
        count = chosen.choice([1, 3, 6])
        yield days[at : at + count]
        at += count


def test_a_snapshot_that_lacks_too_much_is_held(exports: Exports) -> None:
    exports = replace(exports, spec=replace(SPEC, sweep_limit=0.4))
    exports.land(1, dict.fromkeys(range(10), "a"))
    exports.run()
    exports.land(2, dict.fromkeys(range(5), "b"))
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "lacks 5 of 10 keys" in result.warnings[0].message
    assert exports.replica() == dict.fromkeys(range(10), "a"), "nothing of it is loaded"
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    exports.land(3, dict.fromkeys(range(9), "c"))
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}, "it does not hold the ones after it"
    assert exports.replica() == dict.fromkeys(range(9), "c")
    assert codes(exports.run(action="release", held="sweep")) == {"SNAPSHOT_CLEARED": 1}
    assert exports.replica() == dict.fromkeys(range(9), "c")
    exports.land(4, {})
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}, "an empty one"
    assert codes(exports.run(action="release", held="sweep")) == {"SNAPSHOT_CLEARED": 1}
    assert exports.replica() == {}


@pytest.mark.parametrize(("complete", "last"), [("_SUCCESS", "_SUCCESS"), ("2", "part-1.parquet")])
def test_a_snapshot_that_is_not_complete_waits(complete: str, last: str, tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), replace(SPEC, options={**FORMAT, "complete": complete}))
    exports.land(1, {1: "a"}, complete=False)
    result = exports.run()
    assert (codes(result), result.revisit) == ({"SNAPSHOT_WAITING": 1}, True), "a marker alone starts no run"
    assert result.status == "skipped"
    pq.write_table(table_of({2: "b"}), exports.folder(1) / last)
    assert codes(exports.run()) == {}
    assert exports.replica() == ({1: "a"} if last == complete else {1: "a", 2: "b"})


def test_a_snapshot_settles(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), replace(SPEC, options={**FORMAT, "complete": "settle"}, settle="10m"))
    exports.land(1, {1: "a"}, complete=False)
    assert codes(exports.run()) == {"SNAPSHOT_WAITING": 1}
    later = datetime.now(UTC) + timedelta(minutes=11)
    assert codes(exports.lake.done(exports.spec, clock=lambda: later)) == {}
    assert exports.replica() == {1: "a"}


def test_a_snapshot_that_changes_after_it_was_taken_is_named(exports: Exports) -> None:
    exports.land(1, {1: "a"})
    exports.run()
    exports.land(1, {1: "other"})
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "changed after it was taken" in result.warnings[0].message
    assert exports.replica() == {1: "a"}
    exports.land(1, {1: "a"})
    assert codes(exports.run()) == {"SNAPSHOT_CLEARED": 1}
    assert codes(exports.run()) == {}


def test_a_snapshot_without_its_neighbour_is_held(exports: Exports) -> None:
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    for path in exports.folder(1).iterdir():
        path.unlink()
    exports.land(2, {2: "B"})
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "gddl reload --from-files --table s.t" in result.warnings[0].message
    assert exports.replica() == {1: "a", 2: "b"}
    assert codes(exports.run(action="reload", confirmed=True)) == {"SNAPSHOT_CLEARED": 1}
    assert exports.replica() == {2: "B"}
    exports.land(3, {2: "B", 3: "c"})
    assert codes(exports.run()) == {}
    assert exports.replica() == {2: "B", 3: "c"}


def test_a_reload_of_a_busy_table_forgets_nothing(exports: Exports) -> None:
    exports.land(1, {1: "a"})
    exports.run()
    state = exports.lake.layout(SPEC).state
    with Claim.acquire(Storage(), state, "other", utc_now):
        assert exports.fault(action="reload", confirmed=True) == "TABLE_BUSY"
    assert codes(exports.run()) == {}
    assert exports.run().status == "skipped"


FOREIGN = {
    "delta": ("Delta Lake", ["_delta_log/00000000000000000000.json"]),
    "delta_around": ("Delta Lake", ["../_delta_log/00000000000000000000.json"]),
    "iceberg": ("Iceberg", ["metadata/v1.metadata.json", "metadata/snap-1.avro"]),
    "hudi": ("Hudi", [".hoodie/hoodie.properties"]),
    "deeper": ("Hudi", ["region/.hoodie/timeline/1.commit", "region/part.parquet"]),
    "replaced": ("Databricks", ["_started_1", "_committed_1", "_started_2", "_committed_2"]),
    "broken_off": ("Databricks", ["_started_1"]),
    "broken_off_below": ("Databricks", ["a/_started_1", "a/part.parquet"]),
}
"""What says which of an export's files count, and files of it."""


@pytest.mark.parametrize("name", FOREIGN)
def test_an_export_whose_files_do_not_all_count_is_held(exports: Exports, name: str) -> None:
    """Until only plain files are there; stale ones would bring rows back."""
    what, files = FOREIGN[name]
    exports.land(1, {1: "a"})
    for file in files:
        path = exports.folder(1) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(exports.folder(1) / "part-00000.parquet", path) if path.suffix == ".parquet" else path.touch()
    for _ in range(2):
        (warning,) = exports.run().warnings
        assert (warning.code, what in warning.message) == ("SNAPSHOT_HELD", True)
    assert not Path(exports.lake.layout(SPEC).replica).exists()
    for file in files:
        (exports.folder(1) / file).unlink()
    assert (codes(exports.run()), exports.replica()) == ({"SNAPSHOT_CLEARED": 1}, {1: "a"})


def test_markers_of_one_whole_transaction_hold_nothing(exports: Exports) -> None:
    exports.land(1, {1: "a"})
    for marker in ("_started_12", "_committed_12", "_committed_vacuum34", "_temporary/0/x.parquet", "_metadata"):
        path = exports.folder(1) / marker
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert (codes(exports.run()), exports.replica()) == ({}, {1: "a"})


COUNTRY = {"exclude_columns": ("country",), "absent_columns": ("country",)}


@pytest.mark.parametrize(
    ("fields", "inside", "held"),
    [
        ({}, None, True), ({"keys": ("id", "country")}, None, True), ({"mask": {"country": "hash"}}, None, True),
        ({}, "Country", False), (COUNTRY, None, False), ({"columns": ("id", "v")}, None, False),
        ({"rename": {"country": "land"}}, None, True), ({"rename": {"Country": "land"}}, "country", False),
    ],
)  # fmt: skip
def test_columns_that_folders_have_alone_hold_an_export(
    exports: Exports, fields: dict[str, Any], inside: str | None, held: bool
) -> None:
    exports = replace(exports, spec=replace(SPEC, **fields))
    for country, key in (("DE", 1), ("FR%2FX", 2)):
        rows = table_of({key: country})
        folder = exports.folder(1) / f"country={country}"
        folder.mkdir(parents=True)
        pq.write_table(
            rows if inside is None else rows.append_column(inside, pa.array([country])), folder / "p.parquet"
        )
    (exports.folder(1) / "_SUCCESS").touch()
    result = exports.run()
    assert codes(result) == ({"SNAPSHOT_HELD": 1} if held else {})
    assert "country" in result.warnings[0].message if held else exports.replica() == {1: "DE", 2: "FR%2FX"}


def test_a_held_snapshot_needs_attention_until_it_is_gone(exports: Exports) -> None:
    exports = replace(exports, spec=replace(SPEC, sweep_limit=0.4))
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    exports.land(2, {})
    exports.run()
    assert "SNAPSHOT_HELD" in exports.attention()
    shutil.rmtree(exports.folder(2))
    assert codes(exports.run()) == {"SNAPSHOT_CLEARED": 1}
    assert exports.attention() == ()
    assert codes(exports.run()) == {}


def test_a_late_snapshot_whose_deletes_are_forgotten_is_held(exports: Exports) -> None:
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    exports.land(5, {2: "b"})
    exports.run()
    exports.land(3, {1: "late", 2: "b"})
    later = datetime.now(UTC) + timedelta(days=8)
    result = exports.lake.done(SPEC, clock=lambda: later)
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "tombstone_retention" in result.warnings[0].message
    assert exports.replica() == {2: "b"}


@pytest.mark.parametrize("damage", ["cut", "no_key", "other_key"])
def test_an_unreadable_snapshot_is_held_whole(damage: str, exports: Exports) -> None:
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    rows = {"no_key": pa.table({"v": ["x"]}), "other_key": pa.table({"id": ["one"], "v": ["x"]})}
    exports.land(2, rows.get(damage, table_of({1: "x", 3: "y"})), files=1 if damage in rows else 2)
    path = exports.folder(2) / "part-00000.parquet"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    assert exports.replica() == {1: "a", 2: "b"}
    for path in exports.folder(2).iterdir():
        path.unlink()
    exports.land(2, {1: "x", 3: "y"})
    assert codes(exports.run()) == {"SNAPSHOT_CLEARED": 1}, "it was written again"
    assert exports.replica() == {1: "x", 3: "y"}


def test_columns_come_go_and_change_their_types(exports: Exports) -> None:
    exports.land(1, pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    assert exports.run().changes_written == 2
    exports.land(2, pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"], "n": pa.array([1, 2], pa.int64())}))
    assert exports.run().status == "skipped", "the same values"
    exports.land(3, pa.table({"id": [1, 2], "v": ["a", "b"], "n": [1, 2], "w": [None, "new"]}))
    assert exports.run().changes_written == 1
    exports.land(4, pa.table({"id": [1, 2], "v": ["a", "c"]}))
    assert exports.run().changes_written == 1
    assert exports.replica() == {1: "a", 2: "c"}


@pytest.mark.parametrize("back", ["n", "N"])
def test_a_column_that_comes_back_empty_is_empty(back: str, exports: Exports) -> None:
    """Rows that did not change while it was gone kept their values."""
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"], "n": ["x", "y"]}))
    exports.run()
    exports.land(2, pa.table({"id": [1, 2], "v": ["a", "B"]}))
    exports.run()
    exports.land(4, pa.table({"id": [1, 2], "v": ["a", "B"], back: pa.array([None, None], pa.string())}))
    exports.run()
    exports.land(3, pa.table({"id": [1, 2], "v": ["a", "late"]}))
    exports.run()
    rows = pa.table(DeltaTable(exports.lake.layout(SPEC).replica).scan()).to_pylist()
    assert sorted((row["id"], row["v"], row["n"]) for row in rows) == [(1, "a", None), (2, "B", None)]


@pytest.mark.parametrize("policy", ["keep", "null", "fail"])
def test_a_column_that_a_snapshot_lacks(policy: Literal["keep", "null", "fail"], exports: Exports) -> None:
    evolution = replace(SPEC.schema_evolution, dropped_column=policy)
    exports = replace(exports, spec=replace(SPEC, schema_evolution=evolution))
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "n": ["x", None]})
    exports.land(1, first)
    exports.run()
    exports.land(2, first.drop_columns(["n"]))
    result = exports.run()
    said = {"fail": {"SNAPSHOT_HELD": 1}, "null": {"COLUMN_DROPPED": 1}, "keep": {}}
    assert codes(result) == said[policy]
    assert result.changes_written == (1 if policy == "null" else 0)
    rows = pa.table(DeltaTable(exports.lake.layout(SPEC).replica).scan()).to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {1: None if policy == "null" else "x", 2: None}
    exports.land(3, first)
    exports.run()
    rows = pa.table(DeltaTable(exports.lake.layout(SPEC).replica).scan()).to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {1: "x", 2: None}


def test_deletes_that_were_forgotten_under_a_shorter_retention(exports: Exports) -> None:
    exports = replace(exports, spec=replace(SPEC, tombstone_retention="2d"))
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    exports.land(5, {2: "b"})
    exports.run()
    exports.land(3, {1: "late", 2: "b"})
    later = datetime.now(UTC) + timedelta(days=3)
    assert codes(exports.lake.done(replace(SPEC, tombstone_retention="30d"), clock=lambda: later)) == {
        "SNAPSHOT_HELD": 1
    }
    assert exports.replica() == {2: "b"}


def test_csv_exports_are_compared_as_values(exports: Exports) -> None:
    options = {**FORMAT, "csv_header": True, "types": {"id": "int"}}
    exports = replace(exports, spec=replace(SPEC, options=options))
    for day, text in ((1, "id,v\n1,a\n2,\n"), (2, 'id,v\n1,a\n2,""\n3,c\n'), (3, "id,v\n1,a\n2\n")):
        exports.folder(day).mkdir(parents=True)
        (exports.folder(day) / "orders.csv").write_text(text)
        (exports.folder(day) / "_SUCCESS").touch()
        found = codes(exports.run())
        assert found == ({"SNAPSHOT_HELD": 1} if day == 3 else {}), "a line is cut"
    assert exports.replica() == {1: "a", 2: "", 3: "c"}


def test_a_key_that_comes_twice_is_compared_as_a_whole(exports: Exports) -> None:
    twice = pa.table({"id": pa.array([1, 1, 2], pa.int32()), "v": ["a", "b", "c"]})
    exports.land(1, twice)
    exports.run()
    exports.land(2, twice.take([1, 0, 2]))
    assert exports.run().status == "skipped"
    exports.land(3, {1: "b", 2: "c"})
    exports.run()
    assert exports.replica() == {1: "b", 2: "c"}


def test_the_sweep_limit_is_a_share_of_keys(exports: Exports) -> None:
    """Not of rows, of which a key can have many."""
    exports = replace(exports, spec=replace(SPEC, sweep_limit=0.34))
    exports.land(1, pa.table({"id": [1] * 50 + [2, 3], "v": ["a"] * 52}))
    exports.run()
    exports.land(2, {1: "a"})
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}


def test_files_outside_of_snapshots_are_counted(exports: Exports) -> None:
    exports.land(1, {1: "a"})
    pq.write_table(table_of({2: "b"}), exports.folder(1).parent / "orders.parquet")
    assert codes(exports.run()) == {"FILES_IGNORED": 1}
    assert codes(exports.run()) == {"FILES_IGNORED": 1}


def test_exports_of_a_table_of_changes_are_named_with_the_way_out(exports: Exports) -> None:
    changes = replace(exports, spec=replace(SPEC, mode="changes", options={}))
    changes.land(1, {1: "a"})
    (warning,) = changes.run().warnings
    assert (warning.code, warning.count) == ("FILES_IGNORED", 1)
    assert "write mode: snapshots" in warning.message
    pq.write_table(table_of({}), changes.folder(1).parent / "notes.parquet")
    for path in changes.folder(1).iterdir():
        path.unlink()
    (warning,) = changes.run().warnings
    assert "snapshots" not in warning.message


def test_a_table_of_changes_becomes_one_of_snapshots_by_a_reload(exports: Exports) -> None:
    changes = replace(SPEC, mode="changes", options={})
    exports.lake.load(changes, 3)
    exports.lake.done(changes)
    exports.land(1, {1: "a"})
    assert exports.fault() == "MODE_CHANGED"
    exports.run(action="reload", confirmed=True)
    assert exports.replica() == {1: "a"}


@pytest.mark.parametrize("later", [pa.float64(), pa.decimal128(14, 2), pa.timestamp("us", tz="UTC")])
def test_keys_of_other_types_are_compared_in_parts(later: pa.DataType, exports: Exports) -> None:
    """Equal keys are in one part, whatever the text of their types."""
    exports = exports.limited(decoded_bytes=2_000)
    is_time = pa.types.is_timestamp(later)
    ids = pa.array(range(30), pa.int64()).cast(pa.timestamp("us")) if is_time else pa.array(range(30), pa.int32())
    exports.land(1, pa.table({"id": ids, "v": ["a"] * 30}))
    exports.run()
    exports.land(2, pa.table({"id": ids.cast(later, safe=False), "v": ["a"] * 29 + ["b"]}))
    assert exports.run().changes_written == 1
    assert sorted(exports.replica().values()) == ["a"] * 29 + ["b"]


def test_keys_that_differ_as_text_alone_are_compared_in_parts(exports: Exports) -> None:
    """The delete of 01 comes before the insert of 1, also from another part."""
    exports = replace(
        exports.limited(decoded_bytes=200),
        spec=replace(SPEC, options={**FORMAT, "csv_header": True, "types": {"id": "int"}}),
    )
    for day, text in ((1, "{:03d},a"), (2, "{},b")):
        exports.folder(day).mkdir(parents=True)
        lines = ["id,v", *(text.format(number) for number in range(40))]
        (exports.folder(day) / "orders.csv").write_text("\n".join(lines))
        (exports.folder(day) / "_SUCCESS").touch()
        exports.run()
    assert exports.replica() == dict.fromkeys(range(40), "b")


@pytest.mark.parametrize("complete", ["_SUCCESS", "settle", "1"])
def test_a_last_line_without_its_end_counts_where_the_writer_says_that_it_is_done(
    exports: Exports, complete: str
) -> None:
    spec = replace(SPEC, options={**FORMAT, "csv_header": True, "complete": complete, "types": {"id": "int"}})
    exports = replace(exports, spec=replace(spec, settle="0s"))
    exports.folder(1).mkdir(parents=True)
    (exports.folder(1) / "orders.csv").write_text("id,v\n1,a\n2,b")
    (exports.folder(1) / "_SUCCESS").touch()
    found = exports.run()
    if complete == "_SUCCESS":
        assert exports.replica() == {1: "a", 2: "b"}
    else:
        assert [(w.code, "cut off" in w.message) for w in found.warnings] == [("SNAPSHOT_HELD", True)]


def test_values_that_a_new_type_rounds_are_changes(exports: Exports) -> None:
    exports.land(1, pa.table({"id": [1], "v": ["a"], "n": [0.123]}))
    exports.run()
    exports.land(2, pa.table({"id": [1], "v": ["a"], "n": pa.array([Decimal("0.12")], pa.decimal128(10, 2))}))
    assert exports.run().changes_written == 1


def test_a_late_snapshot_between_late_ones_is_held_if_deletes_are_forgotten(exports: Exports) -> None:
    start = datetime.now(UTC)
    arrivals = [(0.0, 1, {1: "a"}), (0.0, 5, {2: "b"}), (6.0, 4, {1: "a"}), (9.0, 6, {2: "c"}), (10.5, 7, {2: "d"})]
    for at, day, rows in [*arrivals, (11.0, 3, {1: "late"})]:
        exports.land(day, rows)
        time = start + timedelta(days=at)
        result = exports.lake.done(SPEC, clock=lambda time=time: time)
        assert codes(result) == ({"SNAPSHOT_HELD": 1} if day == 3 else {})
    assert exports.replica() == {2: "d"}


@pytest.mark.parametrize("damage", ["types", "twice"])
def test_files_whose_columns_do_not_fit_hold_their_snapshot_alone(damage: str, exports: Exports) -> None:
    exports.land(1, {1: "a"})
    exports.run()
    exports.land(2, {1: "b"})
    twice = pa.Table.from_arrays([pa.array([2]), pa.array(["x"]), pa.array(["y"])], names=["id", "v", "v"])
    pq.write_table(twice if damage == "twice" else pa.table({"id": [2], "v": [5]}), exports.folder(2) / "b.parquet")
    exports.land(3, {1: "c"})
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    assert exports.replica() == {1: "c"}


def test_a_file_that_shows_completeness_is_no_data(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), replace(SPEC, options={**FORMAT, "complete": "manifest.json"}))
    exports.land(1, {1: "a"}, complete=False)
    (exports.folder(1) / "manifest.json").write_text("{}")
    assert codes(exports.run()) == {}
    assert exports.replica() == {1: "a"}


def test_the_format_is_that_of_the_file_not_of_its_folder(exports: Exports) -> None:
    exports.land(1, {})
    (exports.folder(1) / "orders.csv").mkdir()
    pq.write_table(table_of({1: "a"}), exports.folder(1) / "orders.csv" / "part.parquet")
    pq.write_table(table_of({2: "b"}), exports.folder(1) / "orders.csv.parquet")
    assert codes(exports.run()) == {}
    assert exports.replica() == {1: "a", 2: "b"}


def test_a_marker_in_a_folder_below_shows_that_a_part_is_complete(exports: Exports) -> None:
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    (exports.folder(2) / "region=eu").mkdir(parents=True)
    pq.write_table(table_of({1: "a"}), exports.folder(2) / "region=eu" / "part.parquet")
    (exports.folder(2) / "region=eu" / "_SUCCESS").touch()
    assert codes(exports.run()) == {"SNAPSHOT_WAITING": 1}
    assert exports.replica() == {1: "a", 2: "b"}


def test_a_folder_that_is_no_day_is_in_no_snapshot(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), replace(SPEC, options={"path_format": "yyyy/MM/dd"}))
    for name, rows in (("01", {1: "a"}), ("latest", {1: "other", 9: "z"})):
        folder = tmp_path / "landing" / "s" / "t" / "2024" / "01" / name
        folder.mkdir(parents=True)
        pq.write_table(table_of(rows), folder / "part.parquet")
        (folder / "_SUCCESS").touch()
    assert codes(exports.run()) == {"FILES_IGNORED": 1}
    assert exports.replica() == {1: "a"}


def test_a_reload_while_a_batch_is_unfinished_takes_all_snapshots(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    exports.land(2, {1: "a", 2: "B"})
    write_plan = Ledger.write_plan

    def dying(self: Ledger, plan: BatchPlan) -> None:
        write_plan(self, plan)
        raise FatalError("JOB_CANCELLED", "killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "write_plan", dying)
        assert exports.fault() == "JOB_CANCELLED"
    exports.run(action="reload", confirmed=True)
    assert exports.replica() == {1: "a", 2: "B"}


class KilledError(BaseException):
    """In place of a SIGKILL: nothing catches it, and what is stored is all that stays."""


@pytest.mark.parametrize("again", [{}, {"action": "reload", "confirmed": True}])
def test_killed_at_each_write(again: Mapping[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = Exports(Lake(tmp_path / "now")).limited(rows_a_file=2)
    exports.land(1, dict.fromkeys(range(5), "a"))
    exports.land(5, dict.fromkeys(range(1, 6), "a"))
    exports.run()
    exports.land(3, dict.fromkeys(range(2, 7), "b"))
    exports.land(7, dict.fromkeys(range(3, 8), "d"))
    shutil.copytree(tmp_path / "now", tmp_path / "before")
    at = 0
    while is_killed(exports, at, again, monkeypatch):
        if again:
            assert exports.fault() in {"", "RELOAD_UNFINISHED"}
        assert codes(exports.run(**again)) == {}
        assert exports.replica() == dict.fromkeys(range(3, 8), "d")
        shutil.rmtree(tmp_path / "now")
        shutil.copytree(tmp_path / "before", tmp_path / "now")
        at += 6 if again else 3
    assert exports.replica() == dict.fromkeys(range(3, 8), "d")
    assert at > 8


def is_killed(exports: Exports, after: int, options: Mapping[str, bool], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a run ends by a kill after so many writes of the capture."""
    left, write = [after], Storage.write

    def dying(self: Storage, path: str, data: bytes) -> None:
        if "captured" in path or path.endswith("taken.json"):
            left[0] -= 1
            if left[0] == -1:
                raise KilledError
        write(self, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "write", dying)
        try:
            exports.run(**options)
        except KilledError:
            return True
    return False


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"keys": ()}, ("keys",)),
        *(({"options": {**FORMAT, "complete": text}}, ("options", "complete")) for text in ("", "0", "²", "a/b")),
        ({"options": {}}, ("options", "path_format")),
        ({"options": {"path_format": "dd/yyyy"}}, ("options", "path_format")),
        ({"options": {**FORMAT, "complete": "settle"}, "settle": None}, ("settle",)),
        ({"shards": ("a", "b")}, ("shards",)),
        ({"sequence_by": ("n",)}, ("sequence_by",)),
        ({"dialect": "debezium"}, ("dialect",)),
        ({"mode": "changes"}, ("options", "path_format")),
    ],
)
def test_rows_that_cannot_be_are_refused(changes: Mapping[str, Any], place: tuple[str, ...]) -> None:
    assert check_table(SPEC) == ()
    problems = check_table(replace(SPEC, **changes))
    assert place in [problem.path for problem in problems]


def land_csv(exports: Exports, day: int, parts: Sequence[str]) -> None:
    exports.folder(day).mkdir(parents=True)
    for number, text in enumerate(parts):
        (exports.folder(day) / f"part-{number:05d}.csv").write_text(text)
    (exports.folder(day) / "_SUCCESS").touch()


def test_a_part_of_no_lines_is_no_rows_where_files_have_no_header(tmp_path: Path) -> None:
    options = {**FORMAT, "csv_header": False, "csv_columns": ["id", "v"], "types": {"id": "int"}}
    exports = Exports(Lake(tmp_path), replace(SPEC, options=options))
    land_csv(exports, 1, ["", ""])
    exports.run()
    land_csv(exports, 2, ["1,a\n2,b\n", ""])
    assert (codes(exports.run()), exports.replica()) == ({}, {1: "a", 2: "b"})
    land_csv(exports, 3, ["", "2,b\n"])
    assert (codes(exports.run()), exports.replica()) == ({}, {2: "b"})
    land_csv(exports, 4, [""])
    assert (codes(exports.run()), exports.replica()) == ({}, {})
    land_csv(exports, 5, ["3,c\n"])
    assert (codes(exports.run()), exports.replica()) == ({}, {3: "c"})


def test_a_key_of_an_export_without_a_header_is_no_operation(tmp_path: Path) -> None:
    """Keys `d`, `i` and `u` are texts as others. A line of a field more is no row behind an operation."""
    options = {**FORMAT, "csv_header": False, "csv_columns": ["id", "v"], "types": {"id": "string"}}
    exports = Exports(Lake(tmp_path), replace(SPEC, options=options))
    land_csv(exports, 1, ["d,a\n", "i,b\nu,c\n"])
    assert (codes(exports.run()), exports.replica()) == ({}, {"d": "a", "i": "b", "u": "c"})
    land_csv(exports, 2, ["d,d,a\n"])
    assert (codes(exports.run()), exports.replica()) == ({"SNAPSHOT_HELD": 1}, {"d": "a", "i": "b", "u": "c"})


def test_a_snapshot_of_no_lines_is_held_by_the_limit_as_any_other(tmp_path: Path) -> None:
    options = {**FORMAT, "csv_header": False, "csv_columns": ["id", "v"], "types": {"id": "int"}}
    exports = Exports(Lake(tmp_path), replace(SPEC, options=options, sweep_limit=0.34))
    land_csv(exports, 1, ["1,a\n2,b\n"])
    exports.run()
    land_csv(exports, 2, [""])
    assert (codes(exports.run()), exports.replica()) == ({"SNAPSHOT_HELD": 1}, {1: "a", 2: "b"})
    exports.run(action="release", held="sweep")
    assert exports.replica() == {}


def test_a_file_without_the_header_that_it_should_have_holds_its_snapshot(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path), replace(SPEC, options={**FORMAT, "csv_header": True, "types": {"id": "int"}}))
    land_csv(exports, 1, ["id,v\n1,a\n", "id,v\n"])
    assert (codes(exports.run()), exports.replica()) == ({}, {1: "a"})
    land_csv(exports, 2, ["id,v\n1,a\n", ""])
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
