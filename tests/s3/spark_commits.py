"""A driver that commits to a Delta table by Spark alone.

python -m tests.s3.spark_commits each PATH: creates a table, appends to it, merges, deletes.
python -m tests.s3.spark_commits append PATH WHO COUNT: appends so many times.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark_jobs.spark.s3a import s3a_settings
from spark_jobs.spark.session import SessionSettings, open_session

SCHEMA = "who string, id long"


def _append(session: SparkSession, path: str, who: str, number: int) -> None:
    session.createDataFrame([(who, number)], SCHEMA).coalesce(1).write.format("delta").mode("append").save(path)


def _each(session: SparkSession, path: str) -> None:
    for number in range(3):
        _append(session, path, "a", number)
    session.createDataFrame([("b", 1)], SCHEMA).createOrReplaceTempView("changes")
    merge = "USING changes c ON t.id = c.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    session.sql(f"MERGE INTO delta.`{path}` t {merge}")
    session.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")


def main(what: str, path: str, who: str = "", count: str = "0") -> None:
    extra = s3a_settings(os.environ, [path])
    session = open_session(SessionSettings(cores=1, memory="1g", brief=True, s3=True, extra=extra))
    if what == "each":
        _each(session, path)
    for number in range(int(count)):
        _append(session, path, who, number)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
