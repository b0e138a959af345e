"""What a rebuild says of the rows that it replaces, and where files of rows that were read come."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from spark_jobs.batch.resynced_files import ResyncedFiles
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.tables.swap import Replaced, compared


def test_rows_are_compared_by_their_keys() -> None:
    """Of tables whose keys differ in their types."""
    before, after = pa.table({"id": [1, 2], "v": ["a", "b"]}), [(1, "new"), (3, "c"), (4, "d")]
    live = SimpleNamespace(layout=SimpleNamespace(replica="t"))
    tables, request = (
        SimpleNamespace(each_file=lambda _: [before]),
        SimpleNamespace(table_schema=SimpleNamespace(keys=("id",))),
    )
    work = SimpleNamespace(live=live, tables=tables, request=request, rows=lambda _columns: iter(after))
    found = compared(cast("Any", work), ("id", "v"))
    assert found == Replaced(rows=3, rows_before=2, appear=2, vanish=1, change=1)


@pytest.mark.parametrize(("cursor", "last"), [
    ("20240102-030405006.parquet", datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)),
    ("2024/01/02/20240102-030405006.parquet", datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)),
    (None, datetime.min.replace(tzinfo=UTC)),
])  # fmt: skip
def test_files_of_rows_that_were_read_come_after_the_newest_change_file(cursor: str | None, last: datetime) -> None:
    assert ResyncedFiles.of(cast("Any", None), TableState(cursor=cursor)).last == last
