"""New files reported by Spark's own file source: the very code that Auto Loader drives on Databricks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch.runtime import NoSpark, utc_now
from spark_jobs.discovery import AUTO_LOADER, SPARK_FILES, FileStreamSource
from spark_jobs.job.job_tables import run_job
from spark_jobs.ledger.claim import Claim
from tests.conftest import SPARK, LocalPort
from tests.harness.lake import Lake, spec_of

SPEC = spec_of("a")
TIER = TierSpec(tasks="many", tables_per_job=1)
LOADED = {0: "load 0", 1: "load 1", 2: "load 2"}
EACH_ALONE = SPARK_FILES.having({"maxFilesPerTrigger": "1"})


@dataclass
class Listings(Storage):
    """A store that counts the listings of landing folders."""

    count: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        self.count += "/landing/" in f"{folder}/"
        yield from super().list(folder, after, within)


class Unread(NoSpark):
    """Sessions in which the content of a file that is asked for is an error."""

    def for_table(self, _work: int | None = None, /) -> SparkSession:
        session = SPARK.for_table()
        session.conf.set("spark.sql.sources.binaryFile.maxLength", "1")
        return session


@dataclass
class Place:
    """A table whose files a stream tells of."""

    lake: Lake
    later: timedelta = timedelta(0)
    listings: Listings = field(default_factory=Listings)

    def run(self, source: FileStreamSource = SPARK_FILES) -> JobResult:
        self.listings.count = 0
        port = LocalPort("many")
        runtime = replace(port.runtime, storage=self.listings, spark=Unread(), files=source, clock=self._now)
        job = port.tiered(self.lake.job([SPEC]))
        (outcome,) = run_job(job, runtime, lambda _: None)
        return outcome.result

    def _now(self) -> datetime:
        return utc_now() + self.later

    def change(self, number: int, *rows: Any) -> None:
        self.lake.change(SPEC, number, list(rows))

    @property
    def checkpoint(self) -> Path:
        return self.lake.root / "lake" / "_gddl" / "streams" / "s" / "a" / "spark_files"

    @property
    def rows(self) -> dict[int, str]:
        return self.lake.replica(SPEC)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """Its first run is over: it listed."""
    if request.config.getoption("--tasks") == "one":
        pytest.skip("it takes Spark")
    made = Place(Lake(tmp_path, TIER))
    made.lake.load(SPEC)
    assert reported(made.run()) == ("succeeded", "initial", 1, [])
    assert (made.listings.count > 0, made.checkpoint.exists()) == (True, False)
    return made


def reported(result: JobResult) -> tuple[str, str, int, Sequence[str]]:
    assert result.error is None, result.error
    return result.status, result.mode, result.files, [warning.code for warning in result.warnings]


def test_stream_reports_new_files_without_listing(place: Place) -> None:
    place.change(2, ("U", 0, "first"), ("D", 1, None))
    assert reported(place.run()) == ("succeeded", "incremental", 1, [])
    assert (place.rows, place.listings.count) == ({0: "first", 2: "load 2"}, 0)
    assert reported(place.run())[0] == "skipped"
    # Also what has a name of long ago, in groups of one each: one run, one result.
    place.change(3, ("U", 0, "third"))
    place.change(1, ("U", 0, "late"), ("I", 5, "five"))
    result = place.run(EACH_ALONE)
    assert (reported(result), result.batches) == (("succeeded", "incremental", 2, ["BATCH_LATE"]), 2)
    assert (place.rows, place.listings.count) == ({0: "third", 2: "load 2", 5: "five"}, 0)


@pytest.mark.deep
def test_lost_checkpoint_is_harmless(place: Place) -> None:
    place.change(1, ("U", 0, "first"))
    place.run()
    shutil.rmtree(place.checkpoint)
    place.change(2, ("U", 0, "second"))
    result = place.run()
    assert (reported(result), result.redelivered) == (("succeeded", "incremental", 1, []), 0)
    assert (place.rows, place.listings.count) == ({**LOADED, 0: "second"}, 0)


@pytest.mark.deep
def test_failed_files_are_reported_again(place: Place) -> None:
    place.change(1, ("U", 0, "first"))
    with Claim.acquire(Storage(), place.lake.layout(SPEC).state, "somebody else", utc_now):
        busy = place.run()
    assert busy.error is not None
    assert busy.error.code == "TABLE_BUSY"
    assert reported(place.run()) == ("succeeded", "incremental", 1, [])
    assert place.rows == {**LOADED, 0: "first"}


@pytest.mark.deep
def test_full_listing_is_daily(place: Place) -> None:
    place.change(1, ("U", 0, "first"))
    place.later = timedelta(days=1, minutes=1)
    assert reported(place.run()) == ("succeeded", "incremental", 1, [])
    assert (place.listings.count > 0, place.rows) == (True, {**LOADED, 0: "first"})
    # The stream tells of it afterwards, and the ledger knows it.
    assert reported(place.run()) == ("skipped", "incremental", 0, [])
    assert place.listings.count == 0


@pytest.mark.deep
def test_reload_opens_a_generation(place: Place) -> None:
    """Spark's own source tells of no name twice, as Auto Loader does of overwritten files: it is begun anew."""
    place.change(1, ("U", 0, "first"))
    place.run()
    place.lake.load(SPEC, rows=2)
    shutil.rmtree(place.checkpoint)
    assert reported(place.run())[:2] == ("succeeded", "incremental")
    assert place.rows == {0: "load 0", 1: "load 1"}


class Reading(FileStreamSource):
    """A source that asks for what is in the files, which the sessions of these tests refuse."""

    def files(self, session: SparkSession, folder: str) -> DataFrame:
        read = session.readStream.format(self.format).schema(self.schema or "").load(folder)
        return read.selectExpr("path", "length AS size", "unix_millis(modificationTime) AS modified", "content")


def test_failed_stream_falls_back_to_listing_with_a_warning(place: Place) -> None:
    of_content = Reading(name="reading", format="binaryFile", schema=SPARK_FILES.schema)
    sources = ((AUTO_LOADER, "cloudFiles"), (of_content, "binaryFile"))  # the first is not in open Spark
    for number, (source, says) in enumerate(sources, start=1):
        place.change(number, ("U", 0, says))
        result = place.run(source)
        assert reported(result) == ("succeeded", "incremental", 1, ["FILE_STREAM_FAILED"])
        assert says in result.warnings[0].message
        assert place.rows == {**LOADED, 0: says}
