"""Jobs and statements in one Spark session with a Hive metastore: `python -m tests.catalogs.hive_session`.

It reads one JSON object a line, and answers each with a line: `run`, a JobSpec, with the results; `sql`, a statement,
with its rows; `entry`, a table's name, with what the metastore has of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_spark import SparkSpread
from spark_jobs.spark.session_settings import SessionSettings

SPARK = LazySpark(SessionSettings(memory="1g", brief=True, extra={"spark.sql.catalogImplementation": "hive"}))


def main() -> int:
    try:
        for line in sys.stdin:
            print(json.dumps(_answer(json.loads(line)), default=str), flush=True)
    finally:
        SPARK.stop()
    return 0


def _answer(asked: Mapping[str, Any]) -> Any:
    if "run" in asked:
        return _run(codec.decode(JobSpec, asked["run"]))
    if "sql" in asked:
        return [row.asDict() for row in SPARK.for_table().sql(asked["sql"]).collect()]
    session: Any = SPARK.for_table()
    found = session._jsparkSession.sharedState().externalCatalog().getTable(*asked["entry"].split("."))
    location = str(found.storage().locationUri().get())
    return {"schema": json.loads(found.schema().json()), "provider": found.provider().get(), "location": location}


def _run(job: JobSpec) -> list[Any]:
    shown: list[JobResult] = []
    runtime = Runtime(storage=Storage(), spark=SPARK, spread=SparkSpread(SPARK, Storage()))
    run_job(job, runtime, shown.append)
    return [json.loads(codec.to_json(result)) for result in shown]


if __name__ == "__main__":
    sys.exit(main())
