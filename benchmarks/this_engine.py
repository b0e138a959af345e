"""This project's side: whole jobs, with change table, tombstones, quarantine and ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
from measuring import Answer, Order, answer, order_of_child, peak_mib, steps_of
from workload import KEY, SCHEMA, TABLE, Folders

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime, Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.table_job import poll_table
from spark_jobs.spark.session import SessionSettings
from spark_jobs.spark.tasks import keep_freed_memory

SIDE = "engine"
TIER: TierSpec = DEFAULT_TIERS["large"]
# Tier `medium` without its bound, so that one task and many can be measured on either side of it.
WITHOUT_SPARK = replace(DEFAULT_TIERS["medium"], task_max_bytes=16 * 1024**3, task_memory="16g")


class JobFailedError(Exception):
    """A job whose result is not what the workload calls for."""


@dataclass
class Stopwatch:
    """Seconds by step: from the end of one step to the end of the next."""

    seconds: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def observe(self, step: Step) -> None:
        now = time.perf_counter()
        self.seconds[step.step] = self.seconds.get(step.step, 0.0) + now - self.last
        self.last = now


@dataclass(frozen=True)
class Side:
    """This side, as ordered."""

    spark: LazySpark
    tier: TierSpec
    iceberg: bool | int = False


def run(
    folders: Folders, side: Side, observe: Callable[[Step], None], rows: int, storage: Storage | None = None
) -> JobResult:
    """One job over what has landed.

    Raises:
        JobFailedError: it failed, or didn't apply exactly `rows` rows.
    """
    job = job_of(folders, side)
    shown: list[JobResult] = []
    run_job(job, Runtime(storage=storage or Storage(), spark=side.spark, observe=observe), shown.append)
    result = shown[0]
    done = (result.status, result.tasks, result.commit, result.rows_read, result.changes_written)
    is_behind = any(warning.code == "ICEBERG_BEHIND" for warning in result.warnings)
    if is_behind or done != ("succeeded", "one" if side.tier.in_one_task else "many", side.tier.commit, rows, rows):
        raise JobFailedError(f"{rows} rows expected: {result}")
    return result


def job_of(folders: Folders, side: Side) -> JobSpec:
    return JobSpec(
        run_id="benchmark",
        roots=Roots(landing=str(folders.landing), lake=str(folders.lake(SIDE))),
        tables=(TableSpec(table=TABLE, keys=(KEY,), size="large", iceberg=side.iceberg),),
        tiers={"large": side.tier},
    )


def start(folders: Folders, side: Side) -> None:
    """Start Spark as the job over what has landed would; not at all where that needs none."""
    if side.tier.in_one_task:
        return
    job = job_of(folders, side)
    found = poll_table(TableRun(job=job, spec=job.tables[0], runtime=Runtime(storage=Storage(), spark=side.spark)))
    if not isinstance(found, int):
        raise JobFailedError(f"it has something to do: {found}")
    side.spark.for_table(found)


def _load(folders: Folders, side: Side) -> float:
    """Seconds of the full load."""
    rows, started = _rows_of(folders.load_files()), time.perf_counter()
    run(folders, side, lambda _: None, rows)
    return time.perf_counter() - started


def _apply(folders: Folders, side: Side) -> Answer:
    """The timed part."""
    rows = _rows_of(folders.change_files())
    watch = Stopwatch()
    started = time.perf_counter()
    result = run(folders, side, watch.observe, rows)
    seconds = time.perf_counter() - started
    print(result)
    return Answer(seconds=seconds, peak_mib=peak_mib(), steps=steps_of(watch.seconds))


def _rows_of(files: list[Path]) -> int:
    return sum(pq.read_metadata(f).num_rows for f in files)


def export(folders: Folders, spark: LazySpark) -> None:
    session = spark.for_table()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows = session.read.format("delta").load(str(folders.replica(SIDE)))
    rows.select(*SCHEMA.names).write.parquet(str(folders.exported(SIDE)))


def main() -> None:
    keep_freed_memory()  # as the program does
    order: Order = order_of_child()
    folders, warm = Folders(Path(order.root)), Folders(Path(order.warm_root))
    spark = LazySpark(SessionSettings(cores=order.cores, memory=order.memory, single=True))
    side = Side(spark, replace(TIER if order.tasks == "many" else WITHOUT_SPARK, commit=order.commit), order.iceberg)
    if order.phase == "run":
        folders.deliver()
    start(folders, side)
    if order.phase == "load":
        seconds = _load(folders, side)
        jars = spark.for_table().sparkContext.getConf().get("spark.driver.extraClassPath", "")
        found = Answer(class_path=jars or "", seconds=seconds)
    else:
        _load(warm, side)
        warm.deliver()
        _apply(warm, side)
        found = _apply(folders, side)
        export(folders, spark)
    answer(order, found)
    spark.stop()


if __name__ == "__main__":
    main()
