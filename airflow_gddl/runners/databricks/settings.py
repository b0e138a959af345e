"""Databricks in `gddl.yaml`: where jobs are, what they run, on what machines; and its `RunnerDescriptor`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import FIELD_MISSING, FIELD_VALUE, RUNNER_NEEDS_S3
from airflow_gddl.contract.durations import is_duration
from airflow_gddl.contract.errors import FieldPath, SpecProblem, documented
from airflow_gddl.contract.s3 import buckets
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runners.descriptor import RunnerDescriptor

CONTRACT_TAG = "gddl-contract"
"""Tag of a job: the contract version of whoever deployed it."""
_PROFILE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:instance-profile/\S+")
# The service's own limit.
_MOST_REPAIRS = 10
OF_CLUSTERS = ("node_type", "instance_pool_id", "workers")
"""Fields of `DatabricksTier` that a serverless tier must not have."""
_MOUNTS = ("/Volumes/", "/dbfs/")
"""Where Databricks mounts object storage as a file system: docs/decisions/platforms-and-airflow.md."""
_OURS = ("cloudFiles.format", "cloudFiles.allowOverwrites")


@dataclass(frozen=True, kw_only=True)
class DatabricksTier:
    """The machines of one tier: serverless, or a job cluster of its own."""

    __pydantic_config__ = STRICT

    serverless: bool = False
    """Databricks chooses the machines, whose jobs find no credentials for S3 unless `gddl check` says so; else a job
    cluster is started for each run."""
    spark_version: str = "17.3.x-scala2.13"
    """Job cluster: its Databricks Runtime."""
    node_type: str | None = None
    """Job cluster: type of its machines; null: the runner's, or those of the instance pool."""
    instance_pool_id: str | None = None
    """Job cluster: pool that its machines come from; null: the runner's, unless the tier has a `node_type`."""
    workers: int | None = None
    """Job cluster: its workers; null: `workers` of the tier."""
    discovery: Literal["listing", "auto_loader"] = "listing"
    """Job cluster: how tables with `tasks: many` learn of new files. `auto_loader`: by Databricks' own stream, and by a
    listing once a day all the same."""
    auto_loader: Mapping[str, str] = field(default_factory=dict)
    """Settings of Auto Loader, each `cloudFiles.…`."""


@dataclass(frozen=True, kw_only=True)
class DatabricksSettings:
    """Where jobs are, what they run, and on what machines."""

    __pydantic_config__ = STRICT

    wheel: str
    """The wheel of this package: a path on a volume or in the workspace."""
    node_type: str | None = None
    """Type of the machines of job clusters, for tiers that name neither this nor a pool."""
    instance_pool_id: str | None = None
    """Pool that machines of job clusters come from, for tiers that name neither this nor a type."""
    instance_profile: str | None = None
    """ARN of the AWS instance profile of job clusters, whose role reads `landing` and writes `lake`; null: none."""
    databricks_conn_id: str = "databricks_default"
    """Airflow connection; commands outside Airflow take DATABRICKS_HOST and the like instead."""
    job_name: str = "gddl"
    """The job of a tier is named `<job_name>-<tier>`."""
    timeout: str = "12h"
    """A run that takes longer is ended."""
    repairs: int = 1
    """How often a run is repaired that Databricks itself or its cloud made fail."""
    local_roots: bool = False
    """Let landing and lake be local folders: for the fake server on this machine alone."""
    tiers: Mapping[str, DatabricksTier] = field(default_factory=dict)
    """Machines by tier; a tier that is not named has job clusters of the runner's machines."""

    def tier(self, size: str) -> DatabricksTier:
        """The tier's settings, with the runner's where it has none."""
        tier = self.tiers.get(size, DatabricksTier())
        if tier.serverless or tier.node_type or tier.instance_pool_id:
            return tier
        return replace(tier, node_type=self.node_type, instance_pool_id=self.instance_pool_id)

    def job_of(self, size: str) -> str:
        """Name of the job that runs a tier's tables."""
        return f"{self.job_name}-{size}"


