"""Saved jobs of a Databricks workspace, for `gddl deploy databricks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_gddl.runners.databricks import jobs
from airflow_gddl.runners.databricks.access import DatabricksAccess
from airflow_gddl.runners.databricks.settings import DatabricksSettings, serverless_warning
from airflow_gddl.runners.databricks.workspace import Workspace, connect
from airflow_gddl.runners.interface import Deployment, JobChange


def opened(_settings: DatabricksSettings) -> Workspace:
    return connect(DatabricksAccess())


def apply(workspace: Workspace, changes: Sequence[JobChange[Any]], _settings: DatabricksSettings) -> None:
    jobs.apply(workspace, changes)


def rendered(folder: Path, wanted: Mapping[str, Any], settings: DatabricksSettings) -> str:
    path = jobs.render_bundle(folder, settings.job_name, wanted)
    return f"{len(wanted)} jobs written to {path}; `databricks bundle deploy` creates them"


DEPLOYMENT = Deployment(
    jobs_of=jobs.jobs_of, connect=opened, plan=jobs.plan, apply=apply, warning=serverless_warning, render=rendered
)
