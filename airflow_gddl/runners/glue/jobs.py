"""The saved Glue jobs of tiers, as a template of CloudFormation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_gddl.contract.spec import CONTRACT_VERSION, Roots, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.descriptor import DELTALAKE, RUNS_AT_ONCE
from airflow_gddl.runners.glue.settings import GlueSettings

Definition = Mapping[str, Any]
"""A job in the form of Glue's API."""
SPEC, TOKEN, REGION, CONTRACT = "--gddl_spec", "--gddl_token", "--gddl_region", "--gddl_contract"
"""Arguments of our script: URL of the JobSpec, token of its submission, region, contract version at deployment."""
_VERSION = "6.0"
"""The first version of Glue with Spark 4."""
_MINUTES = 12 * 60
"""Of a run; one that takes longer is ended."""
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jobs_of(tiers: Mapping[str, TierSpec], settings: GlueSettings) -> dict[str, Definition]:
    """Jobs by name, sorted."""
    return {settings.job_of(size): job_of(size, tier, settings) for size, tier in sorted(tiers.items())}


def job_of(size: str, tier: TierSpec, settings: GlueSettings) -> Definition:
    """The job that runs a tier's tables; each run receives its JobSpec as an argument."""
    tier_settings = settings.tier(size)
    return {
        "Name": settings.job_of(size),
        "Description": f"Loads tables of tier {size}; made by `gddl deploy glue`.",
        "Role": settings.role,
        "Command": {"Name": "glueetl", "ScriptLocation": settings.script, "PythonVersion": "3"},
        "DefaultArguments": arguments_of(settings),
        "ExecutionProperty": {"MaxConcurrentRuns": RUNS_AT_ONCE},
        "JobRunQueuingEnabled": True,
        # Airflow retries only the remaining tables; a retry by Glue would repeat all.
        "MaxRetries": 0,
        "Timeout": _MINUTES,
        "GlueVersion": _VERSION,
        "WorkerType": tier_settings.worker_type,
        "NumberOfWorkers": tier_settings.workers if tier_settings.workers is not None else max(2, tier.workers + 1),
    }


def arguments_of(settings: GlueSettings) -> dict[str, str]:
    """Arguments that Glue itself reads, and those of our script that are the same for every run."""
    region = {"spark.executorEnv.AWS_REGION": settings.region} if settings.region else {}
    conf = {**_DELTA, **region, **NO_SUBSTITUTION}
    arguments = {
        # One argument holds all settings: the first one bare, the others with the word before them.
        "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
        "--additional-python-modules": f"{settings.wheel},{DELTALAKE}",
        "--enable-metrics": "true",
        CONTRACT: str(CONTRACT_VERSION),
        "--datalake-formats": "delta",
    }
    if settings.region:
        arguments[REGION] = settings.region
    return arguments


def render(folder: Path, tiers: Mapping[str, TierSpec], settings: GlueSettings, _roots: Roots) -> str:
    """Write `gddl-glue.json`, a template of CloudFormation; see `Renderer`.

    Raises:
        OSError: it can't be written.
    """
    jobs = jobs_of(tiers, settings)
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Written by `gddl deploy glue` from gddl.yaml, and written anew each time.",
        "Resources": {
            "".join(filter(str.isalnum, name.title())): {"Type": "AWS::Glue::Job", "Properties": job}
            for name, job in jobs.items()
        },
    }
    path = folder / "gddl-glue.json"
    path.write_text(json.dumps(template, indent=2) + "\n", encoding="utf-8")
    region = f" --region {settings.region}" if settings.region else ""
    command = f"aws cloudformation deploy --stack-name {settings.job_name} --template-file {path}{region}"
    return f"wrote {path}: {len(jobs)} jobs, which `{command}` creates or updates"
