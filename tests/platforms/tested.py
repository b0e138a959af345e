"""What was run where; `docs/platforms/tested.md` shows it as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One platform.

    Attributes:
        spark, delta, python: versions there, as its maker's pages say.
        by: the lane with that pair (`make test-spark LANE=…`), or what stands in for the platform.
        seen: what was run, and on what.
        unseen: what only the platform itself can show.
    """

    platform: str
    spark: str
    delta: str
    python: str
    by: str
    seen: str
    unseen: str


TESTED = (
    Tested(
        platform="Local, and spark-submit to standalone",
        spark="4.2.0",
        delta="4.4.0",
        python="3.11, 3.12",
        by="`make test-all`",
        seen="everything; processes killed; a master with workers of one core",
        unseen="nothing",
    ),
    Tested(
        platform="EMR Serverless `emr-spark-8.0.0`",
        spark="4.0.2",
        delta="4.0.0",
        python="3.11 to 3.13",
        by="lane 4.0; moto",
        seen="`tasks: many` on Spark 4.0.2 with Delta 4.0.1; requests; the packed environment",
        unseen="the service; Amazon's own builds of Spark and Delta",
    ),
    Tested(
        platform="Glue 6.0",
        spark="4.1.1",
        delta="4.2.0",
        python="3.13",
        by="lane 4.1; a stand-in reached by boto3",
        seen="`tasks: many` on that pair; requests; runs as processes started by Glue's script",
        unseen="the service; how it installs the wheel",
    ),
    Tested(
        platform="Databricks 17.3 LTS, 18 LTS, 19",
        spark="4.0, 4.1, 4.2",
        delta="its own",
        python="3.12",
        by="lanes 4.0, 4.1, 4.2; a fake workspace",
        seen="`tasks: many` on Apache's releases; jobs deployed and run by the fake; `databricks.yml`",
        unseen="a workspace; its own builds of Spark and Delta; serverless; instance profiles; external locations",
    ),
    Tested(
        platform="YARN",
        spark="4.2.0",
        delta="4.4.0",
        python="3.11",
        by="`make test-deep` (`tests/cluster/test_yarn.py`)",
        seen="`tasks` `one`, `many` on the mini cluster of Hadoop 3.5.0, client mode; an executor and a driver killed",
        unseen="several machines; HDFS; Kerberos; queues; memory limits of containers",
    ),
    Tested(
        platform="Kubernetes",
        spark="4.0 to 4.2",
        delta="4.0 to 4.4",
        python="3.11 to 3.13",
        by="unit tests",
        seen="arguments of spark-submit",
        unseen="a cluster; executors killed",
    ),
    Tested(
        platform="MWAA 3.0.6 and newer",
        spark="none",
        delta="none",
        python="3.12",
        by="`make test-airflow-oldest`",
        seen="Airflow's side and processes on 3.0.6, all views; requirements installed into an empty environment",
        unseen="the service",
    ),
    Tested(
        platform="EMR 7, Databricks 15.4 and 16.4 LTS, Glue 5",
        spark="3.5",
        delta="3.3",
        python="3.11",
        by="unit tests",
        seen="refused with `SPARK_UNSUPPORTED`",
        unseen="nothing",
    ),
)


def table() -> str:
    """In Markdown."""
    head = (
        "| platform | Spark | Delta | Python | tested by | what was run | not seen |\n|---|---|---|---|---|---|---|\n"
    )
    rows = (f"| {t.platform} | {t.spark} | {t.delta} | {t.python} | {t.by} | {t.seen} | {t.unseen} |\n" for t in TESTED)
    return head + "".join(rows)
