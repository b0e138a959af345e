"""Commits: once, at the version that was read, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import RetriableError
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import parse_type
from spark_jobs.runtime import utc_now
from spark_jobs.storage import Storage

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def opened() -> Tables:
    return Tables(Storage(), utc_now)


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "t")
    opened().create(found, (Column("id", parse_type("bigint")),), {})
    return found


def count(path: str) -> int:
    return pa.table(DeltaTable(path).scan()).num_rows


def test_a_transaction_is_made_once(path: str) -> None:
    for _ in range(2):
        opened().commit(path, Write(app="gddl:append", version=7, added=[ROWS]))
    opened().commit(path, Write(app="gddl:append", version=6, added=[ROWS]))
    assert count(path) == 2
    opened().commit(path, Write(app="gddl:append", version=8, added=[ROWS]))
    assert count(path) == 4


@pytest.mark.parametrize("once", [True, False])
def test_whoever_read_an_older_version_is_refused(once: bool, path: str) -> None:
    """Also when it doesn't ask for the transaction, because it began the batch itself and has lost its claim since."""
    slow, quick = opened(), opened()
    slow.existing(path)
    quick.commit(path, Write(app="gddl:append", version=7, added=[ROWS]))
    with pytest.raises(RetriableError) as caught:
        slow.commit(path, Write(app="gddl:append", version=7, added=[ROWS], once=once))
    assert caught.value.code == "DELTA_CONFLICT"
    assert count(path) == 2


def test_metrics_are_found_by_their_transaction(path: str) -> None:
    tables = opened()
    tables.commit(path, Write(app="gddl:append", version=7, added=[ROWS], metrics={"numOutputRows": 2}))
    assert tables.metrics(path, "gddl:append", 7) == {"numOutputRows": 2}
    assert tables.metrics(path, "gddl:append", 8) == {}
