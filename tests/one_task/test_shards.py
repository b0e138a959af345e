"""Tables of several sources: one replica, in which each source has its own files, generations, sweeps and deletes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch.totals import TableOutcome
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.harness.sharded import Sharded as Landed
from tests.harness.sharded import rows_of
from tests.one_task.commands import gddl, gddl_process


@dataclass
class Sharded(Landed):
    """A lake with the table."""

    @property
    def lake(self) -> Lake:
        return Lake(self.root)

    def run(self, **options: Any) -> JobResult:
        found = self.lake.run(self.spec, options_of(**options))
        assert isinstance(found, TableOutcome), found
        return found.result

    def done(self, **options: Any) -> JobResult:
        result = self.run(**options)
        assert result.error is None, result.error
        return result

    def refused(self, **options: Any) -> str:
        error = self.run(**options).error
        assert error is not None
        return error.code

    @property
    def replica(self) -> dict[tuple[str, int], str]:
        return rows_of(pa.table(DeltaTable(self.lake.layout(self.spec).replica).scan()).to_pylist())


TWO = ("crm_eu", "crm_us")
FIVE = ("a", "b", "c.d", "e-f", "server")


@pytest.mark.parametrize("shards", [TWO, FIVE], ids=["two", "five"])
def test_shards_with_the_same_keys_make_one_exact_replica(shards: Sequence[str], tmp_path: Path) -> None:
    one = Sharded(tmp_path, shards)
    for number, shard in enumerate(shards):
        one.load(shard, {key: f"{shard} {key}" for key in range(3 + number)})
    result = one.done()
    assert (result.status, result.mode, result.main.rows) == ("succeeded", "initial", len(one.expected))
    assert one.replica == one.expected
    for shard in shards[::2]:
        one.change(shard, ("U", 0, f"{shard} changed"), ("D", 1, ""), ("I", 99, f"{shard} new"))
    result = one.done()
    assert (result.main.updated, result.main.deleted) == (len(shards[::2]), len(shards[::2]))
    assert result.main.rows == len(one.expected)
    assert one.replica == one.expected
    assert one.done().status == "skipped"


def test_columns_begin_with_the_source(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO)
    one.load("crm_eu", {1: "a"})
    one.done()
    schema = DeltaTable(one.lake.layout(one.spec).replica).schema()
    assert [f.name for f in schema.fields] == ["_source", "id", "v", "_gddl"]


def test_a_reload_of_one_shard_sweeps_its_rows_alone(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO, fields={"sweep_after": "0s", "sweep_limit": 0.5})
    for shard in TWO:
        one.load(shard, dict.fromkeys(range(10), shard))
    one.done()
    one.change("crm_us", ("U", 3, "newer"))
    one.done()
    one.load("crm_eu", dict.fromkeys(range(4, 12), "reloaded"))
    result = one.done()
    assert result.main.deleted == 4
    assert one.replica == one.expected
    one.load("crm_us", {1: "almost all gone"})
    result = one.done()
    assert [w.code for w in result.warnings] == ["SWEEP_HELD"]
    assert {key for key in one.replica if key[0] == "crm_us"} == {("crm_us", key) for key in range(10)}
    one.done(action="release", held="sweep")
    assert one.replica == one.expected


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_a_truncate_of_one_shard_deletes_its_rows_alone(delete: str, tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO, fields={"truncate": "apply", "delete": delete})
    for shard in TWO:
        one.load(shard, {1: shard, 2: shard})
        one.change(shard, ("I", 3, shard))
    one.done()
    one.land("crm_eu", 5, [("T", 0, ""), ("I", 2, "new")])
    result = one.done()
    assert [w.code for w in result.warnings] == ["TRUNCATE_APPLIED"]
    one.truth["crm_eu"] = {2: "new"}
    one.land("crm_eu", 4, [("I", 9, "late")])
    one.land("crm_us", 4, [("I", 9, "not late")])
    one.done()
    one.truth["crm_us"][9] = "not late"
    rows = pa.table(DeltaTable(one.lake.layout(one.spec).replica).scan()).to_pylist()
    assert rows_of([row for row in rows if not row["_gddl"].get("deleted")]) == one.expected
    assert one.done(action="verify").details["verdict"] == "equal"


def test_a_truncate_of_one_shard_holds_no_other(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO)
    for shard in TWO:
        one.load(shard, {1: shard})
    one.done()
    one.land("crm_eu", 5, [("T", 0, ""), ("I", 2, "new")])
    one.change("crm_us", ("I", 2, "us"))
    assert [w.code for w in one.done().warnings] == ["TRUNCATE_HELD"]
    assert one.replica == one.expected
    one.done(action="release", held="truncate")
    one.truth["crm_eu"] = {2: "new"}
    assert one.replica == one.expected


def test_a_deleted_key_of_one_shard_stays_in_the_others(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO)
    for shard in TWO:
        one.load(shard, {1: shard})
    one.change("crm_eu", ("D", 1, ""))
    one.done()
    one.land("crm_eu", 0, [("U", 1, "late")])  # before the delete
    one.change("crm_us", ("U", 1, "still here"))
    one.done()
    assert one.replica == one.expected == {("crm_us", 1): "still here"}


def test_a_shard_that_cannot_be_listed_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Sharded(tmp_path, FIVE)
    for shard in FIVE:
        one.load(shard, {1: shard})
    one.done()
    listed = Storage.list

    def refusing(self: Storage, root: str, *arguments: Any, **named: Any) -> Iterator[StoredObject]:
        if "landing-b" in root:
            raise RetriableError("STORAGE_BUSY", "the store does not answer", where=root, remedy="run again")
        return listed(self, root, *arguments, **named)

    for shard in FIVE:
        one.change(shard, ("U", 1, "changed"))
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "list", refusing)
        result = one.run()
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "STORAGE_BUSY"
    assert "source b of s.t: the store does not answer" in result.error.message
    assert one.replica == {**one.expected, ("b", 1): "b"}
    one.done()
    assert one.replica == one.expected


def test_a_shard_with_a_column_of_that_name_stops_no_other(tmp_path: Path) -> None:
    one = Sharded(tmp_path, FIVE)
    for shard in FIVE:
        one.load(shard, {1: shard})
    one.done()
    one.land("a", 5, [("I", 5, "x")], _SOURCE=["x"])
    one.change("server", ("I", 2, "server"))
    result = one.run()
    assert result.error is not None
    assert result.error.code == "SHARD_COLUMN_TAKEN"
    assert "source a of s.t" in result.error.message
    assert one.replica == one.expected


def test_a_shard_added_later_is_loaded_and_one_removed_keeps_its_rows(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO[:1])
    one.load("crm_eu", {1: "eu"})
    one.change("crm_eu", ("I", 2, "eu"))
    one.done()
    one.shards = TWO
    one.load("crm_us", {1: "us"})
    result = one.done()
    assert (result.mode, one.replica) == ("incremental", one.expected)
    one.shards = TWO[1:]
    one.change("crm_us", ("I", 7, "us"))
    one.change("crm_eu", ("I", 8, "eu"))
    one.done()
    assert one.replica == {key: v for key, v in one.expected.items() if key != ("crm_eu", 8)}
    one.shards = TWO
    one.done()
    assert one.replica == one.expected


def test_a_table_of_one_source_is_not_made_one_of_several(tmp_path: Path) -> None:
    lake, plain = Lake(tmp_path), TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
    lake.load(plain)
    lake.done(plain)
    one = Sharded(tmp_path, TWO)
    one.load("crm_eu", {1: "eu"})
    assert one.refused() == "SHARDS_CHANGED"
    sharded = Sharded(tmp_path / "other", TWO)
    sharded.load("crm_eu", {1: "eu"})
    sharded.done()
    found = Lake(tmp_path / "other").run(plain)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "SHARDS_CHANGED"


def test_sequences_of_different_types_are_refused(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO)
    for shard in TWO:
        one.load(shard, {1: shard})
    one.change("crm_eu", ("U", 1, "changed"))
    one.done()
    one.land("crm_us", 1, [("U", 1, "x")], seq=["00017"])
    assert one.refused() == "SHARD_ORDER_DIFFERS"
    assert one.replica == one.expected


def test_a_shard_follows_the_order_of_those_that_had_changes(tmp_path: Path) -> None:
    """Their sequences are of one type; without them, its first change files would decide."""
    one = Sharded(tmp_path, TWO)
    spec, times = replace(one.spec, sequence_by=()), [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2)]
    for shard, own in (("crm_eu", {}), ("crm_us", {"transact_seq": "0001"})):
        load, update = ({"dms_timestamp": time, "id": 1, "v": shard} for time in times)
        write(one.folder(shard), "LOAD00000001.parquet", pa.Table.from_pylist([load]))
        one.lake.done(spec)
        update |= {"Op": "U", "v": f"{shard} changed", **own}
        write(one.folder(shard), "20240102-000000000.parquet", pa.Table.from_pylist([update]))
        one.lake.done(spec)
    assert one.replica == {("crm_eu", 1): "crm_eu changed", ("crm_us", 1): "crm_us changed"}


def test_the_ledger_of_a_table_without_shards_has_no_word_of_them(tmp_path: Path) -> None:
    lake, plain = Lake(tmp_path), TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
    lake.load(plain)
    lake.done(plain)
    (commit,) = Path(lake.layout(plain).state).glob("commits/*.json")
    assert "shard" not in commit.read_text()
    assert replace(plain, shards=("a",)).shard == "a"


SETTINGS = """landing: ../landing
lake: ../lake
sources:
  crm_eu: {landing: ../landing-crm_eu, target: '{source}_{schema}.{table}'}
  crm_us: {landing: ../landing-crm_us}
  other: {landing: ../landing-other, dialect: debezium}
  late: {landing: ../landing-late, options: {lookback: 9d}}
  twin: {landing: ../landing-crm_us}
