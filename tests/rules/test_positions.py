"""What the position of a change says of the batch that has read its file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.rules.positions import FILE_BITS, readings, replayed_position, row_in_file, runs_of

_OF_FIFTH_FILE, _THIRD_RUN = 5 << FILE_BITS, 3 << 33


def gddl(batch_id: str, position: int) -> dict[str, pa.Array]:
    return {
        "batch_id": pa.array([batch_id]), "position": pa.array([position], pa.int64()),
        "source_file": pa.array(["/l/s/t/20240101-000000001.parquet"]),
    }  # fmt: skip


@pytest.mark.parametrize(("read_by", "run"), [("000000000003", 3), ("000000000003r", 0)])
@pytest.mark.parametrize("is_replayed", [True, False])
def test_run_of_a_place_is_none_of_a_refresh(read_by: str, run: int, is_replayed: bool) -> None:
    """A refresh, whose batch ends with r, numbers its files alone; a row from its quarantine comes in another batch."""
    position = _OF_FIFTH_FILE + _THIRD_RUN + 7
    one = gddl("000000000009", replayed_position(read_by, position)) if is_replayed else gddl(read_by, position)
    assert runs_of(one).tolist() == [run]
    if run:
        assert row_in_file(one).to_pylist() == [7]


@pytest.mark.parametrize("read_by", ["000000000003", "000000000003r"])
def test_replayed_row_is_of_the_batch_that_has_read_its_file(read_by: str) -> None:
    one = gddl("000000000009", replayed_position(read_by, _OF_FIFTH_FILE + 7))
    assert readings(one)[0].to_pylist() == [read_by]
