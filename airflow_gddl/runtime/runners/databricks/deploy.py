"""Creates and updates saved jobs, or writes them as an asset bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import yaml
from databricks.sdk.service.jobs import JobsAPI, JobSettings

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.s3 import buckets
from airflow_gddl.contract.spec import Roots
from airflow_gddl.metadata.runners.databricks import DatabricksSettings
from airflow_gddl.runtime.runners.changes import JobChange, differences
from airflow_gddl.runtime.runners.databricks.workspace import Workspace

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
