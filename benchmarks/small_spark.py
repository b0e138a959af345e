"""A child that keeps a few small tables with Spark: this project's engine, one by one or at once, or by hand."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import handwritten
from delta.tables import DeltaTable
from measuring import Answer, peak_mib
from pyspark.sql import SparkSession
from small_folders import SmallFolders
from this_engine import JobFailedError
from workload import Folders

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session_settings import SessionSettings

CORES, MEMORY = 2, "4g"


@dataclass(frozen=True, kw_only=True)
class SmallOrder:
    """Attributes:
    side: `one_by_one`, `at_once` or `by_hand`.
    names: tables; the first is the warm-up and not timed.
    answer: file for the `Answer`.
    """

    side: str
    root: str
    names: tuple[str, ...]
    rounds: int
    answer: str


def keep(order: SmallOrder, spark: LazySpark) -> float:
    """This engine's way; seconds of the rounds."""
    folders = SmallFolders(Path(order.root), order.names)
    folders.land(order.side, folders.made.load_files())
    seconds = 0.0
    for number, file in enumerate([None, *folders.made.change_files()[: order.rounds]]):
        if file is not None:
            folders.land(order.side, [file])
        job = folders.job(order.side, f"round-{number}", folders.tier("many", CORES))
        warm, timed = replace(job, tables=job.tables[:1]), replace(job, tables=job.tables[1:])
        _run(warm, spark)
        started = time.perf_counter()
        for part in [timed] if order.side == "at_once" else [replace(job, tables=(t,)) for t in timed.tables]:
            _run(part, spark)
        seconds += time.perf_counter() - started if file is not None else 0.0
    return seconds


def _run(job: JobSpec, spark: LazySpark) -> None:
    outcomes = run_job(job, Runtime(storage=Storage(), spark=spark), lambda _: None)
    failed = [o.result for o in outcomes if o.result.status != "succeeded"]
    if failed:
        raise JobFailedError(str(failed[0]))


def by_hand(order: SmallOrder, spark: SparkSession) -> float:
    """The hand-written MERGE, table by table; seconds of the rounds."""
    folders = SmallFolders(Path(order.root), order.names)
    places = [_Placed(folders.made.root, folders.replica(order.side, name)) for name in order.names]
    for place in places:
        handwritten.load(spark, place)
    seconds = 0.0
    for file in folders.made.change_files()[: order.rounds]:
        handwritten.apply_file(spark, places[0], file)
        started = time.perf_counter()
        for place in places[1:]:
            handwritten.apply_file(spark, place, file)
        seconds += time.perf_counter() - started
    if not DeltaTable.isDeltaTable(spark, str(places[-1].replica(handwritten.SIDE))):
        raise JobFailedError("no replica was written")
    return seconds


@dataclass(frozen=True)
class _Placed(Folders):
    """The files of all tables, and the replica of one."""

    place: Path

    def replica(self, side: str) -> Path:  # noqa: ARG002 - one side has this folder
        return self.place


def main() -> None:
    order = from_json(SmallOrder, Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = LazySpark(SessionSettings(cores=CORES, memory=MEMORY, brief=True))
    seconds = by_hand(order, spark.for_table()) if order.side == "by_hand" else keep(order, spark)
    Path(order.answer).write_text(to_json(Answer(seconds=seconds, peak_mib=peak_mib())), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
