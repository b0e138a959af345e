"""Write the archive of Java classes with which Spark starts sooner (`spark_jobs.spark.class_archive`).

    python -m spark_jobs.spark.write_class_archive [--s3a]

It starts Spark, works on a table, and prints the path of the archive: some 200 MB beside the cached JARs. An archive
that is there already stays. Jobs have it written by themselves; a Dockerfile runs this command, so that the first job
of each container has it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.spark import class_archive
from spark_jobs.spark.session import FOR_FEW_ROWS, class_path_of, configure, open_session, scratch_of
from spark_jobs.spark.session_settings import SessionSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LONGEST = 900
"""Seconds after which an attempt in the background ends; a quiet machine with two cores needs 30."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the path of the archive, written now if need be; exit status 1 when Java wrote none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(class_archive.S3A, action="store_true", help="for jobs with a root on S3")
    parser.add_argument(class_archive.IN_BACKGROUND, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.in_background:
        _yield_to_others()
    os.environ.update(class_archive.writing_environment(os.environ))
    settings = SessionSettings(memory="1g", brief=True, s3=args.s3a)
    with tempfile.TemporaryDirectory() as work:
        class_path = class_path_of(settings, Path(work))
        archive = class_archive.archive_of(class_path, os.environ)
        if archive is None:
            if not class_archive.is_possible(class_path, os.environ):
                raise SystemExit("Java takes no archive of classes where a folder is on the class path of Spark")
            name = class_archive.name_of(class_path, os.environ)
            try:
                archive = _write(name, settings, Path(work))
            except BaseException:
                if args.in_background:
                    class_archive.give_up(name)
                raise
    sys.stdout.write(f"{archive}\n")


def _yield_to_others() -> None:
    """Take only processor time that nobody else wants, and end after a while; Java, a child, does the same."""
    os.nice(19)
    with suppress(AttributeError, OSError):  # of Linux
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(_LONGEST)  # ends this process, and Java ends with its standard input


def _out_of_time(*_: object) -> None:
    raise SystemExit("Java wrote no archive of classes in time; Spark starts without one")


def _write(name: Path, settings: SessionSettings, work: Path) -> Path:
    name.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place: of an attempt that is killed, the next one removes what it left.
    folder = scratch_folders.make("classes", name.parent)
    try:
        staged = folder / "classes.jsa"
        session = open_session(replace(settings, extra={class_archive.WRITE: str(staged)}))
        _work_on_a_table(session, str(work / "table"))
        ended = _end(session)
        if ended or not staged.exists():
            raise SystemExit("Java wrote no archive of classes; Spark starts without one")
        return class_archive.put(staged, name)
    finally:
        scratch_folders.remove(folder)


def _work_on_a_table(session: SparkSession, path: str) -> None:
    """What jobs do most, so that the classes for it are loaded."""
    configure(session, FOR_FEW_ROWS)

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = session.range(9).selectExpr("id", "cast(id AS string) AS text", "named_struct('id', id) AS part")
    session.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    DeltaTable.createIfNotExists(session).location(path).addColumns(rows.schema).execute()
    changes = rows.repartition(2, "id").mapInArrow(same, rows.schema)
    changes.write.format("delta").mode("append").option("txnAppId", "archive").option("txnVersion", "1").save(path)
    merge = DeltaTable.forPath(session, path).alias("t").merge(changes.alias("s"), "t.id = s.id AND t.id < 5")
    merge.whenMatchedUpdate("s.id < 3", {"text": "s.text"}).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    session.read.format("delta").load(path).groupBy("id").count().toArrow()


def _end(session: SparkSession) -> int:
    """Exit status of Java, which writes the archive when it ends, and ends with its standard input."""
    scratch = scratch_of(session)
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to its Java process
    session.stop()
    gateway.proc.stdin.close()
    status: int = gateway.proc.wait()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    return status


if __name__ == "__main__":
    main()
