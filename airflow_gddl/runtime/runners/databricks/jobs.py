"""The saved jobs that the metadata needs: one for each tier."""

from __future__ import annotations

from collections.abc import Mapping

from databricks.sdk.service.compute import (
    AutoScale,
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
    JobRunAs,
    JobSettings,
    PerformanceTarget,
    PythonWheelTask,
    QueueSettings,
    Task,
)

from airflow_gddl.contract import durations
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import CONTRACT_VERSION, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.metadata.runners.databricks import CONTRACT_TAG, DatabricksSettings, DatabricksTier

_KEY = "load"


def jobs_of(tiers: Mapping[str, TierSpec], settings: DatabricksSettings) -> dict[str, JobSettings]:
    """Jobs by name, sorted.

    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    return {settings.job_of(size): job_of(size, tier, settings) for size, tier in sorted(tiers.items())}


def job_of(size: str, tier: TierSpec, settings: DatabricksSettings) -> JobSettings:
    """The job that runs a tier's tables: one wheel task, which receives its JobSpec as a job parameter."""
    own = settings.tier(size)
    task = Task(
        task_key=_KEY,
        python_wheel_task=PythonWheelTask(
            package_name="airflow_gddl",
            entry_point="gddl-task",
            parameters=["--spec", "{{job.parameters.spec}}", "--answers", *_discovery(size, tier, own)],
        ),
        # Airflow retries only the remaining tables; a retry by the platform would repeat all.
        max_retries=0,
    )
    job = JobSettings(
        name=settings.job_of(size),
        description=f"Loads tables of tier {size}; made by `gddl deploy databricks`.",
        max_concurrent_runs=settings.max_concurrent_runs,
        queue=QueueSettings(enabled=True),
        parameters=[JobParameterDefinition(name="spec", default="")],
        tags={"gddl-tier": size, CONTRACT_TAG: str(CONTRACT_VERSION), **settings.tags},
        timeout_seconds=durations.seconds(settings.timeout),
        run_as=JobRunAs(service_principal_name=settings.run_as) if settings.run_as else None,
        tasks=[task],
    )
    if own.serverless:
        _make_serverless(job, task, own, settings)
    else:
        _give_cluster(job, task, _cluster(size, tier, own), settings)
    return job


def _discovery(size: str, tier: TierSpec, own: DatabricksTier) -> list[str]:
    """Arguments for file discovery other than listing."""
    if own.discovery == "listing":
        return []
    if tier.engine != "spark":
        where = f"gddl.yaml, runners.databricks.tiers.{size}"
        what = f"discovery: {own.discovery} needs engine: spark, and tier {size} has {tier.engine}"
        raise MetadataError("RUNNER_SETTINGS_INVALID", what, where=where, remedy="set discovery: list for this tier")
    options = [f"--stream-option={name}={value}" for name, value in sorted(own.auto_loader.items())]
    return ["--discovery", own.discovery, *options]


def _make_serverless(job: JobSettings, task: Task, own: DatabricksTier, settings: DatabricksSettings) -> None:
    dependencies = [settings.wheel, *settings.dependencies]
    spec = Environment(environment_version=own.environment_version, dependencies=dependencies)
    job.environments = [JobEnvironment(environment_key=_KEY, spec=spec)]
    job.performance_target = PerformanceTarget(own.performance)
    task.environment_key = _KEY


def _give_cluster(job: JobSettings, task: Task, cluster: ClusterSpec, settings: DatabricksSettings) -> None:
    job.job_clusters = [JobCluster(job_cluster_key=_KEY, new_cluster=cluster)]
    task.job_cluster_key = _KEY
    packages = [Library(pypi=PythonPyPiLibrary(package=name)) for name in settings.dependencies]
    task.libraries = [Library(whl=settings.wheel), *packages]


def _cluster(size: str, tier: TierSpec, own: DatabricksTier) -> ClusterSpec:
    if own.node_type is None and own.instance_pool_id is None:
        where = f"gddl.yaml, runners.databricks.tiers.{size}"
        what = "a job cluster needs node_type or instance_pool_id"
        raise MetadataError("RUNNER_SETTINGS_INVALID", what, where=where, remedy="give one, or set serverless: true")
    fewest = own.workers if own.workers is not None else tier.workers
    most = own.max_workers
    return ClusterSpec(
        spark_version=own.spark_version,
        node_type_id=own.node_type,
        instance_pool_id=own.instance_pool_id,
        num_workers=fewest if most is None else None,
        autoscale=AutoScale(min_workers=fewest, max_workers=most) if most is not None else None,
        aws_attributes=AwsAttributes(instance_profile_arn=own.instance_profile) if own.instance_profile else None,
        data_security_mode=DataSecurityMode.SINGLE_USER,
        policy_id=own.policy_id,
        spark_conf={**own.spark_conf, **NO_SUBSTITUTION},
        spark_env_vars=dict(own.environment) or None,
    )
