"""Databricks as a `Platform`: runs of the saved job of a table's tier; and its settings in `gddl.yaml`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import requests
import yaml
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import (
    BadRequest,
    DeadlineExceeded,
    InternalError,
    InvalidParameterValue,
    NotFound,
    PermissionDenied,
    ResourceConflict,
    TemporarilyUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from databricks.sdk.errors.base import DatabricksError
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
    RepairHistoryItemType,
    Run,
    RunLifecycleStateV2State,
    Task,
    TerminationCodeCode,
    TerminationTypeType,
)

from airflow_gddl import __version__
from airflow_gddl.contract import durations
from airflow_gddl.contract.durations import is_duration
from airflow_gddl.contract.errors import FatalError, FieldPath, GddlError, MetadataError, RetriableError, SpecProblem
from airflow_gddl.contract.s3 import buckets
from airflow_gddl.contract.spec import CONTRACT_VERSION, Roots, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.contract.table_spec import STRICT
from airflow_gddl.runners.descriptor import RunnerDescriptor, settings_of
from airflow_gddl.runners.interface import (
    Connections,
    DatabricksAccess,
    Handle,
    JobChange,
    Platform,
    RunRequest,
    RunStatus,
    State,
    check_contract,
    differences,
)

CONTRACT_TAG = "gddl-contract"
"""Tag of a job: the contract version of whoever deployed it."""
_PROFILE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:instance-profile/\S+")
# The service's own limits.
_MOST_RUNS = 1000
_MOST_REPAIRS = 10
OF_CLUSTERS = (
    "node_type", "instance_pool_id", "workers", "max_workers", "instance_profile", "policy_id", "spark_conf",
    "environment",
)  # fmt: skip
"""Fields of `DatabricksTier` that a serverless tier must not have."""
_MOUNTS = ("/Volumes/", "/dbfs/")
"""Where Databricks mounts object storage as a file system: decision 145."""
START_SECONDS, FAST_START_SECONDS = 300.0, 30.0
"""Until machines are available (estimates); serverless ones of `PERFORMANCE_OPTIMIZED` start sooner."""
_OURS = ("cloudFiles.format", "cloudFiles.allowOverwrites")


@dataclass(frozen=True, kw_only=True)
class DatabricksTier:
    """The machines of one tier: serverless, or a job cluster of its own."""

    __pydantic_config__ = STRICT

    serverless: bool = True
    """Databricks chooses the machines; else a job cluster is started for each run."""
    environment_version: str = "4"
    """Serverless: version of its environment."""
    performance: Literal["STANDARD", "PERFORMANCE_OPTIMIZED"] = "STANDARD"
    """Serverless: `STANDARD` is cheaper and starts in minutes, `PERFORMANCE_OPTIMIZED` in seconds."""
    spark_version: str = "17.3.x-scala2.13"
    """Job cluster: its Databricks Runtime."""
    node_type: str | None = None
    """Job cluster: type of its machines; null: those of the instance pool."""
    instance_pool_id: str | None = None
    """Job cluster: pool that its machines come from; null: none."""
    workers: int | None = None
    """Job cluster: its workers; null: `workers` of the tier."""
    max_workers: int | None = None
    """Job cluster: as many when there is much to do; null: always `workers`."""
    instance_profile: str | None = None
    """Job cluster: ARN of the AWS instance profile of its machines, whose role reads `landing` and writes `lake`; null:
    none."""
    policy_id: str | None = None
    """Job cluster: policy that it must obey; null: none."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Job cluster: settings of Spark."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Job cluster: environment variables."""
    discovery: Literal["listing", "auto_loader"] = "listing"
    """Job cluster: how tables of engine `spark` learn of new files. `auto_loader`: by Databricks' own stream, and by a
    listing once a day all the same."""
    auto_loader: Mapping[str, str] = field(default_factory=dict)
    """Settings of Auto Loader, each `cloudFiles.…`."""


@dataclass(frozen=True, kw_only=True)
class DatabricksSettings:
    """Where jobs are, what they run, and on what machines."""

    __pydantic_config__ = STRICT

    wheel: str
    """The wheel of this package: a path on a volume or in the workspace."""
    databricks_conn_id: str = "databricks_default"
    """Airflow connection; commands outside Airflow take DATABRICKS_HOST and the like instead."""
    job_name: str = "gddl"
    """The job of a tier is named `<job_name>-<tier>`."""
    dependencies: tuple[str, ...] = ("deltalake>=1.6.6,<1.7",)
    """What is installed beside the wheel."""
    max_concurrent_runs: int = 20
    """Runs of a job at once; more are queued."""
    timeout: str = "12h"
    """A run that takes longer is ended."""
    repairs: int = 1
    """How often a run is repaired that Databricks itself or its cloud made fail."""
    run_as: str | None = None
    """Application id of the service principal that jobs run as; null: whoever deploys them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job."""
    local_roots: bool = False
    """Let landing and lake be local folders: for the fake server on this machine alone."""
    tiers: Mapping[str, DatabricksTier] = field(default_factory=dict)
    """Machines by tier; a tier that is not named is serverless."""

    def tier(self, size: str) -> DatabricksTier:
        return self.tiers.get(size, DatabricksTier())

    def job_of(self, size: str) -> str:
        """Name of the job that runs a tier's tables."""
        return f"{self.job_name}-{size}"


