"""What a rebuild says of the rows that it replaces, and where files of rows that were read come."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs.batch.resynced_files import ResyncedFiles
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.tables.rebuild import Replaced, compared


@pytest.mark.parametrize(("keys", "columns", "found"), [
    (("id",), ("id", "v"), Replaced(rows=3, rows_before=2, appear=2, vanish=1, change=1)),
    ((), ("id", "v"), Replaced(rows=3, rows_before=2)), (("id",), None, Replaced(rows=3)),
])  # fmt: skip
def test_rows_are_compared_by_their_keys(keys: tuple[str, ...], columns: Any, found: Replaced) -> None:
    before, after = [(1, "a"), (2, "b")], [(1, "new"), (3, "c"), (4, "d")]
    contents = SimpleNamespace(live_rows=lambda _columns: iter(before))
    live = SimpleNamespace(engine=SimpleNamespace(contents=lambda _live: contents))
    schema = SimpleNamespace(columns=("id", "v"), keys=keys)
    work, request = SimpleNamespace(rows=lambda _columns: iter(after)), SimpleNamespace(table_schema=schema, live=live)
    assert compared(cast("Any", work), cast("Any", request), columns) == found


@pytest.mark.parametrize(("cursor", "last"), [
    ("20240102-030405006.parquet", datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)),
    ("2024/01/02/20240102-030405006.parquet", datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)),
    (None, datetime.min.replace(tzinfo=UTC)),
])  # fmt: skip
def test_files_of_rows_that_were_read_come_after_the_newest_change_file(cursor: str | None, last: datetime) -> None:
    assert ResyncedFiles.of(cast("Any", None), TableState(cursor=cursor)).last == last
