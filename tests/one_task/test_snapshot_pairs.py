"""Snapshots with other features of a row: declared types, masks, targets, policies, loads that refuse their rows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.table_spec import Expectation, SchemaEvolution, SchemaGate
from airflow_gddl.stores import Storage
from tests.harness.lake import Lake
from tests.one_task.exports import FORMAT, NOW, Exports, codes, csv_of

CSV = {**FORMAT, "csv_header": True}


@pytest.fixture
def exports(tmp_path: Path) -> Exports:
    return Exports(Lake(tmp_path))


SPELLINGS = {
    "int": ("1", "01", "+1", " 1"),
    "decimal(10,2)": ("1.5", "1.50", "01.5"),
    "date": ("2024-01-02", " 2024-01-02"),
    "timestamp": ("2024-01-02 03:00:00", "2024-01-02T03:00:00", "2024-01-02 04:00:00+01:00"),
    "double": ("1.5", "1.50", "15e-1"),
}


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", SPELLINGS)
def test_keys_spelled_otherwise_are_the_same(kind: str, late: bool, parts: bool, exports: Exports) -> None:
    """Each export spells the keys in another way; a late one takes nothing back."""
    exports = exports.limited(decoded_bytes=100) if parts else exports
    exports = exports.of(options={**CSV, "types": {"id": kind}}, sweep_limit=0.0)
    order = range(len(SPELLINGS[kind]))
    for day in reversed(order) if late else order:
        exports.land(day + 1, csv_of([(SPELLINGS[kind][day], f"v{day}")]))
        assert codes(exports.run()) == {}
    assert exports.rows("v") == [(f"v{max(order)}",)]


def test_spellings_of_one_key_in_one_export_are_one_row(exports: Exports) -> None:
    exports = exports.of(options={**CSV, "types": {"id": "int"}})
    exports.land(1, csv_of([("1", "a"), ("01", "a"), ("2", "b")]))
    exports.run()
    exports.land(2, csv_of([("1", "a"), ("2", "b")]))
    exports.run()
    assert exports.rows("id", "v") == [(1, "a"), (2, "b")]
    exports.land(3, csv_of([("2", "b")]))
    exports.run()
    assert exports.rows("id", "v") == [(2, "b")]


@pytest.mark.parametrize("late", [False, True])
def test_keys_that_files_type_otherwise_are_the_same(late: bool, exports: Exports) -> None:
    kinds: list[pa.Array] = [
        pa.array([1, 2], pa.int32()),
        pa.array([1, 2], pa.int64()),
        pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(10, 2)),
        pa.array(["1", "02"]),
    ]
    exports = exports.of(sweep_limit=0.0)
    days = list(enumerate(kinds, start=1))
    for day, ids in [days[0], *reversed(days[1:])] if late else days:
        exports.land(day, pa.table({"id": ids, "v": [f"{day}a", f"{day}b"]}))
        assert set(codes(exports.run())) <= {"TEXT_CONVERTED"}
    assert exports.rows("v") == [("4a",), ("4b",)]


def test_a_row_whose_key_is_none_is_quarantined_and_deletes_nothing(exports: Exports) -> None:
    exports = exports.of(options={**CSV, "types": {"id": "int"}})
    exports.land(1, csv_of([("1", "a"), ("x", "b"), ("y", "c")]))
    assert exports.run().quarantined == 2
    exports.land(2, csv_of([("01", "A"), ("x", "b")]))
    assert exports.run().quarantined == 0, "the key that is gone was never in the table"
    assert exports.rows("id", "v") == [(1, "A")]


def test_what_a_late_snapshot_takes_back_counts(exports: Exports) -> None:
    exports = exports.of(sweep_limit=0.4)
    exports.land(2, pa.table({"id": range(10), "v": ["a"] * 10}))
    exports.run()
    exports.land(1, pa.table({"id": range(100, 110), "v": ["a"] * 10}))
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "10 of its 10 keys" in result.warnings[0].message
    assert codes(exports.run(action="release", held="sweep")) == {"SNAPSHOT_CLEARED": 1}
    assert exports.rows("id") == [(n,) for n in range(10)]


def test_a_snapshot_of_the_future_is_held_until_its_time(exports: Exports) -> None:
    exports.land("2062-11-21", pa.table({"id": [1], "v": ["future"]}))
    exports.land(1, pa.table({"id": [1], "v": ["a"]}))
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "2062-11-21" in result.warnings[0].message
    assert "correct the name of its folder, or remove it" in result.warnings[0].message
    exports.land(2, pa.table({"id": [1], "v": ["b"]}))
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    assert codes(exports.run(action="release", held="sweep"))["SNAPSHOT_HELD"] == 1, "a release can't take it"
    assert exports.rows("id", "v") == [(1, "b")]
    shutil.rmtree(exports.folder("2062-11-21"))
    assert codes(exports.run()) == {"SNAPSHOT_CLEARED": 1}


def test_a_snapshot_of_the_next_day_is_taken(exports: Exports) -> None:
    exports.land(f"{NOW + timedelta(days=1):%Y-%m-%d}", pa.table({"id": [1], "v": ["a"]}))
    exports.land(f"{NOW + timedelta(days=2):%Y-%m-%d}", pa.table({"id": [1], "v": ["b"]}))
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    assert exports.rows("v") == [("a",)]
    later = replace(exports, now=NOW + timedelta(days=1))
    assert codes(later.run()) == {"SNAPSHOT_CLEARED": 1}
    assert exports.rows("v") == [("b",)]


def test_a_snapshot_of_the_future_that_was_taken_is_named(exports: Exports) -> None:
    """Under a clock that was wrong."""
    exports.land("2030-01-01", pa.table({"id": [1], "v": ["future"]}))
    replace(exports, now=NOW + timedelta(days=10_000)).run()
    exports.land(1, pa.table({"id": [1], "v": ["a"]}))
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert "gddl reload --from-files --table s.t" in result.warnings[0].message
    shutil.rmtree(exports.folder("2030-01-01"))
    assert codes(exports.run(action="reload", confirmed=True)) == {"SNAPSHOT_CLEARED": 1}
    assert exports.rows("v") == [("a",)]


@pytest.mark.parametrize("masked", ["hash", "null"])
def test_captured_files_hold_no_protected_value(masked: Any, exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    written = kept_files(monkeypatch)
    exports = exports.of(
        mask={"email": masked}, exclude_columns=("ssn",), rename={"SRC": "dst"}, derive={"domain": "upper(email)"}
    )
    table = pa.table({"id": [1, 2], "email": ["secret1", "secret2"], "ssn": ["secret3", "secret4"], "SRC": ["x", "y"]})
    exports.land(1, table)
    assert codes(exports.run()) == {}
    exports.land(2, table.set_column(3, "SRC", pa.array(["x", "Y"])).set_column(2, "ssn", pa.array(["secret5"] * 2)))
    exports.run()
    exports.land(3, table.slice(0, 1))
    exports.run()
    assert written
    assert not [data for data in written if b"secret" in data]
    email = None if masked == "null" else sha256(b"secret1").hexdigest()
    assert exports.rows("id", "email", "domain", "dst", "ssn") == [
        (1, email, None if email is None else email.upper(), "x", None)
    ]
    assert len(read(exports.lake.layout(exports.spec).changes)) == 4, "columns that are left out are not compared"


def kept_files(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written below `_gddl/captured`, uncompressed where it is parquet."""
    found, write = list[bytes](), Storage.write

    def kept(self: Storage, path: str, data: bytes) -> None:
        if "/_gddl/captured/" in path:
            found.append(repr(pq.read_table(pa.BufferReader(data)).to_pylist()).encode())
        write(self, path, data)

    monkeypatch.setattr(Storage, "write", kept)
    return found