def check_settings(settings: DatabricksSettings) -> Iterator[SpecProblem]:
    """Checks across fields."""
    if not settings.wheel.endswith(".whl") or not settings.wheel.startswith(("/Volumes/", "/Workspace/", "s3://")):
        what, remedy = "not a wheel on a volume or in the workspace", "write e.g. /Volumes/main/gddl/airflow_gddl.whl"
        yield SpecProblem("FIELD_VALUE", ("wheel",), settings.wheel, what, remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem("DURATION_INVALID", ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")
    for name, least, most in (("max_concurrent_runs", 1, _MOST_RUNS), ("repairs", 0, _MOST_REPAIRS)):
        if not least <= (value := getattr(settings, name)) <= most:
            what = f"must be {least} to {most}"
            yield SpecProblem("FIELD_VALUE", (name,), value, what, "write a number between these")
    for size, tier in settings.tiers.items():
        yield from _check_tier(("tiers", size), tier)


def _check_tier(path: FieldPath, tier: DatabricksTier) -> Iterator[SpecProblem]:
    if not tier.serverless and tier.node_type is None and tier.instance_pool_id is None:
        what, remedy = "must be given for a job cluster", "give node_type or instance_pool_id, or serverless: true"
        yield SpecProblem("FIELD_MISSING", (*path, "node_type"), None, what, remedy)
    if tier.max_workers is not None and tier.workers is not None and tier.max_workers < tier.workers:
        what, remedy = "fewer than workers", "write more, or leave it out"
        yield SpecProblem("FIELD_VALUE", (*path, "max_workers"), tier.max_workers, what, remedy)
    if tier.instance_profile is not None and not _PROFILE.fullmatch(tier.instance_profile):
        what, remedy = "no ARN of an instance profile", "write e.g. arn:aws:iam::123456789012:instance-profile/gddl"
        yield SpecProblem("FIELD_VALUE", (*path, "instance_profile"), tier.instance_profile, what, remedy)
    yield from _check_serverless(path, tier)
    for name in tier.auto_loader:
        if not name.startswith("cloudFiles.") or name in _OURS:
            remedy = f"write e.g. cloudFiles.useNotifications; {' and '.join(_OURS)} are set already"
            yield SpecProblem("FIELD_VALUE", (*path, "auto_loader"), name, "no setting that may be given", remedy)


def _check_serverless(path: FieldPath, tier: DatabricksTier) -> Iterator[SpecProblem]:
    if not tier.serverless:
        return
    if tier.discovery == "auto_loader":
        what, remedy = "not on serverless compute, where Spark is not in the job's process", "set serverless: false"
        yield SpecProblem("FIELD_VALUE", (*path, "discovery"), tier.discovery, what, remedy)
    for name in OF_CLUSTERS:
        if value := getattr(tier, name):
            what, remedy = "a field of job clusters, and the tier is serverless", "set serverless: false, or remove it"
            yield SpecProblem("FIELD_VALUE", (*path, name), value, what, remedy)


def check_root(path: FieldPath, root: str) -> Iterator[SpecProblem]:
    """Mounted volumes are refused."""
    if f"{root}/".startswith(_MOUNTS):
        what = "a mounted volume is no root: no atomic creation of files there, and Airflow does not see it"
        name = ".".join(map(str, path))
        remedy = f"set {name} to the s3:// URL of an external location, docs/platforms/databricks.md"
        yield SpecProblem("RUNNER_NEEDS_S3", path, root, what, remedy)


def start_seconds(settings: DatabricksSettings, tier: str) -> float:
    machines = settings.tier(tier)
    is_fast = machines.serverless and machines.performance == "PERFORMANCE_OPTIMIZED"
    return FAST_START_SECONDS if is_fast else START_SECONDS


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.databricks:make",
    start_seconds=start_seconds,
    settings=DatabricksSettings,
    check_settings=check_settings,
    check_root=check_root,
    package="databricks-sdk",
    extra="databricks",
    deployed=True,
    bundle="airflow_gddl.bundle:DATABRICKS",
    capacity="airflow_gddl.planning.plan:DATABRICKS",
)


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
            parameters=["--spec", "{{job.parameters.spec}}", "--results", *_discovery(size, tier, own)],
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


T = TypeVar("T")
TRIES = 3
_PATIENCE_SECONDS = 120
_PASSING = (InternalError, DeadlineExceeded, TemporarilyUnavailable, TooManyRequests, TimeoutError)
_UNREACHED = (requests.RequestException, TimeoutError)


@dataclass(frozen=True)
class Workspace:
    """One workspace.

    Raises (every call through `ask`):
        RetriableError: `PLATFORM_UNREACHABLE`.
        FatalError: `PLATFORM_REFUSED`.
    """

    jobs: JobsAPI
    sleep: Callable[[float], None] = time.sleep

    def ask(self, call: Callable[[JobsAPI], T]) -> T:
        """Return the call's result; SDK errors that the caller handles must be caught inside `call`."""
        tried = 1
        while True:
            try:
                return call(self.jobs)
            except (DatabricksError, *_UNREACHED) as error:
                if tried == TRIES or not isinstance(error, (InternalError, DeadlineExceeded)):
                    raise _told(error) from error
            self.sleep(2.0**tried)
            tried += 1


def connect(access: DatabricksAccess) -> Workspace:
    """Connect to a workspace.

    Raises:
        FatalError: `CONNECTION_UNUSABLE`.
    """
    try:
        config = Config(
            product="airflow-gddl",
            product_version=__version__,
            retry_timeout_seconds=_PATIENCE_SECONDS,
            http_timeout_seconds=30,
            host=access.host or None,
            **access.login,
        )
        return Workspace(WorkspaceClient(config=config).jobs)
    except ValueError as error:
        remedy = "set databricks_conn_id to an Airflow connection, or DATABRICKS_HOST and DATABRICKS_TOKEN"
        what = f"no way to log in to Databricks: {_first_line(error)}"
        raise FatalError("CONNECTION_UNUSABLE", what, remedy=remedy) from error


def _told(error: Exception) -> GddlError:
    what = f"Databricks: {type(error).__name__}: {_first_line(error)}"
    if isinstance(error, (*_PASSING, requests.RequestException)):
        return RetriableError("PLATFORM_UNREACHABLE", what, remedy="the call is retried")
    if isinstance(error, (Unauthenticated, PermissionDenied)):
        remedy = "check the connection's token, and the right to see and run the job (CAN_MANAGE_RUN)"
        return FatalError("PLATFORM_REFUSED", what, remedy=remedy)
    return FatalError(
        "PLATFORM_REFUSED", what, remedy="see the message above; `gddl deploy databricks` updates the jobs"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:500]


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
    found = workspace.ask(lambda jobs: [job.job_id for job in jobs.list(name=name)])
    if len(found) > 1:
        what = f"the workspace has {len(found)} jobs named {name!r}: {', '.join(map(str, found))}"
        raise FatalError("JOB_AMBIGUOUS", what, remedy="remove all but one, or set another job_name")
    job_id = found[0] if found else None
    actual = workspace.ask(lambda jobs: jobs.get(job_id).settings) if job_id is not None else None
    fields = differences(wanted.as_dict(), actual.as_dict(), _WHOLE) if actual is not None else ()
    return JobChange(name=name, wanted=wanted, exists=job_id is not None, job_id=job_id, fields=tuple(fields))


def serverless_warning(tiers: Iterable[str], settings: DatabricksSettings, roots: Roots) -> str | None:
    """Warning about S3 access of tiers on serverless compute; null: there are none.

    Databricks offers its jobs there neither instance profiles nor environment variables, and the job reaches S3 with a
    client of its own.
    """
    serverless = [size for size in tiers if settings.tier(size).serverless]
    if not serverless or not buckets((roots.landing, roots.lake)):
        return None
    return (
        f"Warning: tiers {', '.join(serverless)} run on serverless compute, where a job has no AWS credentials "
        f"(no instance profile, no environment variables), and {roots.lake} is reached with the job's own. "
        "This was never run on a workspace. Safer: serverless: false, node_type and instance_profile; "
        "see docs/platforms/databricks.md"
    )


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
    head = "# Made by `gddl deploy databricks --render-bundle`; change gddl.yaml instead.\n"
    path.write_text(head + yaml.safe_dump(bundle, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _key(job: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in job)


_GOING: Mapping[RunLifecycleStateV2State | None, State] = {
    RunLifecycleStateV2State.RUNNING: "running",
    RunLifecycleStateV2State.TERMINATING: "running",
}
_CANCELLED = {TerminationCodeCode.CANCELED, TerminationCodeCode.USER_CANCELED, TerminationCodeCode.SKIPPED}
_NOT_OURS = {TerminationTypeType.CLOUD_FAILURE, TerminationTypeType.INTERNAL_ERROR}


def make(own: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("databricks", DatabricksSettings, own)
    return DatabricksPlatform(settings, connect(connections.databricks(settings.databricks_conn_id)))


@dataclass(frozen=True)
class DatabricksPlatform(Platform):
    """See `Platform`."""

    settings: DatabricksSettings
    workspace: Workspace

    def submit(self, request: RunRequest) -> Handle:
        """
        Raises:
            FatalError: `JOB_NOT_DEPLOYED`; `CONTRACT_VERSION`: the job was deployed by another version.
        """
        job = self._job(self.settings.job_of(request.size))
        parameters = {"spec": request.spec}
        run = self.workspace.ask(
            lambda jobs: int(
                jobs.run_now(job, idempotency_token=request.token, job_parameters=parameters).bind()["run_id"]
            )
        )
        found = self._run(run)
        return Handle(run=str(run), group=str(job), page=(found.run_page_url or "") if found else "")

    def poll(self, handle: Handle) -> RunStatus:
        run = self._run(int(handle.run))
        if run is None:
            return RunStatus(state="lost", message=f"there is no run {handle.run}")
        status = run.status
        end = status.termination_details if status else None
        if status is None or status.state != RunLifecycleStateV2State.TERMINATED or end is None:
            return RunStatus(state=_GOING.get(status.state if status else None, "waiting"))
        if end.code in (TerminationCodeCode.SUCCESS, TerminationCodeCode.SUCCESS_WITH_FAILURES):
            return RunStatus(state="succeeded")
        if end.code in _CANCELLED:
            return RunStatus(state="cancelled", message=end.message or "")
        code = end.code.value if end.code else "no reason"
        said = self._error_of(run) or end.message or ""
        restartable = end.type in _NOT_OURS and len(_repairs(run)) < self.settings.repairs
        return RunStatus(state="failed", message=f"{code}: {said}", restartable=restartable)

    def cancel(self, handle: Handle) -> None:
        def call(jobs: JobsAPI) -> None:
            try:
                jobs.cancel_run(int(handle.run))
            except (NotFound, InvalidParameterValue):
                return  # there is nothing to stop

        self.workspace.ask(call)

    def restart(self, handle: Handle) -> None:
        run = self._run(int(handle.run))
        repairs = _repairs(run) if run else []
        latest = repairs[-1] if repairs else None

        def call(jobs: JobsAPI) -> None:
            try:
                jobs.repair_run(int(handle.run), rerun_all_failed_tasks=True, latest_repair_id=latest)
            except (ResourceConflict, BadRequest):
                # If another watcher restarted it, the run continues; otherwise the refusal is final.
                status = jobs.get_run(int(handle.run)).status
                if status is None or status.state == RunLifecycleStateV2State.TERMINATED:
                    raise

        self.workspace.ask(call)

    def _job(self, name: str) -> int:
        found = self.workspace.ask(lambda jobs: list(jobs.list(name=name)))
        if len(found) == 1 and found[0].job_id is not None:
            tags = (found[0].settings.tags if found[0].settings else None) or {}
            check_contract("databricks", name, tags.get(CONTRACT_TAG))
            return found[0].job_id
        count = "no job" if not found else f"{len(found)} jobs"
        remedy = "run `gddl deploy databricks`" if not found else "remove all but one, or set another job_name"
        raise FatalError("JOB_NOT_DEPLOYED", f"the workspace has {count} named {name!r}", remedy=remedy)

    def _run(self, run: int) -> Run | None:
        def call(jobs: JobsAPI) -> Run | None:
            try:
                return jobs.get_run(run, include_history=True)
            except NotFound:
                return None

        return self.workspace.ask(call)

    def _error_of(self, run: Run) -> str:
        """First line of the error of the run's task; empty when there is none."""
        tasks = [task.run_id for task in run.tasks or () if task.run_id]

        def call(jobs: JobsAPI) -> str:
            try:
                return jobs.get_run_output(tasks[-1]).error or ""
            except DatabricksError:
                return ""  # the end of the run is known without it

        said = self.workspace.ask(call) if tasks else ""
        return said.strip().partition("\n")[0][:500]


def _repairs(run: Run) -> list[int]:
    """Ids of the repairs of a run, oldest first."""
    return [item.id or 0 for item in run.repair_history or () if item.type == RepairHistoryItemType.REPAIR]
