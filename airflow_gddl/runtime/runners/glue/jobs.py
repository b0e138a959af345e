"""The saved Glue jobs that the metadata needs, one for each tier; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract import durations
from airflow_gddl.contract.spec import CONTRACT_VERSION, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.metadata.runners.glue import GlueSettings, GlueTier

Definition = Mapping[str, Any]
"""A job in the form of Glue's API."""
SPEC, TOKEN, REGION, CONTRACT = "--gddl_spec", "--gddl_token", "--gddl_region", "--gddl_contract"
"""Arguments of our script: URL of the JobSpec, token of its submission, region, contract version at deployment."""
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jobs_of(tiers: Mapping[str, TierSpec], settings: GlueSettings) -> dict[str, Definition]:
    """Jobs by name, sorted."""
    return {settings.job_of(size): job_of(size, tier, settings) for size, tier in sorted(tiers.items())}


def job_of(size: str, tier: TierSpec, settings: GlueSettings) -> Definition:
    """The job that runs a tier's tables; each run receives its JobSpec as an argument."""
    own = settings.tier(size)
    return {
        "Name": settings.job_of(size),
        "Description": f"Loads tables of tier {size}; made by `gddl deploy glue`.",
        "Role": settings.role,
        "Command": {"Name": "glueetl", "ScriptLocation": settings.script, "PythonVersion": "3"},
        "DefaultArguments": arguments_of(own, settings),
        "ExecutionProperty": {"MaxConcurrentRuns": settings.max_concurrent_runs},
        "JobRunQueuingEnabled": True,
        # Airflow retries only the remaining tables; a retry by Glue would repeat all.
        "MaxRetries": 0,
        "Timeout": max(1, durations.seconds(settings.timeout) // 60),
        "GlueVersion": settings.glue_version,
        "WorkerType": own.worker_type,
        "NumberOfWorkers": own.workers if own.workers is not None else max(2, tier.workers + 1),
    }


def arguments_of(own: GlueTier, settings: GlueSettings) -> dict[str, str]:
    """Arguments that Glue itself reads, and those of our script that are the same for every run."""
    region = {"spark.executorEnv.AWS_REGION": settings.region} if settings.region else {}
    conf = {**_DELTA, **region, **own.spark_conf, **NO_SUBSTITUTION}
    arguments = {
        # One argument holds all settings: the first one bare, the others with the word before them.
        "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
        "--additional-python-modules": ",".join([settings.wheel, *settings.dependencies]),
        "--enable-metrics": "true",
        CONTRACT: str(CONTRACT_VERSION),
    }
    if settings.delta_jars:
        arguments |= {"--extra-jars": ",".join(settings.delta_jars), "--user-jars-first": "true"}
    else:
        arguments["--datalake-formats"] = "delta"
    if settings.region:
        arguments[REGION] = settings.region
    return arguments
