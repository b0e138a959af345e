"""Write the archive of Java classes with which an embedded Spark starts sooner (`spark_jobs.spark.jars`).

    python -m spark_jobs.spark.write_class_archive

It starts Spark, works on a table, and prints the path of the archive: some 200 MB in `share/airflow-gddl` of the Python
environment. An archive that is there already stays. Where the environment is made, e.g. in a Dockerfile, is the place
to run it; a new pyspark, delta-spark or Java needs another one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from spark_jobs.spark.jars import WRITE, archive_of
from spark_jobs.spark.session import FOR_FEW_ROWS, class_path_of, configure, open_session, scratch_of
from spark_jobs.spark.session_settings import SessionSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def main() -> None:
    """Print the path of the archive, written now if need be; exit status 1 when Java wrote none."""
    settings = SessionSettings(memory="2g", brief=True)
    with tempfile.TemporaryDirectory() as work:
        archive = archive_of(class_path_of(settings, Path(work)), os.environ)
        if not archive.exists():
            _write(archive, settings, Path(work))
    print(archive)  # noqa: T201 - the command's answer


def _write(archive: Path, settings: SessionSettings, work: Path) -> None:
    staged = work / "classes.jsa"
    session = open_session(replace(settings, extra={WRITE: str(staged)}))
    _work_on_a_table(session, str(work / "table"))
    _end(session)
    if not staged.exists():
        raise SystemExit("Java wrote no archive of classes; Spark starts without one")
    archive.parent.mkdir(parents=True, exist_ok=True)
    beside = archive.with_suffix(f".{os.getpid()}")
    shutil.move(staged, beside)
    beside.replace(archive)  # at once: a job may be starting


def _work_on_a_table(session: SparkSession, path: str) -> None:
    """What jobs do most, so that the classes for it are loaded."""
    configure(session, FOR_FEW_ROWS)

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = session.range(9).selectExpr("id", "cast(id AS string) AS text", "named_struct('id', id) AS part")
    DeltaTable.createIfNotExists(session).location(path).addColumns(rows.schema).execute()
    changes = rows.repartition(2, "id").mapInArrow(same, rows.schema)
    changes.write.format("delta").mode("append").option("txnAppId", "archive").option("txnVersion", "1").save(path)
    merge = DeltaTable.forPath(session, path).alias("t").merge(changes.alias("s"), "t.id = s.id AND t.id < 5")
    merge.whenMatchedUpdate("s.id < 3", {"text": "s.text"}).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    session.read.format("delta").load(path).groupBy("id").count().toArrow()


def _end(session: SparkSession) -> None:
    """Java writes the archive when it ends, and it ends with its standard input."""
    scratch = scratch_of(session)
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to its Java process
    session.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