"""
ROW = "{table: s.t, keys: [id], sequence_by: [seq], shards: [crm_eu, crm_us]}"


def metadata(folder: Path, row: str = ROW) -> None:
    (folder / "metadata" / "tables").mkdir(parents=True)
    (folder / "metadata" / "gddl.yaml").write_text(SETTINGS)
    (folder / "metadata" / "tables" / "t.yaml").write_text(f"tables:\n  - {row}\n")


def test_one_row_is_loaded_explained_verified_and_erased_by_command(tmp_path: Path) -> None:
    metadata(tmp_path)
    one = Sharded(tmp_path, TWO)
    for shard in TWO:
        one.load(shard, {1: f"{shard} 1", 2: f"{shard} 2"})
    one.change("crm_us", ("U", 1, "changed"))
    (planned,), _ = gddl(tmp_path, "run", "--dry-run")
    assert [(batch["shard"], len(batch["files"])) for batch in planned["details"]["batches"]] == [
        ("crm_eu", 1), ("crm_us", 1), ("crm_us", 1),
    ]  # fmt: skip
    (result,), _ = gddl_process(tmp_path, "run")
    assert (result["status"], result["main"]["rows"]) == ("succeeded", 4)
    assert one.replica == one.expected
    (explained,), _ = gddl(tmp_path, "explain", "--table", "s.t", "--key", "_source=crm_us", "--key", "id=1")
    assert json.loads(explained["details"]["keys"][0]) == {"_source": "crm_us", "id": "1"}
    assert [change["state"] for change in explained["details"]["changes"]] == ["superseded", "winner"]
    _, said = gddl(tmp_path, "explain", "--table", "s.t", "--key", "id=1", status=2)
    assert "[KEY_INVALID]" in said
    (erased,), _ = gddl(tmp_path, "erase", "--table", "s.t", "--key", "_source=crm_us", "--key", "id=1")
    assert [Path(file).parts[-4] for file in erased["details"]["files"]] == ["landing-crm_us"] * 2
    del one.truth["crm_us"][1]
    assert one.replica == one.expected
    one.change("crm_eu", ("U", 2, "after"))
    (result,), _ = gddl(tmp_path, "run")
    assert (result["main"]["rows"], one.replica) == (3, one.expected)
    (verified,), _ = gddl(tmp_path, "verify")
    assert (verified["details"]["verdict"], verified["details"]["rows"]) == ("equal", 3)
    gddl(tmp_path, "maintain")
    (line,), _ = gddl(tmp_path, "status")
    assert (line["table"], line["state"], line["rows"]) == ("s.t", "fresh", 3)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("{table: s.t, keys: [id], shards: [crm_eu, none]}", "FIELD_VALUE"),
        ("{table: s.t, keys: [id], shards: [crm_us, crm_us]}", "FIELD_VALUE"),
        ("{table: s.t, keys: [id], shards: [crm_us, other]}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us, late]}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us, twin]}", "LANDING_SHARED"),
        ("{table: s.t, keys: [], shards: [crm_eu, crm_us]}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [_Source, id], shards: [crm_eu, crm_us]}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us], target: '{source}.t'}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us], trigger: 5s}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us], changes_retention: 30d}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shards: [crm_us], mask: {_source: hash}}", "FIELD_REFUSED"),
        ("{table: s.t, source: crm_eu, keys: [id], shards: [crm_eu, crm_us]}", "FIELD_REFUSED"),
        ("{table: s.t, keys: [id], shard_landings: {crm_us: /x}}", "FIELD_UNKNOWN"),
    ],
)
def test_rows_that_cannot_be_are_refused(tmp_path: Path, row: str, code: str) -> None:
    metadata(tmp_path, row)
    problems = load(tmp_path / "metadata", {}).problems
    assert code in {problem.code for problem in problems}
    assert all("\n" not in str(problem) for problem in problems)


@pytest.mark.parametrize("options", [{"action": "reload"}, {"action": "resync_rows", "differences": True}])
def test_what_is_not_built_for_shards_is_refused_before_anything_is_done(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    one = Sharded(tmp_path, TWO)
    one.load("crm_eu", {1: "eu"})
    one.done()
    assert one.refused(**options) == "SHARDS_UNSUPPORTED"
    assert one.replica == one.expected


@pytest.mark.parametrize("fields", [{"keys": ("id",)}, {"shard_landings": {}}])
def test_an_order_that_was_not_made_from_metadata_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    one = Sharded(tmp_path, TWO)
    one.load("crm_eu", {1: "eu"})
    found = one.lake.run(replace(one.spec, **fields))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "SPEC_INVALID"
    assert not (tmp_path / "lake" / "s").exists()


@pytest.fixture(params=["hard", "soft"])
def built(request: pytest.FixtureRequest, tmp_path: Path) -> Sharded:
    """Two sources with deletes, a late change, a reload of one of them, and a history."""
    more = {"history": True, "sweep_after": "0s", "sweep_limit": 0.9, "delete": request.param}
    one = Sharded(tmp_path, TWO, more)
    one.load("crm_eu", {1: "a", 2: "b", 3: "c"})
    one.load("crm_us", {1: "x", 2: "y"})
    one.done()
    one.change("crm_eu", ("U", 1, "a2"), ("D", 2, ""), ("I", 4, "d"))
    one.change("crm_us", ("U", 2, "y2"), ("I", 5, "z"))
    one.done()
    one.load("crm_us", {2: "y3", 6: "w"})
    one.done()
    one.land("crm_eu", 0, [("U", 1, "late"), ("U", 2, "late")])
    one.done()
    return one


def rows_in(one: Sharded, name: str) -> list[dict[str, Any]]:
    rows = pa.table(DeltaTable(getattr(one.lake.layout(one.spec), name)).scan()).to_pylist()
    if name == "tombstones":  # batches may note one twice
        rows = list({repr(row): row for row in rows}.values())
    return sorted(rows, key=repr)


def live(one: Sharded) -> dict[tuple[str, int], str]:
    return rows_of([row for row in rows_in(one, "replica") if not row["_gddl"].get("deleted")])


def test_a_rebuild_derives_the_rows_of_each_source_from_its_changes(built: Sharded) -> None:
    names = ("changes", "replica", "history", "tombstones")
    before = {name: rows_in(built, name) for name in names}
    assert live(built) == built.expected
    for name, column in (("replica", "v"), ("history", "v")):
        DeltaTable(getattr(built.lake.layout(built.spec), name)).update({column: "'damaged'"}, predicate="id = 1")
    DeltaTable(built.lake.layout(built.spec).replica).delete("id = 6 or id = 3")
    result = built.done(action="rebuild")
    assert (result.mode, result.main.rows) == ("refresh", len(before["replica"]))
    assert {name: rows_in(built, name) for name in names} == before


def test_a_rebuild_loads_what_waits_and_goes_on(built: Sharded) -> None:
    built.change("crm_eu", ("I", 9, "waits"))
    assert built.done(action="rebuild").main.rows == len(rows_in(built, "replica"))
    assert live(built) == built.expected
    built.change("crm_us", ("D", 2, ""))
    built.land("crm_us", 1, [("U", 2, "y2"), ("I", 5, "z")])  # again
    built.done()
    assert live(built) == built.expected
    assert built.done().status == "skipped"


def test_rows_of_a_former_source_stay_in_a_rebuild(built: Sharded) -> None:
    before = rows_in(built, "replica")
    one = Sharded(built.root, TWO[:1], built.fields)
    one.done(action="rebuild")
    assert rows_in(one, "replica") == before


@pytest.mark.parametrize("fields", [{"mask": {"v": "hash"}}, {"sequence_by": ("id",)}, {"keys": ("_source", "v")}])
def test_a_rebuild_that_would_change_stored_changes_is_refused(built: Sharded, fields: dict[str, Any]) -> None:
    before = rows_in(built, "replica")
    built.fields = {**built.fields, **fields}
    assert built.refused(action="rebuild") == "SHARDS_UNSUPPORTED"
    assert rows_in(built, "replica") == before


def test_a_rebuild_brings_back_a_replica_that_is_gone(built: Sharded) -> None:
    shutil.rmtree(built.lake.layout(built.spec).replica)
    built.change("crm_us", ("I", 8, "new"))
    error = built.run().error
    assert error is not None
    assert (error.code, "gddl rebuild --table" in error.message) == ("TABLES_MISSING", True)
    built.done(action="rebuild")
    assert live(built) == built.expected


def test_a_rebuild_into_partitions(built: Sharded) -> None:
    built.change("crm_us", ("D", 6, ""))
    built.fields = {**built.fields, "partition_by": ("_source",)}
    assert built.refused() == "PARTITION_CHANGED"
    built.done(action="rebuild")
    assert DeltaTable(built.lake.layout(built.spec).replica).metadata().partition_columns == ["_source"]
    assert live(built) == built.expected
    assert built.done().status == "skipped"


def test_a_replay_reads_files_of_each_shard_that_could_not_be_read(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO)
    for shard in TWO:
        one.load(shard, {key: f"{shard} {key}" for key in range(3)})
    one.done()
    hidden = {}
    for shard in TWO:
        before = set(tmp_path.rglob("*.parquet"))
        one.change(shard, ("U", 0, f"{shard} changed"), ("D", 1, ""))
        (path,) = set(tmp_path.rglob("*.parquet")) - before
        hidden[path] = path.read_bytes()
    with pytest.MonkeyPatch.context() as patched:
        read = Storage.open_input

        def damaged(self: Storage, path: str) -> Any:
            if Path(path) in hidden:
                raise ValueError("damaged")
            return read(self, path)

        patched.setattr(Storage, "open_input", damaged)
        assert [(w.code, w.count) for w in one.done().warnings] == [("FILE_UNREADABLE", 2)]
    assert one.done().status == "skipped"
    assert one.done(action="errors_replay").files == 2
    assert one.replica == one.expected
    assert one.done(action="errors_list").details["unresolved"] == 0
