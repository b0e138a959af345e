"""A process that loses its Spark in each way, and starts another: `python -m tests.spark.lost_child`.

It prints a JSON object a Spark: process, scratch folder, a sum; last the folders that are left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark.session_settings import SessionSettings


def main() -> int:
    spark = LazySpark(SessionSettings(cores=1, memory="1g", brief=True))
    folders = []
    for lose in (_kill, _stop, _leave):
        session = spark.for_table()
        folders.append(str(session.conf.get("spark.gddl.scratch")))
        total = session.range(5).groupBy().sum("id").collect()[0][0]
        print(json.dumps({"pid": _pid(), "folder": folders[-1], "sum": total, "losses": spark.losses()}), flush=True)
        lose(session)
    spark.stop()
    print(json.dumps([folder for folder in folders if Path(folder).exists()]))
    return 0


def _pid() -> int:
    return int(SparkContext._gateway.proc.pid)


def _kill(_session: SparkSession) -> None:
    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _stop(session: SparkSession) -> None:
    """As Spark itself does where its scheduler fails: the process lives on."""
    session._jsc.stop()


def _leave(_session: SparkSession) -> None:
    """Until the end."""


if __name__ == "__main__":
    sys.exit(main())