def read(path: str) -> list[dict[str, Any]]:
    return [] if not Path(path).exists() else pa.table(DeltaTable(path).scan()).to_pylist()


def test_a_masked_key_is_compared_by_its_hash(exports: Exports) -> None:
    exports = exports.of(mask={"id": "hash"}, options={**CSV, "types": {"id": "int"}}, sweep_limit=0.0)
    exports.land(1, csv_of([("01", "a"), ("2", "b")]))
    exports.run()
    exports.land(2, csv_of([("1", "a"), ("02", "B")]))
    assert exports.run().changes_written == 1
    assert exports.rows("id", "v") == sorted([(sha256(b"1").hexdigest(), "a"), (sha256(b"2").hexdigest(), "B")])


@pytest.mark.parametrize("back", [False, True])
def test_a_column_that_is_let_in_again_has_its_values(back: bool, exports: Exports) -> None:
    rows = pa.table({"id": [1, 2], "v": ["a", "b"], "n": ["x", "y"]})
    without = exports.of(exclude_columns=("n",))
    without.land(1, rows)
    without.run()
    exports.land(2, rows.set_column(1, "v", pa.array(["a", "B"])) if back else rows)
    exports.run()
    assert exports.rows("id", "n") == [(1, "x"), (2, "y")]


# --- c: the target ---


