"""The saved Databricks jobs of tiers: definition, comparison with the workspace, creation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import yaml
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
    JobsAPI,
    JobSettings,
    PerformanceTarget,
    PythonWheelTask,
    QueueSettings,
    Task,
)

from airflow_gddl.contract import durations
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.spec import CONTRACT_VERSION, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.databricks.settings import CONTRACT_TAG, DatabricksSettings, DatabricksTier
from airflow_gddl.runners.databricks.workspace import Workspace
from airflow_gddl.runners.interface import JobChange, differences

_KEY = "load"


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
        max_concurrent_runs=settings.max_concurrent_runs,
        queue=QueueSettings(enabled=True),
        parameters=[JobParameterDefinition(name="spec", default="")],
        tags={"gddl-tier": size, CONTRACT_TAG: str(CONTRACT_VERSION), **settings.tags},
        timeout_seconds=durations.seconds(settings.timeout),
        run_as=JobRunAs(service_principal_name=settings.run_as) if settings.run_as else None,
        tasks=[task],
    )
    if tier_settings.serverless:
        _make_serverless(job, task, tier_settings, settings)
    else:
        _give_cluster(job, task, _cluster(size, tier, tier_settings), settings)
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


def _make_serverless(job: JobSettings, task: Task, tier_settings: DatabricksTier, settings: DatabricksSettings) -> None:
    dependencies = [settings.wheel, *settings.dependencies]
    spec = Environment(environment_version=tier_settings.environment_version, dependencies=dependencies)
    job.environments = [JobEnvironment(environment_key=_KEY, spec=spec)]
    job.performance_target = PerformanceTarget(tier_settings.performance)
    task.environment_key = _KEY


def _give_cluster(job: JobSettings, task: Task, cluster: ClusterSpec, settings: DatabricksSettings) -> None:
    job.job_clusters = [JobCluster(job_cluster_key=_KEY, new_cluster=cluster)]
    task.job_cluster_key = _KEY
    packages = [Library(pypi=PythonPyPiLibrary(package=name)) for name in settings.dependencies]
    task.libraries = [Library(whl=settings.wheel), *packages]


def _cluster(size: str, tier: TierSpec, tier_settings: DatabricksTier) -> ClusterSpec:
    if tier_settings.node_type is None and tier_settings.instance_pool_id is None:
        where = f"gddl.yaml, runners.databricks.tiers.{size}"
        what = "a job cluster needs node_type or instance_pool_id"
        raise MetadataError("RUNNER_SETTINGS_INVALID", what, where=where, remedy="give one, here or for all tiers")
    fewest = tier_settings.workers if tier_settings.workers is not None else tier.workers
    most = tier_settings.max_workers
    return ClusterSpec(
        spark_version=tier_settings.spark_version,
        node_type_id=tier_settings.node_type,
        instance_pool_id=tier_settings.instance_pool_id,
        num_workers=fewest if most is None else None,
        autoscale=AutoScale(min_workers=fewest, max_workers=most) if most is not None else None,
        aws_attributes=AwsAttributes(instance_profile_arn=tier_settings.instance_profile)
        if tier_settings.instance_profile
        else None,
        data_security_mode=DataSecurityMode.SINGLE_USER,
        policy_id=tier_settings.policy_id,
        spark_conf={**tier_settings.spark_conf, **NO_SUBSTITUTION},
        spark_env_vars=dict(tier_settings.environment) or None,
    )


BUNDLE = "databricks.yml"
# Defined completely by the metadata: other entries are removed.
_WHOLE = frozenset({"tags", "spark_conf", "spark_env_vars", "dependencies", "libraries", "parameters"})


def plan(workspace: Workspace, wanted: Mapping[str, JobSettings]) -> list[JobChange[JobSettings]]:
    """Plan the change of each job, without changing anything. Jobs that are no longer wanted are kept.

    Raises:
        FatalError: `JOB_AMBIGUOUS`, or as `Workspace`.
        RetriableError: as `Workspace`.
    """
    return [_planned(workspace, name, settings) for name, settings in wanted.items()]


def _planned(workspace: Workspace, name: str, wanted: JobSettings) -> JobChange[JobSettings]:
    job_ids = workspace.ask(lambda jobs: [job.job_id for job in jobs.list(name=name)])
    if len(job_ids) > 1:
        what = f"the workspace has {len(job_ids)} jobs named {name!r}: {', '.join(map(str, job_ids))}"
        raise FatalError("JOB_AMBIGUOUS", what, remedy="remove all but one, or set another job_name")
    job_id = job_ids[0] if job_ids else None
    actual = workspace.ask(lambda jobs: jobs.get(job_id).settings) if job_id is not None else None
    fields = differences(wanted.as_dict(), actual.as_dict(), _WHOLE) if actual is not None else ()
    return JobChange(name=name, wanted=wanted, exists=job_id is not None, job_id=job_id, fields=tuple(fields))


def apply(workspace: Workspace, changes: Iterable[JobChange[JobSettings]]) -> None:
    """Create and update jobs. After an error, earlier changes stay; run it again.

    Raises:
        GddlError: as `Workspace`.
    """
    for change in changes:
        if change.action == "create":
            _create(workspace, change)
        elif change.action == "update" and change.job_id is not None:
            workspace.ask(partial(JobsAPI.reset, job_id=change.job_id, new_settings=change.wanted))


def _create(workspace: Workspace, change: JobChange[JobSettings]) -> None:
    """Job creation has no idempotency token: a lost response must not lead to a second job of the same name."""

    def create(jobs: JobsAPI) -> None:
        if not list(jobs.list(name=change.name)):
            jobs.create(**{name: value for name, value in vars(change.wanted).items() if value is not None})

    workspace.ask(create)


def render_bundle(folder: Path, name: str, wanted: Mapping[str, JobSettings]) -> Path:
    """`databricks.yml` of an asset bundle with the same jobs; the file's path.

    Raises:
        OSError: it can't be written.
    """
    bundle = {
        "bundle": {"name": name},
        "resources": {"jobs": {_key(job): settings.as_dict() for job, settings in wanted.items()}},
        "targets": {"default": {"default": True}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / BUNDLE
    head = "# Made by `gddl deploy databricks --render-bundle FOLDER`; change gddl.yaml instead.\n"
    path.write_text(head + yaml.safe_dump(bundle, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _key(job: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in job)
