"""`gddl adopt`: a table that another job kept, taken over in the middle; afterwards it equals its source."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Adopt, Erase, Explain, Maintain, Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.adopt.taking_over import Landed, table_of, values
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

UNTIL = "2024-06-01T00:00:00Z"
BEFORE, AFTER = 1_700_000_000, 1_720_000_000
"""Modification times of files from before the cut and after it."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def adopting(**options: Any) -> JobOptions:
    return options_of(action="adopt", **({"files_until": UNTIL} | options))


def aged(lake: Lake, spec: TableSpec, moment: int = BEFORE) -> None:
    """Give files that were written just now a time."""
    for file in lake.landing(spec).iterdir():
        if file.stat().st_mtime > AFTER + 1000:
            os.utime(file, (moment, moment))


def kept(lake: Lake, spec: TableSpec, rows: dict[int, tuple[str, int | None]], **how: Any) -> DeltaTable:
    """A replica as another job has it: with the sequence of each row's last change."""
    table = pa.table({
        "id": pa.array(rows, pa.int32()), "v": [v for v, _ in rows.values()],
        "seq": pa.array([s for _, s in rows.values()], pa.int64()),
    })  # fmt: skip
    write_deltalake(lake.layout(spec).replica, table, **how)
    return DeltaTable(lake.layout(spec).replica)


def landed(lake: Lake, spec: TableSpec) -> None:
    """A load and changes that another job has applied, and those that it has not."""
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "one"), ("D", 1, None), ("I", 7, "new")])
    aged(lake, spec)
    lake.change(spec, 2, [("U", 7, "newer"), ("D", 0, None), ("I", 8, "late")])
    aged(lake, spec, AFTER)


APPLIED = {0: ("one", 100), 2: ("load 2", None), 7: ("new", 102)}
EXPECTED = {2: "load 2", 7: "newer", 8: "late"}


def adopted(lake: Lake, spec: TableSpec) -> None:
    """A table of another job, taken over while changes wait."""
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    lake.done(spec, adopting())


def data_files(table: DeltaTable) -> set[str]:
    return set(table.file_uris())


def verified(lake: Lake, spec: TableSpec) -> JobResult:
    found = lake.done(spec, JobOptions(action=Verify()))
    assert found.details["verdict"] == "equal"
    return found


@pytest.mark.core
def test_table_is_adopted_in_place_and_goes_on(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    before = data_files(kept(lake, spec, APPLIED))
    done = lake.done(spec, adopting())
    assert done.details["adopt"]["rows"] == 3
    assert data_files(DeltaTable(lake.layout(spec).replica)) == before
    verified(lake, spec)
    ran = lake.done(spec)
    assert (ran.files, ran.rows_read) == (1, 3)
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)
    assert lake.done(spec).status == "skipped"


def code(lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> str:
    found = lake.result(spec, options)
    assert found.error is not None, found
    return found.error.code


def test_a_run_never_makes_a_table_where_another_job_has_one(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    table = kept(lake, spec, APPLIED)
    assert code(lake, spec) == "TABLE_NOT_OURS"
    assert not Path(lake.layout(spec).changes).exists()
    lake.done(spec, adopting())
    lake.done(spec)
    assert lake.replica(spec) == EXPECTED
    assert table.version() == 0


def test_dry_run_says_what_would_be_done_and_writes_nothing(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    before = sorted(path for path in lake.root.rglob("*") if path.is_file() and "results" not in str(path))
    found = lake.done(spec, adopting(dry_run=True)).details["adopt"]
    assert found == {
        "rows": 3, "version": 0, "keys": ["id"], "sequence": ["seq"], "without_sequence": 1, "max_sequence": "102",
        "files": 2, "newest": found["newest"], "waiting": 1, "next": found["next"], "adds": [],
    }  # fmt: skip
    assert [Path(path).name for path in found["newest"]] == ["LOAD00000001.parquet", "20240101-000000001.parquet"]
    assert [Path(path).name for path in found["next"]] == ["20240101-000000002.parquet"]
    assert sorted(path for path in lake.root.rglob("*") if path.is_file() and "results" not in str(path)) == before


def test_files_after_the_cut_are_loaded(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    lake.done(spec, adopting())
    found = lake.done(spec)
    assert found.files == 1
    assert "SEQUENCE_TIE" not in {warning.code for warning in found.warnings}
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)


def test_late_changes_never_undo_rows_of_the_baseline(lake: Lake) -> None:
    spec = spec_of(history=True)
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "one"), ("D", 1, None), ("I", 7, "new")])
    aged(lake, spec)
    kept(lake, spec, APPLIED)
    lake.done(spec, adopting())
    late = pa.table({"Op": ["U"], "seq": [50], "id": pa.array([7], pa.int32()), "v": ["late"]})
    write(lake.landing(spec), "20240101-000000000.parquet", late)
    found = lake.done(spec)
    assert (found.files, found.late_ignored) == (1, 1)
    assert lake.replica(spec) == {key: v for key, (v, _) in APPLIED.items()}
    verified(lake, spec)


