"""A landing folder that can't be listed stops its own table alone, where one stream tells of all folders."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Continuous, JobOptions, TableSpec, TierSpec
from spark_jobs.continuous.schedule import ANYWAY_SECONDS
from tests.harness.lake import Lake
from tests.harness.waiting import wait_for
from tests.one_task.test_continuous import Source, specs_of
from tests.spark.children import Child


def records(source: Source, spec: TableSpec) -> list[dict[str, Any]]:
    folder = Path(Layout.of(source.lake.roots, spec).runs)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def failures(source: Source, spec: TableSpec) -> set[str]:
    """Codes in the records of the table's runs."""
    return {record["error"]["code"] for record in records(source, spec) if record["status"] == "failed"}


def heard_after(source: Source, spec: TableSpec) -> float:
    """Seconds from a new file of the table to the begin of the run that takes it; the run comes to its end first."""
    landing = Path(source.lake.layout(spec).landing)
    landed = datetime.now(UTC)
    source.change(spec)
    files = len(list(landing.glob("*.parquet")))
    wait_for(lambda: sum(one["files"] for one in records(source, spec)) == files)
    began = max(datetime.fromisoformat(one["started_at"]) for one in records(source, spec))
    return (began - landed).total_seconds()


@pytest.mark.deep
def test_stream_excludes_folder_until_it_can_be_listed(tmp_path: Path) -> None:
    """One is barred before the job begins, another one while it runs."""
    lake = Lake(tmp_path, TierSpec(tasks="many", cores=2))
    a, *others = specs_of("a", "b", "c")
    b, c = (replace(spec, freshness="20s") for spec in others)  # polled every 5 s beside the stream
    source = Source(lake, [a, b, c])
    source.load()
    barred = {spec.table: Path(lake.layout(spec).landing) for spec in (b, c)}
    job = lake.job(source.specs, JobOptions(continuous=Continuous()))
    try:
        barred[b.table].chmod(0)
        with Child("tests.spark.without_rights", ["--spec", to_json(job)]) as child:
            wait_for(lambda: source.is_taken(a, c) and bool(failures(source, b)))
            source.change(c)
            heard = [heard_after(source, a)]
            wait_for(lambda: source.is_taken(a, c))
            barred[c.table].chmod(0)
            source.change(a, c)
            wait_for(lambda: bool(failures(source, c)))
            wait_for(lambda: source.is_taken(a))
            heard.append(heard_after(source, a))
            assert not source.is_taken(c)
            for folder in barred.values():
                folder.chmod(0o755)
            wait_for(source.is_taken)
            os.kill(child.pid, signal.SIGTERM)
            ended = child.end(60)
    finally:
        for folder in barred.values():
            folder.chmod(0o755)
    assert ended.status == 0, ended.err
    assert failures(source, b) == failures(source, c) == {"STORAGE_DENIED"}
    assert failures(source, a) == set()
    assert max(heard) < ANYWAY_SECONDS / 2, "the others are heard of by the stream"
    source.check()
