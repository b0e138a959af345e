"""The saved Databricks jobs of tiers, as an asset bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from databricks.sdk.service.compute import (
    AwsAttributes,
    ClusterSpec,
    DataSecurityMode,
    Environment,
    Library,
    PythonPyPiLibrary,
)
from databricks.sdk.service.jobs import (
    JobCluster,
    JobEnvironment,
    JobParameterDefinition,
    JobSettings,
    PerformanceTarget,
    PythonWheelTask,
    QueueSettings,
    Task,
)

from airflow_gddl.contract import durations
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import CONTRACT_VERSION, Roots, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.databricks.settings import (
    CONTRACT_TAG,
    DatabricksSettings,
    DatabricksTier,
    serverless_warning,
)
from airflow_gddl.runners.descriptor import DELTALAKE, RUNS_AT_ONCE

_KEY = "load"
_ENVIRONMENT = "4"
"""Version of the environment of serverless jobs."""


def jobs_of(tiers: Mapping[str, TierSpec], settings: DatabricksSettings) -> dict[str, JobSettings]:
    """Jobs by name, sorted.

    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    return {settings.job_of(size): job_of(size, tier, settings) for size, tier in sorted(tiers.items())}


def job_of(size: str, tier: TierSpec, settings: DatabricksSettings) -> JobSettings:
    """The job that runs a tier's tables: one wheel task, which receives its JobSpec as a job parameter."""
    tier_settings = settings.tier(size)
    task = Task(
        task_key=_KEY,
        python_wheel_task=PythonWheelTask(
            package_name="airflow_gddl",
            entry_point="gddl-task",
            parameters=["--spec", "{{job.parameters.spec}}", "--results", *_discovery(size, tier, tier_settings)],
        ),
        # Airflow retries only the remaining tables; a retry by the platform would repeat all.
        max_retries=0,
    )
    job = JobSettings(
        name=settings.job_of(size),
        description=f"Loads tables of tier {size}; made by `gddl deploy databricks`.",
        max_concurrent_runs=RUNS_AT_ONCE,
        queue=QueueSettings(enabled=True),
        parameters=[JobParameterDefinition(name="spec", default="")],
        tags={"gddl-tier": size, CONTRACT_TAG: str(CONTRACT_VERSION)},
        timeout_seconds=durations.seconds(settings.timeout),
        tasks=[task],
    )
    if tier_settings.serverless:
        _make_serverless(job, task, settings)
    else:
        _give_cluster(job, task, _cluster(size, tier, settings), settings)
    return job


def _discovery(size: str, tier: TierSpec, tier_settings: DatabricksTier) -> list[str]:
    """Arguments for file discovery other than listing."""
    if tier_settings.discovery == "listing":
        return []
    if tier.in_one_task:
        where = f"gddl.yaml, runners.databricks.tiers.{size}"
        what = f"discovery: {tier_settings.discovery} needs tasks: many, and tier {size} has {tier.tasks}"
        raise MetadataError("RUNNER_SETTINGS_INVALID", what, where=where, remedy="set discovery: listing for this tier")
    options = [f"--stream-option={name}={value}" for name, value in sorted(tier_settings.auto_loader.items())]
    return ["--discovery", tier_settings.discovery, *options]


def _make_serverless(job: JobSettings, task: Task, settings: DatabricksSettings) -> None:
    spec = Environment(environment_version=_ENVIRONMENT, dependencies=[settings.wheel, DELTALAKE])
    job.environments = [JobEnvironment(environment_key=_KEY, spec=spec)]
    job.performance_target = PerformanceTarget.STANDARD
    task.environment_key = _KEY


def _give_cluster(job: JobSettings, task: Task, cluster: ClusterSpec, settings: DatabricksSettings) -> None:
    job.job_clusters = [JobCluster(job_cluster_key=_KEY, new_cluster=cluster)]
    task.job_cluster_key = _KEY
    task.libraries = [Library(whl=settings.wheel), Library(pypi=PythonPyPiLibrary(package=DELTALAKE))]


def _cluster(size: str, tier: TierSpec, settings: DatabricksSettings) -> ClusterSpec:
    tier_settings = settings.tier(size)
    if tier_settings.node_type is None and tier_settings.instance_pool_id is None:
        where = f"gddl.yaml, runners.databricks.tiers.{size}"
        what = "a job cluster needs node_type or instance_pool_id"
        raise MetadataError("RUNNER_SETTINGS_INVALID", what, where=where, remedy="give one, here or for all tiers")
    profile = settings.instance_profile
    return ClusterSpec(
        spark_version=tier_settings.spark_version,
        node_type_id=tier_settings.node_type,
        instance_pool_id=tier_settings.instance_pool_id,
        num_workers=tier_settings.workers if tier_settings.workers is not None else tier.workers,
        aws_attributes=AwsAttributes(instance_profile_arn=profile) if profile else None,
        data_security_mode=DataSecurityMode.SINGLE_USER,
        spark_conf=dict(NO_SUBSTITUTION),
    )


def render(folder: Path, tiers: Mapping[str, TierSpec], settings: DatabricksSettings, roots: Roots) -> str:
    """Write `databricks.yml`, an asset bundle; see `Renderer`.

    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
        OSError: it can't be written.
    """
    jobs = jobs_of(tiers, settings)
    bundle = {
        "bundle": {"name": settings.job_name},
        "resources": {"jobs": {_key(name): job.as_dict() for name, job in jobs.items()}},
        "targets": {"default": {"default": True}},
    }
    path = folder / "databricks.yml"
    head = "# Written by `gddl deploy databricks` from gddl.yaml, and written anew each time.\n"
    path.write_text(head + yaml.safe_dump(bundle, sort_keys=False, allow_unicode=True), encoding="utf-8")
    said = f"wrote {path}: {len(jobs)} jobs, which `databricks bundle deploy` creates or updates, in that folder"
    return "\n".join(filter(None, (serverless_warning(tiers, settings, roots), said)))


def _key(job: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in job)
