"""Glue in `gddl.yaml`: where jobs run, as whom, what they run; and its `RunnerDescriptor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import FIELD_VALUE
from airflow_gddl.contract.durations import is_duration, seconds
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.runners.descriptor import RunnerDescriptor

OLDEST = (6, 0)
"""The first version of Glue with Spark 4."""
# The service's own limits.
_MOST_RUNS = 1000
_FEWEST_WORKERS = 2
_LONGEST = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class GlueTier:
    """The machines of one tier."""

    __pydantic_config__ = STRICT

    worker_type: str = "G.1X"
    """Type of its machines: `G.1X` has 4 cores and 16 GB, `G.2X` twice that, and so on up to `G.16X`."""
    workers: int | None = None
    """Machines, that of the driver among them; null: `workers` of the tier and one more."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, over ours."""


@dataclass(frozen=True, kw_only=True)
class GlueSettings:
    """Where jobs run, as whom, and what they run."""

    __pydantic_config__ = STRICT

    role: str
    """ARN of the role that jobs run as."""
    script: str
    """`s3://` URL of `gddl_glue.py`."""
    wheel: str
    """`s3://` URL of the wheel of this package."""
    dependencies: tuple[str, ...] = ("deltalake>=1.6.6,<1.7",)
    """What is installed beside the wheel."""
    glue_version: str = "6.0"
    """Version of Glue, 6.0 or newer."""
    delta_jars: tuple[str, ...] = ()
    """`s3://` URLs of Delta's JARs; empty: those of Glue."""
    job_name: str = "gddl"
    """The job of a tier is named `<job_name>-<tier>`."""
    max_concurrent_runs: int = 20
    """Runs of a job at once; more are queued."""
    timeout: str = "12h"
    """A run that takes longer is ended."""
    aws_conn_id: str = "aws_default"
    """Airflow connection; commands outside Airflow use what boto3 finds."""
    region: str | None = None
    """Region of the jobs; null: the connection's."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job."""
    local_roots: bool = False
    """Let landing and lake be local folders: for tests alone."""
    tiers: Mapping[str, GlueTier] = field(default_factory=dict)
    """What differs by tier."""

    def tier(self, size: str) -> GlueTier:
        return self.tiers.get(size, GlueTier())

    def job_of(self, size: str) -> str:
        """Name of the job that runs a tier's tables."""
        return f"{self.job_name}-{size}"


def check_settings(settings: GlueSettings) -> Iterator[SpecProblem]:
    """What types can't say."""
    urls: dict[FieldPath, str] = {("script",): settings.script, ("wheel",): settings.wheel}
    urls |= {("delta_jars", number): url for number, url in enumerate(settings.delta_jars)}
    for path, url in urls.items():
        if not url.startswith("s3://"):
            yield SpecProblem(FIELD_VALUE, path, url, "must be an s3:// URL", "write s3://bucket/key")
    if not settings.role.startswith("arn:"):
        remedy = "write arn:aws:iam::<account>:role/<name>"
        yield SpecProblem(FIELD_VALUE, ("role",), settings.role, "must be a role's ARN", remedy)
    yield from _check_numbers(settings)
    for size, tier in settings.tiers.items():
        if tier.workers is not None and tier.workers < _FEWEST_WORKERS:
            what, remedy = f"must be {_FEWEST_WORKERS} or more", "count the driver's machine, too"
            yield SpecProblem(FIELD_VALUE, ("tiers", size, "workers"), tier.workers, what, remedy)


def _check_numbers(settings: GlueSettings) -> Iterator[SpecProblem]:
    parts = settings.glue_version.split(".")
    if not all(part.isdigit() for part in parts) or tuple(map(int, parts)) < OLDEST:
        what, remedy = "has no Spark 4", "write 6.0 or newer"
        yield SpecProblem(FIELD_VALUE, ("glue_version",), settings.glue_version, what, remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem(FIELD_VALUE, ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")
    elif seconds(settings.timeout) > _LONGEST:
        yield SpecProblem(FIELD_VALUE, ("timeout",), settings.timeout, "longer than Glue allows", "write 7d or less")
    if not 1 <= settings.max_concurrent_runs <= _MOST_RUNS:
        what, remedy = f"must be 1 to {_MOST_RUNS}", "write a number between these"
        yield SpecProblem(FIELD_VALUE, ("max_concurrent_runs",), settings.max_concurrent_runs, what, remedy)


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.glue.platform:make",
    settings=GlueSettings,
    check_settings=check_settings,
    install="airflow-gddl[glue]",
    deploy="airflow_gddl.runners.glue.jobs:render",
    bundle="airflow_gddl.runners.glue.job_files:JOB_FILES",
)