def test_rebuild_makes_the_same_table_where_every_row_has_gddl(lake: Lake) -> None:
    spec = spec_of(history=True)
    adopted(lake, spec)
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).column("_gddl")
    assert rows.null_count == 0
    assert lake.ledger(spec).state.baseline is None
    assert not DeltaTable(lake.layout(spec).replica).metadata().configuration["gddl.baseline"]


def test_a_reload_sweeps_rows_of_the_baseline(lake: Lake) -> None:
    spec = spec_of(history=True, sweep_limit=1.0)
    adopted(lake, spec)
    lake.done(spec)
    lake.load(spec, rows=2)
    lake.done(spec)
    assert lake.replica(spec) == {0: "load 0", 1: "load 1"}
    verified(lake, spec)


def test_history_begins_with_the_rows_of_the_baseline(lake: Lake) -> None:
    spec = spec_of(history=True)
    adopted(lake, spec)
    lake.done(spec)
    versions = pa.table(DeltaTable(lake.layout(spec).history).scan()).to_pylist()
    assert sorted((row["id"], row["v"], row["__end_at"] is None) for row in versions) == [
        (0, "one", False), (2, "load 2", True), (7, "new", False), (7, "newer", True), (8, "late", True),
    ]  # fmt: skip


def test_explain_shows_a_row_of_the_baseline(lake: Lake) -> None:
    spec = spec_of()
    adopted(lake, spec)
    lake.done(spec)
    found = lake.done(spec, JobOptions(action=Explain(key={"id": "7"}))).details
    assert found["verdict"] == "equal"
    assert [(one["op"], one["sequence"]) for one in found["changes"]] == [("I", 102), ("U", 200)]
    found = lake.done(spec, JobOptions(action=Explain(key={"id": "2"}))).details
    assert [(one["op"], one["sequence"]) for one in found["changes"]] == [("R", None)]


