"""Spark settings of a job whose tables are registered in a Hive metastore; no Spark is imported."""

from __future__ import annotations

from airflow_gddl.contract import durations
from airflow_gddl.contract.spec import JobSpec


def hive_settings(job: JobSpec) -> dict[str, str]:
    """Settings (`spark.…`) for the metastore that the job's tables name; empty where none names one.

    A Spark application has one metastore: of several catalogs, the first by name is used.
    """
    named = {spec.catalog for spec in job.tables}
    wanted = [one for name, one in sorted(job.catalogs.items()) if one.kind == "hive" and name in named]
    if not wanted:
        return {}
    found = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.client.socket.timeout": f"{durations.seconds(wanted[0].timeout)}s",
        "spark.hadoop.hive.metastore.connect.retries": "1",
        "spark.hadoop.hive.metastore.failure.retries": "0",
    }
    return found if wanted[0].uri is None else {**found, "spark.hadoop.hive.metastore.uris": wanted[0].uri}
