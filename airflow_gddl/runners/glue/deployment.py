"""Saved jobs of AWS Glue, for `gddl deploy glue`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_gddl.runners.glue import jobs
from airflow_gddl.runners.glue.settings import GlueSettings
from airflow_gddl.runners.interface import Deployment, FromEnvironment, JobChange


def opened(settings: GlueSettings) -> Any:
    return jobs.connect(settings, FromEnvironment())


def apply(client: Any, changes: Sequence[JobChange[Any]], settings: GlueSettings) -> None:
    jobs.apply(client, changes, settings.tags)


DEPLOYMENT = Deployment(jobs_of=jobs.jobs_of, connect=opened, plan=jobs.plan, apply=apply)