def test_soft_deletes_are_set_after_the_adoption(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    assert code(lake, replace(spec, delete="soft"), adopting()) == "ADOPT_REFUSED"
    lake.done(spec, adopting())
    spec = replace(spec, delete="soft")
    lake.done(spec)
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    assert sorted((row["id"], row["_gddl"]["deleted"]) for row in rows) == [
        (0, True),
        (2, False),
        (7, False),
        (8, False),
    ]
    verified(lake, spec)


def test_another_writer_after_the_adoption_is_refused(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    table = kept(lake, spec, APPLIED)
    lake.done(spec, adopting())
    table.update_incremental()
    kept(lake, spec, {9: ("foreign", 1)}, mode="append", schema_mode="merge")
    assert code(lake, spec) == "FOREIGN_ROWS"
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == EXPECTED
    kept(lake, spec, {10: ("foreign", 1)}, mode="append", schema_mode="merge")
    lake.change(spec, 3, [("I", 11, "next")])
    assert code(lake, spec) == "FOREIGN_ROWS"


def append(lake: Lake, spec: TableSpec, *keys: int) -> DeltaTable:
    for key in keys:
        kept(lake, spec, {key: ("foreign", 1)}, mode="append", schema_mode="merge")
    return DeltaTable(lake.layout(spec).replica)


def optimize(lake: Lake, spec: TableSpec) -> None:
    """Rows of the other writer and of the baseline come into one file, by no change of data."""
    append(lake, spec, 9).optimize.compact()


def update_and_optimize(lake: Lake, spec: TableSpec) -> None:
    table = DeltaTable(lake.layout(spec).replica)
    table.update(predicate="id = 2", updates={"v": "'foreign'"})
    append(lake, spec, 9).delete("id = 9")
    table.update_incremental()
    table.optimize.compact()


def maintain(lake: Lake, spec: TableSpec) -> None:
    """Our own compaction takes rows of another writer along."""
    append(lake, spec, 9, 10, 11, 12)
    lake.done(spec, JobOptions(action=Maintain()))
    assert len(data_files(DeltaTable(lake.layout(spec).replica))) == 1


def overwrite(lake: Lake, spec: TableSpec) -> None:
    kept(lake, spec, {9: ("foreign", 1)}, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize("act", [optimize, update_and_optimize, maintain, overwrite])
def test_another_writer_is_refused_whatever_came_of_its_files(
    lake: Lake, act: Callable[[Lake, TableSpec], None]
) -> None:
    spec = spec_of()
    adopted(lake, spec)
    act(lake, spec)
    assert code(lake, spec) == "FOREIGN_ROWS"
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)


def test_compaction_by_another_writer_is_none_of_data(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    rows = list(APPLIED.items())
    kept(lake, spec, dict(rows[:1]))
    kept(lake, spec, dict(rows[1:]), mode="append")
    lake.done(spec, adopting())
    DeltaTable(lake.layout(spec).replica).optimize.compact()
    assert not lake.done(spec).warnings
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)


def test_a_lost_property_stops_the_table_until_a_rebuild(lake: Lake) -> None:
    spec = spec_of()
    adopted(lake, spec)
    DeltaTable(lake.layout(spec).replica).alter.set_table_properties({"gddl.baseline": ""}, raise_if_not_exists=False)
    assert code(lake, spec) == "BASELINE_LOST"
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == EXPECTED


REFUSED: dict[str, tuple[dict[int, tuple[str, int | None]] | pa.Table, dict[str, Any], str]] = {
    "duplicates": (pa.table({"id": [1, 1], "v": ["a", "b"], "seq": [1, 2]}), {}, "ADOPT_REFUSED"),
    "null key": (pa.table({"id": [1, None], "v": ["a", "b"], "seq": [1, 2]}), {}, "ADOPT_REFUSED"),
    "no key": (pa.table({"no": [1], "v": ["a"], "seq": [1]}), {}, "ADOPT_REFUSED"),
    "our column": (pa.table({"id": [1], "v": ["a"], "_gddl": [1]}), {}, "ADOPT_REFUSED"),
    "other type": (pa.table({"id": [1], "v": ["a"], "seq": ["x"]}), {}, "ADOPT_REFUSED"),
    "soft": (APPLIED, {"delete": "soft"}, "ADOPT_REFUSED"),
    "mask": (APPLIED, {"mask": {"v": "hash"}}, "ADOPT_REFUSED"),
    "partitions": (APPLIED, {"partition_by": ("v",)}, "ADOPT_REFUSED"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_write_nothing(lake: Lake, name: str) -> None:
    rows, fields, wanted = REFUSED[name]
    spec = spec_of(**fields)
    landed(lake, spec)
    if isinstance(rows, dict):
        kept(lake, spec, rows)
    else:
        write_deltalake(lake.layout(spec).replica, rows)
    for dry_run in (True, False):
        found = lake.result(spec, adopting(dry_run=dry_run))
        assert found.error is not None
        assert (found.error.code, "Remedy: " in found.error.message) == (wanted, True), found.error.message
    assert DeltaTable(lake.layout(spec).replica).version() == 0
    assert not Path(lake.layout(spec).changes).exists()


@pytest.mark.parametrize("note", ["__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"])
@pytest.mark.parametrize("nested", [False, True])
def test_columns_whose_notes_mean_more_than_their_type_are_refused(lake: Lake, note: str, nested: bool) -> None:
    spec = spec_of()
    noted = pa.field("w", pa.string(), metadata={note: "char(5)"})
    column = pa.field("s", pa.struct([noted])) if nested else noted
    rows = pa.table({"id": pa.array([1], pa.int32())}).append_column(column, pa.nulls(1, column.type))
    write_deltalake(lake.layout(spec).replica, rows)
    landed(lake, spec)
    found = lake.result(spec, adopting()).error
    assert found is not None
    assert (found.code, note in found.message) == ("ADOPT_REFUSED", True)
    assert DeltaTable(lake.layout(spec).replica).version() == 0


def test_without_a_table_there_is_nothing_to_adopt(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    assert code(lake, spec, adopting()) == "ADOPT_REFUSED"
    lake.done(spec)
    assert code(lake, spec, adopting()) == "ADOPT_REFUSED"


@pytest.mark.parametrize(
    "options",
    [
        {"files_until": "yesterday"},
        {"files_until": "9999-12-31T23:59:59-12:00"},
        {"files_until": (datetime.now(UTC) + timedelta(days=1)).isoformat()},
    ],
)
def test_a_cut_that_says_nothing_is_refused(lake: Lake, options: dict[str, Any]) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    assert code(lake, spec, adopting(**options)) == "ADOPT_REFUSED"


@pytest.mark.parametrize(
    ("stored", "delivered"),
    [
        (pa.array([date(2024, 1, 1)]), pa.array([datetime(2024, 1, 1, 4, tzinfo=UTC)], pa.timestamp("us", "UTC"))),
        (pa.array([Decimal(5)], pa.decimal128(10, 0)), pa.array([Decimal("5.25")], pa.decimal128(10, 2))),
        (pa.array([5], pa.int64()), pa.array([Decimal("5.25")], pa.decimal128(10, 2))),
        (pa.array([5.1], pa.float32()), pa.array([5.1], pa.float64())),
    ],
    ids=["date", "scale", "whole number", "float"],
)
def test_a_sequence_that_has_lost_its_fractions_is_refused(lake: Lake, stored: pa.Array, delivered: pa.Array) -> None:
    """Late files would undo the row: it seems older than it is."""
    spec = spec_of()
    lake.load(spec)
    aged(lake, spec)
    file = pa.table({"Op": ["U"], "seq": delivered, "id": pa.array([0], pa.int32()), "v": ["late"]})
    write(lake.landing(spec), "20240101-000000001.parquet", file)
    own = pa.table({"id": pa.array([0], pa.int32()), "v": ["new"], "seq": stored})
    write_deltalake(lake.layout(spec).replica, own)
    assert code(lake, spec, adopting()) == "ADOPT_REFUSED"


def test_load_files_after_the_cut_are_refused(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    os.utime(lake.landing(spec) / "LOAD00000001.parquet", (AFTER, AFTER))
    assert code(lake, spec, adopting()) == "ADOPT_REFUSED"


def test_without_a_sequence_files_have_to_be_in_order(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    write_deltalake(
        lake.layout(spec).replica, pa.table({"id": pa.array([0, 2, 7], pa.int32()), "v": ["one", "load 2", "new"]})
    )
    os.utime(lake.landing(spec) / "20240101-000000001.parquet", (AFTER, AFTER))
    os.utime(lake.landing(spec) / "20240101-000000002.parquet", (BEFORE, BEFORE))
    assert code(lake, spec, adopting()) == "ADOPT_REFUSED"
    os.utime(lake.landing(spec) / "20240101-000000002.parquet", (AFTER, AFTER))
    done = lake.done(spec, adopting())
    assert "ADOPT_NO_SEQUENCE" in {warning.code for warning in done.warnings}
    lake.done(spec)
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)


@pytest.mark.parametrize("confirmed", [True, False])
def test_release_gives_a_plain_table_back(lake: Lake, confirmed: bool) -> None:
    spec = spec_of(history=True)
    adopted(lake, spec)
    lake.done(spec)
    told = lake.done(spec, JobOptions(action=Adopt(mode="release", dry_run=True))).details["release"]
    assert told["tables"] == ["history", "tombstones", "changes"]
    if not confirmed:
        assert code(lake, spec, JobOptions(action=Adopt(mode="release"))) == "ADOPT_RELEASE_UNCONFIRMED"
        verified(lake, spec)
        return
    lake.done(spec, JobOptions(action=Adopt(mode="release", confirmed=True)))
    table = DeltaTable(lake.layout(spec).replica)
    assert lake.replica(spec) == EXPECTED
    assert [field.name for field in table.schema().fields] == ["id", "v", "seq"]
    assert not [name for name in table.metadata().configuration if name.startswith("gddl")]
    for name in ("changes", "history", "tombstones", "state"):
        left = [file for file in Path(getattr(lake.layout(spec), name)).rglob("*") if file.is_file()]
        assert [file for file in left if "claims" not in file.parts] == []
    assert code(lake, spec) == "TABLE_NOT_OURS"
    assert code(lake, spec, JobOptions(action=Adopt(mode="release", confirmed=True))) == "ADOPT_REFUSED"
    lake.done(spec, adopting(files_until="2025-06-01T00:00:00Z"))
    assert lake.done(spec).status == "skipped"
    verified(lake, spec)


def test_sequence_of_a_narrower_type(lake: Lake) -> None:
    """The column grows with the files, and what it says of the first rows stays."""
    spec = spec_of()
    landed(lake, spec)
    columns = {"id": pa.array([0, 2, 7], pa.int32()), "v": ["one", "load 2", "new"]}
    narrow = pa.table({**columns, "seq": pa.array([100, None, 102], pa.int16())})
    write_deltalake(lake.layout(spec).replica, narrow)
    found = lake.done(spec, adopting(dry_run=True)).details["adopt"]
    assert found["adds"] == ["widened seq smallint -> bigint"]
    lake.done(spec, adopting())
    verified(lake, spec)
    lake.done(spec)
    assert lake.replica(spec) == EXPECTED
    verified(lake, spec)


def test_columns_of_the_other_job_keep_their_values(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    columns = {"id": pa.array([0, 2, 7], pa.int32()), "v": ["one", "load 2", "new"], "Op": ["U", None, "I"]}
    own = pa.table({**columns, "seq": pa.array([100, None, 102], pa.int64()), "loaded": ["a", "b", "c"]})
    write_deltalake(lake.layout(spec).replica, own)
    lake.done(spec, adopting())
    lake.done(spec)
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    assert sorted((row["id"], row["v"], row["loaded"]) for row in rows if row["id"] < 8) == [
        (2, "load 2", "b"), (7, "newer", "c"),
    ]  # fmt: skip
    verified(lake, spec)


def test_maintenance_and_erasure_of_adopted_rows(lake: Lake) -> None:
    spec = spec_of(history=True)
    adopted(lake, spec)
    lake.done(spec)
    lake.done(spec, JobOptions(action=Erase(key={"id": "7"})))
    lake.done(spec, JobOptions(action=Maintain()))
    assert lake.replica(spec) == {2: "load 2", 8: "late"}
    verified(lake, spec)
    lake.change(spec, 3, [("U", 2, "changed")])
    lake.done(spec)
    assert lake.replica(spec) == {2: "changed", 8: "late"}
    verified(lake, spec)
    lake.done(spec, JobOptions(action=Adopt(mode="release", confirmed=True)))
    assert "ADOPT_ERASED" in {warning.code for warning in lake.done(spec, adopting()).warnings}


def test_repairs_do_not_replace_a_table_of_another_job(lake: Lake) -> None:
    spec = spec_of()
    landed(lake, spec)
    kept(lake, spec, APPLIED)
    assert code(lake, spec, JobOptions(action=Rebuild())) == "TABLE_NOT_OURS"
    assert code(lake, spec, JobOptions(action=Reload(confirmed=True))) == "TABLE_NOT_OURS"
    assert DeltaTable(lake.layout(spec).replica).version() == 0


SEQUENCES: dict[str, tuple[tuple[str, ...], dict[str, list[Any]]]] = {
    "two columns": (("a", "b"), {"a": [1, 1, 2, 2], "b": [1, 2, 1, 2]}),
    "text of one width": (("seq",), {"seq": ["0001", "0002", "0003", "0004"]}),
    "text of log positions": (("seq",), {"seq": ["0/9", "0/A", "0/10", "0/100"]}),
    "times": (("seq",), {"seq": [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]}),
    "times without a zone": (("seq",), {"seq": [datetime(2024, 1, day) for day in (1, 2, 3, 4)]}),  # noqa: DTZ001 - as said
    "decimals": (("seq",), {"seq": [Decimal(f"{n}.5") for n in (9, 10, 11, 100)]}),
}
"""Columns that order changes, and their values, rising."""


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_of_each_kind(lake: Lake, name: str) -> None:
    """A row of the table has the third; a file brings the second, which is late, and one the fourth."""
    columns, values = SEQUENCES[name]
    spec = replace(spec_of(), sequence_by=columns)

    def change(number: int, *rows: tuple[str, int, str, int]) -> None:
        known = {column: [values[column][row[3]] for row in rows] for column in columns}
        own = {"Op": [row[0] for row in rows], "id": pa.array([row[1] for row in rows], pa.int32())}
        table = pa.table({**own, "v": [row[2] for row in rows], **known})
        write(lake.landing(spec), f"20240101-{number:09d}.parquet", table)

    lake.load(spec)
    change(1, ("I", 7, "first", 0))
    change(2, ("U", 7, "third", 2))
    aged(lake, spec)
    stored = {column: [None, None, None, values[column][2]] for column in columns}
    kinds = {column: pa.array(values[column]).type for column in columns}
    table = pa.table({
        "id": pa.array([0, 1, 2, 7], pa.int32()), "v": ["load 0", "load 1", "load 2", "third"],
        **{column: pa.array(stored[column], kinds[column]) for column in columns},
    })  # fmt: skip
    write_deltalake(lake.layout(spec).replica, table)
    lake.done(spec, adopting())
    verified(lake, spec)
    change(3, ("U", 7, "second", 1))
    found = lake.done(spec)
    assert found.late_ignored == 1
    assert lake.replica(spec)[7] == "third"
    change(4, ("U", 7, "fourth", 3), ("U", 0, "changed", 3))
    lake.done(spec)
    assert lake.replica(spec) == {0: "changed", 1: "load 1", 2: "load 2", 7: "fourth"}
    verified(lake, spec)
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == {0: "changed", 1: "load 1", 2: "load 2", 7: "fourth"}


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(),
        JobOptions(action=Rebuild()),
        JobOptions(action=Reload(confirmed=True)),
        JobOptions(action=Maintain()),
    ],
    ids=["run", "rebuild", "reload", "maintain"],
)
def test_table_of_another_job_in_the_place_of_ours_is_left_alone(options: JobOptions, lake: Lake) -> None:
    spec = spec_of()
    source = Landed.of("7")
    source.land(lake, spec, range(3), AFTER)
    lake.done(spec)
    layout = lake.layout(spec)
    for path in (layout.replica, layout.changes):
        shutil.rmtree(path)
    write_deltalake(layout.replica, table_of(source.states[1]))
    source.land(lake, spec, [3], AFTER)
    lake.result(spec, options)
    assert lake.result(spec).error is not None
    assert code(lake, spec) == "TABLE_NOT_OURS"
    assert (DeltaTable(layout.replica).version(), lake.replica(spec)) == (0, values(source.states[1]))
