"""Glue in `gddl.yaml`: where jobs run, as whom, what they run; and its `RunnerDescriptor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.runners.descriptor import RunnerDescriptor

_FEWEST_WORKERS = 2
"""The service's own limit."""


@dataclass(frozen=True, kw_only=True)
class GlueTier:
    """The machines of one tier."""

    __pydantic_config__ = STRICT

    worker_type: str = "G.1X"
    """Type of its machines: `G.1X` has 4 cores and 16 GB, `G.2X` twice that, and so on up to `G.16X`."""
    workers: int | None = None
    """Machines, that of the driver among them; null: `workers` of the tier and one more."""


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
    job_name: str = "gddl"
    """The job of a tier is named `<job_name>-<tier>`."""
    aws_conn_id: str = "aws_default"
    """Airflow connection; commands outside Airflow use what boto3 finds."""
    region: str | None = None
    """Region of the jobs; null: the connection's."""
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
    for name in ("script", "wheel"):
        if not (url := getattr(settings, name)).startswith("s3://"):
            yield SpecProblem("FIELD_VALUE", (name,), url, "must be an s3:// URL", "write s3://bucket/key")
    if not settings.role.startswith("arn:"):
        remedy = "write arn:aws:iam::<account>:role/<name>"
        yield SpecProblem("FIELD_VALUE", ("role",), settings.role, "must be a role's ARN", remedy)
    for size, tier in settings.tiers.items():
        if tier.workers is not None and tier.workers < _FEWEST_WORKERS:
            what, remedy = f"must be {_FEWEST_WORKERS} or more", "count the driver's machine, too"
            yield SpecProblem("FIELD_VALUE", ("tiers", size, "workers"), tier.workers, what, remedy)


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.glue.platform:make",
    settings=GlueSettings,
    check_settings=check_settings,
    install="airflow-gddl[glue]",
    deploy="airflow_gddl.runners.glue.jobs:render",
    bundle="airflow_gddl.runners.glue.job_files:JOB_FILES",
)