def test_another_target_takes_the_snapshots_again(exports: Exports) -> None:
    exports.land(1, pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    exports.run()
    exports.run(action="erase", key={"id": "3"})
    exports.land(2, pa.table({"id": [1, 2, 3], "v": ["a", "B", "c"]}))
    moved = exports.of(table="s.new", source_table="s.t")
    assert "TARGET_CHANGED" in codes(moved.run())
    assert moved.rows("id", "v") == [(1, "a"), (2, "B")], "the erased key does not come back"
    moved.land(3, pa.table({"id": [1, 3], "v": ["a", "c"]}))
    moved.run()
    assert moved.rows("id", "v") == [(1, "a")]


def test_an_erasure_names_the_exports_that_hold_the_key(exports: Exports) -> None:
    for day in (1, 2):
        exports.land(day, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.run()
    exports.land(3, pa.table({"id": [2], "v": ["b"]}))
    (warning,) = exports.run(action="erase", key={"id": "1"}).warnings
    assert (warning.code, warning.count) == ("ERASED_IN_FILES", 2)
    assert str(exports.folder(1)) in warning.sample[0]
    assert exports.rows("id") == [(2,)]


def test_an_erasure_leaves_no_change_file_with_the_key(exports: Exports) -> None:
    strict = exports.of(expect={"short": Expectation(rule="length(v) < 4", on="fail")})
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.run()
    exports.land(2, pa.table({"id": [1, 2], "v": ["personal", "b"]}))
    assert strict.fault() == "EXPECTATION_FAILED"
    assert exports.captured()
    strict.run(action="erase", key={"id": "1"})
    assert not exports.captured()
    exports.run()
    assert exports.rows("id", "v") == [(2, "b")], "what waited was of before"


def test_the_table_of_other_snapshots_is_not_taken(exports: Exports) -> None:
    exports.land(1, pa.table({"id": [1], "v": ["a"]}))
    exports.run()
    other = replace(exports, source="other", spec=replace(exports.spec, table="s.t", source_table="s.other"))
    other.land(1, pa.table({"id": [1], "v": ["other"]}))
    assert other.fault() == "TARGET_TAKEN"


# --- e: loads that refuse a snapshot ---

REFUSED: dict[str, tuple[dict[str, Any], pa.Table, str]] = {
    "expect": (
        {"expect": {"short": Expectation(rule="length(v) < 4", on="fail")}},
        pa.table({"id": [1, 2], "v": ["a", "long one"]}),
        "EXPECTATION_FAILED",
    ),
    "require": ({"schema": SchemaGate(require=("v",))}, pa.table({"id": [1, 2]}), "SCHEMA_INCOMPATIBLE"),
    "bad_row": (
        {"on_bad_row": "fail"}, pa.table({"id": pa.array([1, None]), "v": ["a", "b"]}), "BAD_ROWS",
    ),
    "new_column": (
        {"schema_evolution": SchemaEvolution(new_column="fail")},
        pa.table({"id": [1, 2], "v": ["a", "b"], "new": [1, 2]}),
        "SCHEMA_REFUSED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_a_later_snapshot_gets_past_one_that_is_refused(case: str, first: bool, exports: Exports) -> None:
    fields, bad, code = REFUSED[case]
    exports = exports.of(**fields)
    if not first:
        exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
        exports.run()
    if first and case == "new_column":
        return
    exports.land(2, bad)
    assert exports.fault() == code
    assert exports.fault() == code, "the newest fails each run"
    exports.land(3, pa.table({"id": [1, 3], "v": ["A", "c"]}))
    result = exports.run()
    assert codes(result) == {"SNAPSHOT_HELD": 1}
    assert code in result.warnings[0].message
    assert exports.rows("id", "v") == [(1, "A"), (3, "c")]
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    shutil.rmtree(exports.folder(2))
    assert codes(exports.run()) == {"SNAPSHOT_CLEARED": 1}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_snapshot_that_is_written_again_is_taken(case: str, exports: Exports) -> None:
    fields, bad, code = REFUSED[case]
    exports = exports.of(**fields)
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.run()
    exports.land(2, bad)
    assert exports.fault() == code
    exports.land(2, pa.table({"id": [1, 3], "v": ["A", "c"]}))
    assert codes(exports.run()) == {}
    assert exports.rows("id", "v") == [(1, "A"), (3, "c")]


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_snapshot_is_taken_once_the_row_allows_it(case: str, exports: Exports) -> None:
    fields, bad, _ = REFUSED[case]
    strict = exports.of(**fields)
    strict.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    if case == "new_column":  # a table that is made by a load has all columns
        strict.run()
    strict.land(2, bad)
    strict.land(3, pa.table({"id": [1, 3], "v": ["A", "c"]}))
    assert codes(strict.run()) == {"SNAPSHOT_HELD": 1}, "all in one run"
    assert strict.rows("id", "v") == [(1, "A"), (3, "c")]
    assert "SNAPSHOT_CLEARED" in codes(exports.run())
    assert exports.rows("id", "v") == [(1, "A"), (3, "c")]


def test_counts_of_refused_loads_are_not_added(exports: Exports) -> None:
    fields, bad, _ = REFUSED["expect"]
    exports = exports.of(**fields)
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.land(2, bad)
    exports.land(3, pa.table({"id": [1, 3], "v": ["A", "c"]}))
    result = exports.run()
    assert [(one.checked, one.failed) for one in result.expectations] == [(4, 0)]
    assert (result.batches, result.changes_written) == (2, 5)


def test_a_reload_that_is_refused_leaves_the_table_as_it_was(exports: Exports) -> None:
    fields, bad, code = REFUSED["expect"]
    exports.land(1, pa.table({"id": [1], "v": ["a"]}))
    exports.run()
    strict = exports.of(**fields)
    strict.land(2, bad)
    assert strict.fault(action="reload", confirmed=True) == code
    strict.land(3, pa.table({"id": [1], "v": ["A"]}))
    assert codes(strict.run()) == {"SNAPSHOT_HELD": 1}
    assert strict.rows("id", "v") == [(1, "A")]


# --- f: columns ---


@pytest.mark.parametrize("policy", ["keep", "null", "fail"])
def test_a_column_renamed_by_case_stays_one_column(policy: Any, exports: Exports) -> None:
    exports = exports.of(schema_evolution=SchemaEvolution(dropped_column=policy))
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.run()
    exports.land(2, pa.table({"ID": [1, 2], "V": ["a", "B"]}))
    assert exports.run().changes_written == 1
    exports.land(3, pa.table({"Id": [1], "v": ["A"]}))
    assert codes(exports.run()) == {}
    assert exports.rows("id", "v") == [(1, "A")]


# --- g: lost tables ---


@pytest.mark.parametrize("lost", ["tables", "changes", "ledger", "both"])
def test_a_rebuild_takes_the_snapshots_again(lost: str, exports: Exports) -> None:
    for day, rows in ((1, ["a", "b"]), (2, ["a", "B"])):
        exports.land(day, pa.table({"id": [1, 2], "v": rows}))
        exports.run()
    layout = exports.lake.layout(exports.spec)
    gone = {"tables": [layout.replica, layout.changes], "changes": [layout.changes], "ledger": [layout.state]}
    for path in gone.get(lost, [layout.replica, layout.changes, layout.state]):
        shutil.rmtree(path)
    exports.run(action="rebuild")
    assert exports.rows("id", "v") == [(1, "a"), (2, "B")]
    exports.land(3, pa.table({"id": [2], "v": ["B"]}))
    exports.run()
    assert exports.rows("id", "v") == [(2, "B")]


def test_a_rebuild_for_other_keys_is_not_refused(exports: Exports) -> None:
    exports.land(1, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    exports.run()
    other = exports.of(keys=("v",))
    assert other.fault() == "KEYS_CHANGED"
    other.run(action="rebuild")
    other.land(2, pa.table({"id": [5, 2], "v": ["a", "b"]}))
    other.run()
    assert other.rows("id", "v") == [(2, "b"), (5, "a")]


def test_keys_that_are_null_are_quarantined_and_deleted_in_no_later_snapshot(exports: Exports) -> None:
    exports.land(1, pa.table({"id": pa.array([1, None], pa.int32()), "v": ["a", "b"]}))
    assert exports.run().quarantined == 1
    exports.land(2, pa.table({"id": pa.array([1], pa.int32()), "v": ["A"]}))
    assert exports.run().quarantined == 0
    exports.land(3, pa.table({"id": pa.nulls(1), "v": ["x"]}))
    assert exports.run().quarantined == 1, "no key has a value"
    assert exports.rows("id", "v") == []


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([b"a", b"\xff"]),
        pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}]),
        pa.array([float("nan"), -0.0]),
        pa.array([1, 2], pa.uint64()),
        pa.array([True, False]),
        pa.array(["a", "b"]).dictionary_encode(),
    ],
)
def test_keys_of_other_types(keys: pa.Array, exports: Exports) -> None:
    exports = exports.limited(decoded_bytes=500)
    exports.land(1, pa.table({"id": keys, "v": ["a", "b"]}))
    exports.run()
    exports.land(2, pa.table({"id": keys.take(pa.array([1, 0])), "v": ["B", "a"]}))
    assert exports.run().changes_written == 1
    exports.land(3, pa.table({"id": keys.slice(1), "v": ["B"]}))
    assert exports.run().changes_written == 1
    assert exports.rows("v") == [("B",)]


def test_keys_that_no_table_holds_hold_their_snapshot(exports: Exports) -> None:
    exports.land(1, pa.table({"id": pa.array([1], pa.duration("s")), "v": ["a"]}))
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    exports.land(2, pa.table({"id": [1], "v": ["a"]}))
    assert codes(exports.run()) == {"SNAPSHOT_HELD": 1}
    assert exports.rows("v") == [("a",)]
