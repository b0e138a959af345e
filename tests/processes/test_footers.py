"""Footers of parquet files: ours says what pyarrow's does, and a footer that ends pyarrow's process ends none here."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import chunks_of
from airflow_gddl.tools.onboarding.landing import Landing
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import probe
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.file_rows import read_file

_OPTIONAL, _REQUIRED = b"\x25\x02\x18\x02id", b"\x25\x00\x18\x02id"
"""Of the schema's element `id`: its repetition (field 3), then its name (field 4)."""


def contradictory() -> bytes:
    """A column that the schema calls required, with the histogram of definition levels of an optional one."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"Op": ["I"], "seq": [1], "id": [7], "parts": [[1, 2]]}), sink)
    data = sink.getvalue()
    assert data.count(_OPTIONAL) == 1
    return data.replace(_OPTIONAL, _REQUIRED)


def planned(path: Path) -> PlannedFile:
    return PlannedFile(
        path=str(path), kind="change", format="parquet", size=path.stat().st_size, etag="", modified="",
        fingerprint="", generation=1,
    )  # fmt: skip


def test_pyarrow_still_ends_the_process() -> None:
    """Else the footers' reader in `stores/readers.py` can go."""
    code = "import pyarrow.parquet as p, sys, io\n"
    code += "p.read_metadata(io.BytesIO(sys.stdin.buffer.read())).row_group(0).column(2)"
    done = subprocess.run([sys.executable, "-c", code], input=contradictory(), capture_output=True, check=False)
    assert b"histogram size mismatch" in done.stderr
    assert done.returncode < 0


@pytest.mark.parametrize("most", [1, 2**30])
def test_a_contradictory_footer_is_no_readable_file(tmp_path: Path, most: int) -> None:
    """Within its process: were it to end, so would these tests."""
    path = tmp_path / "20240101-000000001.parquet"
    path.write_bytes(contradictory())
    found = read_file(Storage(), probe(Storage(), planned(path), DmsOptions(), most))
    assert isinstance(found, Unreadable)
    assert (found.code, "histogram" in found.reason) == ("FILE_UNREADABLE", True)


def test_onboarding_reads_a_contradictory_footer(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "t"
    folder.mkdir(parents=True)
    (folder / "20240101-000000001.parquet").write_bytes(contradictory())
    (found,) = Landing(str(tmp_path), {}).folders()
    assert [footer.rows for footer in found.footers] == [1]


def tables() -> dict[str, pa.Table]:
    rng = random.Random(1)  # noqa: S311 - no secret
    return {
        "plain": pa.table({"id": range(100), "v": ["x", None] * 50}),
        "nested": pa.table({"l": [[1], None, []] * 9, "s": [{"a": [{"b": 1}]}] * 27, "d": [rng.random()] * 27}),
        "wide": pa.table({f"c{number}": [number, None] for number in range(300)}),
        "empty": pa.table({"id": pa.array([], pa.int64())}),
    }


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "write_statistics": False}, {"row_group_size": 7}])
def test_chunks_are_those_that_pyarrow_finds(name: str, options: dict[str, object]) -> None:
    sink = io.BytesIO()
    pq.write_table(tables()[name], sink, **options)
    meta = pq.read_metadata(sink)
    theirs = [[meta.row_group(g).column(c) for c in range(meta.num_columns)] for g in range(meta.num_row_groups)]
    assert [
        [(c.values, c.nulls, c.inflated, c.has_dictionary) for c in group]
        for group in chunks_of(sink, meta.num_columns)
    ] == [
        [
            (
                c.num_values,
                c.statistics.null_count if c.statistics is not None and c.statistics.has_null_count else None,
                c.total_uncompressed_size,
                c.has_dictionary_page,
            )
            for c in group
        ]
        for group in theirs
    ]


def _deep(data: bytes) -> bytes:
    footer = b"\x49" + b"\x19" * 5000  # the list `row_groups` of a list of a list …
    return data[:-8] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _cut(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8 - length // 2]
    return data[:-8] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _long_number(data: bytes) -> bytes:
    footer = b"\x16" + b"\xff" * 100_000
    return data[:-8] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("change", [_deep, _cut, _long_number])
def test_damaged_footers_are_errors(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="footer"):
        chunks_of(io.BytesIO(change(contradictory())), 4)