def check_settings(settings: DatabricksSettings) -> Iterator[SpecProblem]:
    """Checks across fields."""
    if not settings.wheel.endswith(".whl") or not settings.wheel.startswith(("/Volumes/", "/Workspace/", "s3://")):
        what, remedy = "not a wheel on a volume or in the workspace", "write e.g. /Volumes/main/gddl/airflow_gddl.whl"
        yield SpecProblem(FIELD_VALUE, ("wheel",), settings.wheel, what, remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem(FIELD_VALUE, ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")
    if not 0 <= settings.repairs <= _MOST_REPAIRS:
        what = f"must be 0 to {_MOST_REPAIRS}"
        yield SpecProblem(FIELD_VALUE, ("repairs",), settings.repairs, what, "write a number between these")
    arn = settings.instance_profile
    if arn is not None and not _PROFILE.fullmatch(arn):
        what, remedy = "no ARN of an instance profile", "write e.g. arn:aws:iam::123456789012:instance-profile/gddl"
        yield SpecProblem(FIELD_VALUE, ("instance_profile",), arn, what, remedy)
    for size, tier in settings.tiers.items():
        yield from _check_tier(("tiers", size), tier)


def check_tiers(settings: DatabricksSettings, tiers: Iterable[str]) -> Iterator[SpecProblem]:
    """`FIELD_MISSING`: job clusters without machines, once for all tiers."""
    machines = {size: settings.tier(size) for size in tiers}
    lacking = [
        size for size, tier in machines.items() if not (tier.serverless or tier.node_type or tier.instance_pool_id)
    ]
    if lacking:
        noun = "tiers" if len(lacking) > 1 else "tier"
        what = f"the job clusters of {noun} {', '.join(lacking)} have no machines"
        remedy = "give node_type (e.g. i3.xlarge) or instance_pool_id, here or below tiers"
        yield SpecProblem(FIELD_MISSING, ("node_type",), None, what, remedy)


def _check_tier(path: FieldPath, tier: DatabricksTier) -> Iterator[SpecProblem]:
    yield from _check_serverless(path, tier)
    for name in tier.auto_loader:
        if not name.startswith("cloudFiles.") or name in _OURS:
            remedy = f"write e.g. cloudFiles.useNotifications; {' and '.join(_OURS)} are set already"
            yield SpecProblem(FIELD_VALUE, (*path, "auto_loader"), name, "no setting that may be given", remedy)


def _check_serverless(path: FieldPath, tier: DatabricksTier) -> Iterator[SpecProblem]:
    if not tier.serverless:
        return
    if tier.discovery == "auto_loader":
        what, remedy = "not on serverless compute, where Spark is not in the job's process", "set serverless: false"
        yield SpecProblem(FIELD_VALUE, (*path, "discovery"), tier.discovery, what, remedy)
    for name in OF_CLUSTERS:
        if value := getattr(tier, name):
            what, remedy = "a field of job clusters, and the tier is serverless", "set serverless: false, or remove it"
            yield SpecProblem(FIELD_VALUE, (*path, name), value, what, remedy)


def check_root(path: FieldPath, root: str) -> Iterator[SpecProblem]:
    """Mounted volumes are refused."""
    if f"{root}/".startswith(_MOUNTS):
        what = "a mounted volume is no root: no atomic creation of files there, and Airflow does not see it"
        name = ".".join(map(str, path))
        remedy = f"set {name} to the s3:// URL of an external location, {documented('platforms/databricks.md')}"
        yield SpecProblem(RUNNER_NEEDS_S3, path, root, what, remedy)


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.databricks.platform:make",
    settings=DatabricksSettings,
    check_settings=check_settings,
    check_tiers=check_tiers,
    check="airflow_gddl.runners.databricks.serverless_check:check",
    check_root=check_root,
    install="airflow-gddl[databricks]",
    deploy="airflow_gddl.runners.databricks.jobs:render",
    bundle="airflow_gddl.runners.databricks.job_files:JOB_FILES",
)


def serverless_warning(tiers: Iterable[str], settings: DatabricksSettings, roots: Roots) -> str | None:
    """Warning about S3 access of tiers on serverless compute; None: there are none.

    Databricks offers its jobs there neither instance profiles nor environment variables, and the job reaches S3 with a
    client of its own.
    """
    serverless = [size for size in tiers if settings.tier(size).serverless]
    if not serverless or not buckets((roots.landing, roots.lake)):
        return None
    return (
        f"Warning: tiers {', '.join(serverless)} run on serverless compute, where a job has no AWS credentials "
        f"(no instance profile, no environment variables), and {roots.lake} is reached with the job's own. "
        "`gddl check` tries it by a run there. Safer: no serverless, with node_type and instance_profile; "
        f"see {documented('platforms/databricks.md')}"
    )
