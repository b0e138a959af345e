"""Databricks as a `Platform`: runs of the saved job of a table's tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from databricks.sdk.errors import BadRequest, InvalidParameterValue, NotFound, ResourceConflict
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.jobs import (
    JobsAPI,
    RepairHistoryItemType,
    Run,
    RunLifecycleStateV2State,
    TerminationCodeCode,
    TerminationTypeType,
)

from airflow_gddl.contract.codes import JOB_NOT_DEPLOYED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.runners.databricks.access import DatabricksAccess
from airflow_gddl.runners.databricks.settings import CONTRACT_TAG, DatabricksSettings
from airflow_gddl.runners.databricks.workspace import Workspace, connect
from airflow_gddl.runners.descriptor import settings_of
from airflow_gddl.runners.interface import (
    Connections,
    Handle,
    Platform,
    RunRequest,
    RunStatus,
    State,
    check_contract,
)

_GOING: Mapping[RunLifecycleStateV2State | None, State] = {
    RunLifecycleStateV2State.RUNNING: "running",
    RunLifecycleStateV2State.TERMINATING: "running",
}
_CANCELLED = {TerminationCodeCode.CANCELED, TerminationCodeCode.USER_CANCELED, TerminationCodeCode.SKIPPED}
_NOT_OURS = {TerminationTypeType.CLOUD_FAILURE, TerminationTypeType.INTERNAL_ERROR}


def make(declared: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("databricks", DatabricksSettings, declared)
    return DatabricksPlatform(
        settings, connect(connections.login("databricks", settings.databricks_conn_id) or DatabricksAccess())
    )


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
        job_run = self._run(run)
        return Handle(run=str(run), group=str(job), page=(job_run.run_page_url or "") if job_run else "")

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
        matches = self.workspace.ask(lambda jobs: list(jobs.list(name=name)))
        if len(matches) == 1 and matches[0].job_id is not None:
            tags = (matches[0].settings.tags if matches[0].settings else None) or {}
            check_contract("databricks", name, tags.get(CONTRACT_TAG))
            return matches[0].job_id
        count = "no job" if not matches else f"{len(matches)} jobs"
        remedy = "run `gddl deploy databricks`" if not matches else "remove all but one, or set another job_name"
        raise FatalError(JOB_NOT_DEPLOYED, f"the workspace has {count} named {name!r}", remedy=remedy)

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
