"""Tables of several sources whose row changes: another target, other shards, shards where there were none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.sharded import Sharded, rows_of
from tests.one_task.commands import gddl

pytestmark = pytest.mark.wide

TWO = ("eu", "us")
SETTINGS = """landing: ../landing
lake: ../lake
sources: {eu: {landing: ../landing-eu}, us: {landing: ../landing-us}}
"""
HEAD = "source: eu\ndefaults: {settle: 0s, sequence_by: [seq]}\n"


def rows(folder: Path, *lines: str) -> None:
    (folder / "metadata" / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "metadata" / "gddl.yaml").write_text(SETTINGS)
    text = "".join(f"  - {{{line}}}\n" for line in lines)
    (folder / "metadata" / "tables" / "t.yaml").write_text(f"{HEAD}tables:\n{text}")


def landed(folder: Path, **fields: Any) -> Sharded:
    """The table of both sources, with rows 1 and 2 in each."""
    one = Sharded(folder, TWO, fields)
    for shard in TWO:
        one.load(shard, {1: f"{shard} 1", 2: f"{shard} 2"})
    return one


def run(one: Sharded, **options: Any) -> JobResult:
    found = Lake(one.root).run(one.spec, options_of(**options))
    assert isinstance(found, TableOutcome), found
    return found.result


def done(one: Sharded, **options: Any) -> JobResult:
    result = run(one, **options)
    assert result.error is None, result.error
    return result


def error(one: Sharded, **options: Any) -> tuple[str, str]:
    found = run(one, **options).error
    assert found is not None
    return found.code, found.message


def replica(folder: Path, table: str) -> dict[tuple[str, int], str]:
    return rows_of(pa.table(DeltaTable(str(folder / "lake" / table.replace(".", "/"))).scan()).to_pylist())


def warned(result: JobResult) -> dict[str, str]:
    return {warning.code: warning.message for warning in result.warnings}


@pytest.mark.parametrize("shards", ["eu, us", "us"])
def test_a_new_target_loads_the_table_again(tmp_path: Path, shards: str) -> None:
    one = landed(tmp_path)
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: lake.f")
    gddl(tmp_path, "run")
    rows(tmp_path, f"table: s.t, keys: [id], shards: [{shards}], target: lake.f2")
    gddl(tmp_path, "run", "--dry-run")
    (result,), _ = gddl(tmp_path, "run")
    assert (result["status"], result["mode"]) == ("succeeded", "initial")
    (warning,) = result["warnings"]
    assert warning["code"] == "TARGET_CHANGED"
    assert "lake.f stays as it is" in warning["message"]
    assert replica(tmp_path, "lake.f") == one.expected
    assert replica(tmp_path, "lake.f2") == {key: v for key, v in one.expected.items() if key[0] in shards}
    (result,), _ = gddl(tmp_path, "run")
    assert (result["status"], result["warnings"]) == ("skipped", [])
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: lake.f")  # back
    (result,), _ = gddl(tmp_path, "run")
    assert result["status"] == "skipped"


@pytest.mark.parametrize("target", ["", ", target: lake.n"])
def test_a_table_of_one_source_gets_shards_in_a_new_target(tmp_path: Path, target: str) -> None:
    one = landed(tmp_path)
    rows(tmp_path, f"table: s.t, keys: [id]{target}")
    gddl(tmp_path, "run")
    old = target.rpartition(" ")[2] or "s.t"
    rows(tmp_path, f"table: s.t, keys: [id], shards: [eu, us]{target}")
    _, said = gddl(tmp_path, "run", status=1)
    assert "[SHARDS_CHANGED]" in said
    assert "Remedy: give the row a new target" in said
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: lake.n2")
    gddl(tmp_path, "run")
    assert replica(tmp_path, "lake.n2") == one.expected
    assert DeltaTable(str(tmp_path / "lake" / old.replace(".", "/"))).version() == 1


def test_a_table_of_one_source_gets_shards_once_it_is_removed(tmp_path: Path) -> None:
    one = landed(tmp_path)
    one.change("eu", ("D", 2, ""), ("I", 3, "eu 3"))
    rows(tmp_path, "table: s.t, keys: [id]")
    gddl(tmp_path, "run")
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us]")
    _, said = gddl(tmp_path, "run", status=1)
    assert "remove the table with its folders in _gddl/ledger and _gddl/tombstones" in said
    for folder in ("s/t", "s/t__changes", "_gddl/ledger/s/t", "_gddl/tombstones/s/t"):
        shutil.rmtree(tmp_path / "lake" / folder)
    gddl(tmp_path, "run")
    assert replica(tmp_path, "s.t") == one.expected


def test_the_row_may_go_to_another_source(tmp_path: Path) -> None:
    landed(tmp_path)
    for source in TWO:
        rows(tmp_path, f"table: s.t, keys: [id], source: {source}, shards: [eu, us], target: lake.a")
        (result,), _ = gddl(tmp_path, "run")
        assert not result["warnings"]
    assert result["status"] == "skipped"


def test_a_table_of_several_sources_loses_its_shards_in_a_new_target(tmp_path: Path) -> None:
    landed(tmp_path)
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: lake.n")
    gddl(tmp_path, "run")
    rows(tmp_path, "table: s.t, keys: [id], target: lake.n")
    _, said = gddl(tmp_path, "run", status=1)
    assert "[SHARDS_CHANGED]" in said
    rows(tmp_path, "table: s.t, keys: [id], target: lake.n2")
    (result,), _ = gddl(tmp_path, "run")
    assert result["main"]["rows"] == 2


@pytest.mark.parametrize("shards", ["eu, us", "eu"])
def test_a_source_has_the_table_alone_too(tmp_path: Path, shards: str) -> None:
    landed(tmp_path)
    own, both = "table: s.t, keys: [id]", f"table: s.t, keys: [id], shards: [{shards}], target: lake.a"
    other = "table: s.t, keys: [id], source: us, shards: [us, eu], target: lake.b"
    rows(tmp_path, own, both, other)
    for _ in range(2):
        results, _ = gddl(tmp_path, "run")
        assert not [w for result in results for w in result["warnings"]]
    rows(tmp_path, "table: s.t, keys: [id], target: eu.t", both, other)
    results, _ = gddl(tmp_path, "run")
    assert {(result["table"], result["status"]) for result in results} == {
        ("eu.t", "succeeded"), ("lake.a", "skipped"), ("lake.b", "skipped"),
    }  # fmt: skip


def test_a_target_of_another_table_is_taken(tmp_path: Path) -> None:
    landed(tmp_path)
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: lake.a")
    gddl(tmp_path, "run")
    rows(tmp_path, "table: s.other, keys: [id], shards: [eu, us], target: lake.a")
    _, said = gddl(tmp_path, "run", status=1)
    assert "[TARGET_TAKEN]" in said


def test_sequences_of_another_type_leave_nothing_behind(tmp_path: Path) -> None:
    one = landed(tmp_path)
    one.land("eu", 1, [("U", 1, "text")], seq=["0001"])
    done(one)
    one.land("us", 1, [("U", 1, "number")], seq=[1])
    for _ in range(2):
        code, message = error(one)
        assert code == "SHARD_ORDER_DIFFERS"
        assert "{types: {seq: string}}" in message
        assert run(one, action="verify").status == "succeeded"
    one.fields = {"options": {"types": {"seq": "bigint"}}}
    code, message = error(one)
    assert code == "SHARD_ORDER_DIFFERS"
    assert "new target" in message
    one.fields = {"options": {"types": {"seq": "string"}}}
    done(one)
    one.land("us", 2, [("U", 1, "2"), ("U", 2, "10")], seq=[2, 10])
    one.land("us", 3, [("U", 1, "10"), ("U", 2, "9 is before 10")], seq=[10, 9])
    done(one)
    found = replica(tmp_path, "s.t")
    assert found == {("eu", 1): "text", ("eu", 2): "eu 2", ("us", 1): "10", ("us", 2): "10"}


def test_sequences_of_one_declared_type_in_a_new_target(tmp_path: Path) -> None:
    one = landed(tmp_path)
    one.land("eu", 1, [("U", 1, "text")], seq=["0001"])
    one.land("us", 1, [("U", 1, "number")], seq=[1])
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us]")
    gddl(tmp_path, "run", status=1)
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu, us], target: s.u, options: {types: {seq: bigint}}")
    gddl(tmp_path, "run")
    assert replica(tmp_path, "s.u")[("us", 1)] == "number"


def test_verify_compares_the_shards_beside_one_with_an_unfinished_batch(tmp_path: Path) -> None:
    one = landed(tmp_path)
    done(one)
    one.land("us", 1, [("I", 5, "x")], _source=["x"])
    assert error(one)[0] == "SHARD_COLUMN_TAKEN"
    result = run(one, action="verify")
    assert result.error is not None
    assert result.error.code == "BATCH_UNFINISHED"
    assert "source us" in result.error.message
    assert (result.details["verdict"], result.details["rows"]) == ("equal", 2)


def test_rows_are_not_dismissed_beside_an_unfinished_batch_of_any_source(tmp_path: Path) -> None:
    one = landed(tmp_path)
    one.land("eu", 1, [("?", 9, "no such operation")])
    done(one)
    one.land("us", 1, [("I", 5, "x")], _source=["x"])
    error(one)
    asked: dict[str, Any] = {"action": "errors_dismiss", "codes": ("OP_UNKNOWN",), "reason": "gone"}
    result = run(one, **asked)
    assert result.error is not None
    assert (result.error.code, "source us" in result.error.message) == ("BATCH_UNFINISHED", True)
    one.land("us", 1, [("I", 5, "x")])
    assert (done(one).in_quarantine, done(one, **asked).in_quarantine) == (1, 0)


def removed(folder: Path) -> Sharded:
    """The table of both sources, of which one was removed from the row; a row of it is in quarantine."""
    one = landed(folder)
    one.change("us", ("U", 1, "changed"))
    one.land("us", 2, [("?", 9, "no such operation")])
    done(one)
    one.shards = TWO[:1]
    one.change("eu", ("I", 3, "eu 3"))
    return one


def test_rows_of_a_removed_shard_are_counted(tmp_path: Path) -> None:
    one = removed(tmp_path)
    assert done(one).main.rows == 5
    result = run(one, action="verify")
    assert (result.status, result.details["rows"]) == ("succeeded", 3)
    assert warned(result)["SHARD_REMOVED"].endswith("were not compared: 2 of us")
    one.shards = TWO
    assert not warned(run(one, action="verify"))


def test_a_key_of_a_removed_shard_is_erased(tmp_path: Path) -> None:
    one = removed(tmp_path)
    done(one)
    result = done(one, action="erase", key={"_source": "us", "id": "1"})
    assert (result.main.deleted, result.main.rows) == (1, 4)
    assert [Path(file).parts[-4:-1] for file in result.details["files"]] == [("landing-us", "s", "t")] * 2
    assert ("us", 1) not in replica(tmp_path, "s.t")
    explained = run(one, action="explain", key={"_source": "us", "id": "2"})
    assert len(explained.details["changes"]) == 1
    one.shards = TWO
    done(one)
    assert ("us", 1) not in replica(tmp_path, "s.t")
    assert run(one, action="verify").status == "succeeded"


def test_a_replay_says_what_is_left_of_a_removed_shard(tmp_path: Path) -> None:
    one = removed(tmp_path)
    done(one)
    result = done(one, action="errors_replay")
    assert warned(result)["SHARD_REMOVED"].endswith(": 1 of us")
    rows(tmp_path, "table: s.t, keys: [id], shards: [eu]")
    _, said = gddl(tmp_path, "errors", "replay")
    assert "SHARD_REMOVED" in said
    one.shards = TWO
    assert not warned(done(one, action="errors_replay"))


def test_a_shard_takes_the_place_of_another(tmp_path: Path) -> None:
    one = Sharded(tmp_path, TWO[:1])
    one.load("eu", {1: "eu"})
    done(one)
    one.shards = TWO[1:]
    one.load("us", {1: "us"})
    assert done(one).main.rows == 2
    assert replica(tmp_path, "s.t") == one.expected


@pytest.mark.parametrize("value", ["EU", "other", None])
def test_a_key_of_no_shard_is_refused(tmp_path: Path, value: str | None) -> None:
    one = landed(tmp_path)
    done(one)
    key = {"id": "1"} if value is None else {"_source": value, "id": "1"}
    code, message = error(one, action="erase", key=key)
    assert code == "KEY_INVALID"
    assert ("names no" if value is None else f"_source {value!r} is not one of eu, us") in message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"keys": ("_source", "id", "v")}, "KEYS_CHANGED"),
        ({"mask": {"v": "hash"}}, "MASK_CHANGED"),
        ({"partition_by": ("_source",)}, "PARTITION_CHANGED"),
        ({"exclude_columns": ("v",)}, "COLUMNS_CHANGED"),
    ],
)
def test_faults_of_all_shards_are_said_once_with_a_remedy_that_works(
    tmp_path: Path, fields: dict[str, Any], code: str
) -> None:
    one = landed(tmp_path)
    done(one)
    found = Lake(tmp_path).run(replace(one.spec, **fields))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    message = found.result.error.message
    assert "sources eu, us of s.t" in message
    for once in (code, "Remedy:", "s.t: ", "new target", "gddl rebuild"):
        assert message.count(once) <= 1, message
    assert ("gddl rebuild" if code == "PARTITION_CHANGED" else "new target") in message
    assert ("new target" in message) != ("gddl rebuild" in message)


def test_faults_that_differ_are_all_said(tmp_path: Path) -> None:
    one = landed(tmp_path)
    done(one)
    one.land("eu", 1, [("I", 5, "x")], _source=["x"])
    one.land("us", 1, [("I", 5, "x")], _source=["x"])
    _, message = error(one)
    assert "landing-eu" in message
    assert "landing-us" in message
    assert message.count("Remedy:") == message.count("rename the column") == 1


def remedies_of_lost_tables(folder: Path, name: str) -> str:
    one = landed(folder)
    done(one)
    one.change("us", ("U", 1, "changed"))
    shutil.rmtree(folder / "lake" / name)
    return error(one)[1]


@pytest.mark.parametrize("name", ["s/t__changes", "_gddl/ledger/s/t"])
def test_what_is_lost_is_loaded_again(tmp_path: Path, name: str) -> None:
    message = remedies_of_lost_tables(tmp_path, name)
    assert "new target" in message
    assert "gddl rebuild" not in message


def test_a_replica_that_is_lost_is_rebuilt(tmp_path: Path) -> None:
    assert "gddl rebuild --table s.t" in remedies_of_lost_tables(tmp_path, "s/t")


def test_a_foreign_commit_is_undone_by_a_rebuild(tmp_path: Path) -> None:
    one = landed(tmp_path)
    done(one)
    DeltaTable(str(tmp_path / "lake" / "s" / "t")).delete("id = 2 and _source = 'eu'")
    one.change("us", ("U", 1, "changed"))
    (warning,) = done(one).warnings
    assert warning.code == "FOREIGN_COMMIT"
    assert "a rebuild makes the table again" in warning.message
    code, message = error(one, action="verify")
    assert code == "VERIFY_DIFFERENT"
    assert "`gddl rebuild --table s.t`" in message
    assert "resync" not in message
    assert done(one, action="rebuild").warnings == ()
    assert done(one, action="verify").warnings == ()


def test_tables_of_one_source_keep_their_remedies(tmp_path: Path) -> None:
    lake, plain = Lake(tmp_path), TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
    lake.load(plain)
    lake.done(plain)
    found = lake.run(replace(plain, keys=("id", "v")))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert "gddl rebuild --table s.t" in found.result.error.message
