"""Of stored rows those of a batch's keys alone are put into ranges of keys, and other files are not read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.stores import Storage
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.snapshots import DataFile
from spark_jobs.tables.table_rows import AT_FILE, AT_ROW, Source, by_key, files_with, keys_of, matching

FILES, ROWS = 5, 100


class Watched(Storage):
    """A store that knows which data files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_input(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input(path)


def text_of(number: int) -> str:
    return f"k{number:05d}"


@pytest.fixture(params=["int", "string", "two"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Watched, Tables, str, tuple[str, ...]]:
    """A table of `FILES` files of `ROWS` rows each, in order of the key."""
    path = str(tmp_path / "t")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "text": list(map(text_of, ids)), "v": [n % 7 for n in ids]})
        write_deltalake(path, rows, mode="append")
    storage = Watched()
    names = {"int": ("id",), "string": ("text",), "two": ("id", "text")}[request.param]
    return storage, Tables(storage, lambda: datetime.now(UTC)), path, names


def found(tables: Tables, path: str, names: tuple[str, ...], numbers: list[int]) -> pa.Table:
    """Rows that a rule gets, of these keys."""
    snapshot = tables.existing(path)
    source = Source.of(snapshot, lambda rows: rows)
    keys = pa.table({"id": pa.array(numbers, pa.int64()), "text": pa.array(list(map(text_of, numbers)), pa.string())})

    def rule(_: Storage, rows: Mapping[str, pa.Table]) -> pa.Table:
        return rows["stored"]

    wanted = Source(
        table=source.table, files=source.files, schema=source.schema, prepare=source.prepare, wanted=keys.select(names)
    )
    kinds = pa.schema([source.schema.field(name) for name in names])
    return pa.concat_tables(by_key(tables, {"stored": wanted}, kinds, rule))


def test_rows_of_wanted_keys_have_their_places(table: tuple[Watched, Tables, str, tuple[str, ...]]) -> None:
    _, tables, path, names = table
    rows = found(tables, path, names, [3, 101, 199, 9_999])
    assert sorted(rows.column("id").to_pylist()) == [3, 101, 199]
    files = tables.existing(path).files
    for row in rows.to_pylist():
        file = files[row[AT_FILE]]
        stored = tables.read_files(tables.existing(path), [file]).slice(row[AT_ROW], 1).to_pylist()[0]
        assert stored == {name: row[name] for name in ("id", "text", "v")}


def test_files_without_a_wanted_key_are_not_read(table: tuple[Watched, Tables, str, tuple[str, ...]]) -> None:
    storage, tables, path, names = table
    tables.existing(path)
    storage.opened.clear()
    rows = found(tables, path, names, [250])
    assert rows.column("id").to_pylist() == [250]
    assert len(set(storage.opened)) <= 1


def test_no_wanted_key_is_there(table: tuple[Watched, Tables, str, tuple[str, ...]]) -> None:
    _, tables, path, names = table
    rows = found(tables, path, names, [70_000])
    assert rows.num_rows == 0
    assert {"id", "text", "v", AT_FILE, AT_ROW} <= set(rows.column_names)


def test_keys_of_a_source_are_each_there_once(table: tuple[Watched, Tables, str, tuple[str, ...]]) -> None:
    _, tables, path, _ = table
    source = Source.of(tables.existing(path), lambda rows: rows)
    assert sorted(keys_of(tables, source, ("v",)).column("v").to_pylist()) == list(range(7))
    assert pc.count_distinct(keys_of(tables, source, ("id", "v")).column("id")).as_py() == FILES * ROWS


def data_file(low: object, high: object, **values: object) -> DataFile:
    return DataFile("f", 1, values=values, low={"k": low}, high={"k": high})


@pytest.mark.parametrize("is_text", [False, True])
@given(
    keys=st.lists(st.integers(0, 300)),
    ends=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40))),
    spread=st.sampled_from([0, 10_000]),
)
def test_files_with_a_key_between_their_bounds_are_found(
    is_text: bool, keys: list[int], ends: list[tuple[int, int]], spread: int
) -> None:
    """However many keys there are: with a hundred times as many, a look at some of them has to decide."""

    def value(number: int) -> object:
        return f"{number:07d}" if is_text else number

    beside = range(400, 400 + spread)  # of which no file has one
    wanted = pa.table({"k": pa.array(map(value, [*keys, *beside]), pa.string() if is_text else pa.int64())})
    files = [data_file(value(low), value(low + more)) for low, more in ends]
    expected = [at for at, (low, more) in enumerate(ends) if any(low <= key <= low + more for key in keys)]
    assert files_with(files, wanted, ("k",)) == expected


def test_files_of_other_partitions_hold_no_key() -> None:
    wanted = pa.table({"k": [5, 6], "day": ["a", "b"]})
    files = [data_file(1, 9, day=day) for day in ("a", "c", None)]
    assert files_with(files, wanted, ("k", "day")) == [0]
    assert files_with(files, wanted, ("k",)) == [0, 1, 2]


@pytest.mark.parametrize("bound", [None, 1.5, "x"])
def test_bounds_that_do_not_compare_say_nothing(bound: object) -> None:
    assert files_with([data_file(bound, bound)], pa.table({"k": [7]}), ("k",)) == [0]
    assert files_with([data_file(8, 9)], pa.table({"k": pa.array([None], pa.int64())}), ("k",)) == [0]


FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), FLOATS, st.sampled_from(["a", "b", None]))),
    keys=st.lists(st.tuples(st.integers(0, 3), FLOATS, st.sampled_from(["a", "b", None]))),
)
def test_rows_match_by_all_columns_of_their_key(
    rows: list[tuple[int, float | None, str | None]], keys: list[tuple[int, float | None, str | None]]
) -> None:
    """A row that has the first column of one key and the second of another has none of them."""
    names, kinds = ("k", "f", "t"), (pa.int64(), pa.float64(), pa.string())

    def table_of(values: list[tuple[int, float | None, str | None]]) -> pa.Table:
        return pa.table({n: pa.array([v[at] for v in values], kinds[at]) for at, n in enumerate(names)})

    def plain(value: tuple[int, float | None, str | None]) -> tuple[object, ...]:
        return tuple("nan" if v != v else v for v in value)  # noqa: PLR0124 - only a NaN differs from itself

    wanted = set(map(plain, keys))
    expected = [at for at, row in enumerate(rows) if plain(row) in wanted]
    assert matching(table_of(rows), table_of(keys), names).tolist() == expected
