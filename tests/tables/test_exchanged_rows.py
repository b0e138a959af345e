"""Rows that tasks of one machine exchange by files come to their range, all of them."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores import Storage
from spark_jobs.tables.places import InProcess, WorkOnRows, WriteRows, by_range

PARTS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b"]), st.text(max_size=3)), max_size=6))
"""For each part its rows: number of the range, table, value."""
Part = tuple[int, Sequence[tuple[int, str, str]]]


@dataclass(frozen=True)
class Collect:
    """A `KeyWork` that reports the rows of each range."""

    def split(self, storage: Storage, part: Part) -> Iterator[tuple[int, str, pa.Table]]:  # noqa: ARG002 - as Work
        for number, table, value in part[1]:
            yield number, table, pa.table({"range": [number], "value": [value], "part": [part[0]]})

    def __call__(self, storage: Storage, rows: Mapping[str, Sequence[pa.Table]]) -> bytes:  # noqa: ARG002 - as Work
        found = {name: sorted(map(str, pa.concat_tables(tables).to_pylist())) for name, tables in rows.items()}
        return json.dumps(found, sort_keys=True).encode()

    def file_of(self, part: Part) -> str:
        return f"part {part[0]}"


def through_files(folder: Path, parts: Sequence[Part]) -> list[bytes]:
    storage = Storage()
    reports = [WriteRows(Collect(), str(folder))(storage, part) for part in parts]
    return [WorkOnRows(Collect())(storage, places) for places in by_range(reports)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS)
def test_rows_come_to_their_range_as_in_one_process(parts: list[list[tuple[int, str, str]]], tmp_path: Path) -> None:
    numbered = list(enumerate(parts))
    wanted = InProcess(Storage()).run_by_key(Collect(), numbered, 5)
    assert sorted(through_files(tmp_path, numbered)) == sorted(wanted)


def test_the_largest_range_comes_first_and_names_a_file_that_was_read(tmp_path: Path) -> None:
    parts: list[Part] = [(7, [(0, "a", "x"), (3, "a", "x" * 5000)]), (8, [(0, "b", "y")])]
    ranges = by_range([WriteRows(Collect(), str(tmp_path))(Storage(), part) for part in parts])
    assert [[(place.table, place.source) for place in places] for places in ranges] == [
        [("a", "part 7")],
        [("a", "part 7"), ("b", "part 8")],
    ]
    assert WorkOnRows(Collect()).file_of(ranges[1]) == "part 7"


def test_a_disk_that_is_full_is_named_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(RetriableError, match="DISK_FULL"):
        WriteRows(Collect(), str(tmp_path))(Storage(), (1, [(0, "a", "x")]))
