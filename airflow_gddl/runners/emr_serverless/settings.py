"""EMR Serverless in `gddl.yaml`: where jobs run, as whom, what they run; and its `RunnerDescriptor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import FIELD_VALUE
from airflow_gddl.contract.durations import is_duration
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.runners.descriptor import RunnerDescriptor


@dataclass(frozen=True, kw_only=True)
class EmrTier:
    """What differs for one tier."""

    __pydantic_config__ = STRICT

    application_id: str | None = None
    """Its application; null: that of all."""
    max_executors: int | None = None
    """Executors when there is much to do; null: `workers` of the tier."""
    disk: str = "20g"
    """Disk of each machine, 20g to 200g."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, over ours."""


@dataclass(frozen=True, kw_only=True)
class EmrSettings:
    """Where jobs run, as whom, and what they run."""

    __pydantic_config__ = STRICT

    execution_role: str
    """ARN of the role that jobs run as."""
    entry_point: str
    """`s3://` URL of the script that calls `spark_jobs.main.task`."""
    application_id: str | None = None
    """Application of tiers that name none."""
    archive: str | None = None
    """`s3://` URL of the packed Python environment; null: the application's image has it."""
    aws_conn_id: str = "aws_default"
    """Airflow connection; commands outside Airflow use what boto3 finds."""
    region: str | None = None
    """Region of the applications; null: the connection's."""
    timeout: str = "12h"
    """A job run that takes longer is ended."""
    log_uri: str | None = None
    """`s3://` URL for logs, beside those that the service keeps for 30 days; null: none."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job run."""
    local_roots: bool = False
    """Let landing and lake be local folders: for tests alone."""
    tiers: Mapping[str, EmrTier] = field(default_factory=dict)
    """What differs by tier."""

    def tier(self, size: str) -> EmrTier:
        return self.tiers.get(size, EmrTier())


def check_settings(settings: EmrSettings) -> Iterator[SpecProblem]:
    """What types can't say."""
    urls: dict[FieldPath, str | None] = {
        ("entry_point",): settings.entry_point,
        ("archive",): settings.archive,
        ("log_uri",): settings.log_uri,
    }
    for path, url in urls.items():
        if url is not None and not url.startswith("s3://"):
            yield SpecProblem(FIELD_VALUE, path, url, "must be an s3:// URL", "write s3://bucket/key")
    if not settings.execution_role.startswith("arn:"):
        remedy = "write arn:aws:iam::<account>:role/<name>"
        yield SpecProblem(FIELD_VALUE, ("execution_role",), settings.execution_role, "must be a role's ARN", remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem(FIELD_VALUE, ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.emr_serverless.platform:make",
    settings=EmrSettings,
    check_settings=check_settings,
    install="airflow-gddl[emr-serverless]",
    bundle="airflow_gddl.runners.emr_serverless.job_files:JOB_FILES",
)
