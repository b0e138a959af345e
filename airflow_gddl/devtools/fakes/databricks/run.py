"""One run of a job, from its start to its end and through its repairs."""

from __future__ import annotations

from dataclasses import dataclass, field

from databricks.sdk.service.jobs import (
    QueueDetails,
    QueueDetailsCodeCode,
    RepairHistoryItem,
    RepairHistoryItemType,
    Run,
    RunLifecycleStateV2State,
    RunOutput,
    RunStatus,
    RunTask,
    TerminationCodeCode,
    TerminationDetails,
    TerminationTypeType,
)

from airflow_gddl.devtools.fakes.databricks.process import TaskProcess

LIVE = RunLifecycleStateV2State
CODE = TerminationCodeCode
KIND = TerminationTypeType


@dataclass
class FakeRun:
    """A run. `page` is its URL; `attempts` counts how often its process was started."""

    run_id: int
    job_id: int
    page: str
    parameters: dict[str, str]
    state: RunLifecycleStateV2State = LIVE.QUEUED
    end: TerminationDetails | None = None
    repairs: list[int] = field(default_factory=list)
    process: TaskProcess | None = None
    attempts: int = 0
    log: list[str] = field(default_factory=list)

    @property
    def task_id(self) -> int:
        """Id of the run of its one task; a repair makes a new one."""
        return self.run_id * 100 + len(self.repairs)

    @property
    def is_going(self) -> bool:
        return self.state != LIVE.TERMINATED

    def close(self, code: TerminationCodeCode, kind: TerminationTypeType, message: str = "") -> None:
        self.state = LIVE.TERMINATED
        self.end = TerminationDetails(code=code, type=kind, message=message or None)

    def reopen(self, repair: int) -> None:
        self.repairs.append(repair)
        self.state, self.end = LIVE.QUEUED, None

    @property
    def status(self) -> RunStatus:
        queue = None
        if self.state == LIVE.QUEUED:
            queue = QueueDetails(code=QueueDetailsCodeCode.MAX_CONCURRENT_RUNS_REACHED)
        return RunStatus(state=self.state, termination_details=self.end, queue_details=queue)

    def shown(self, *, history: bool) -> Run:
        items = [RepairHistoryItem(type=RepairHistoryItemType.ORIGINAL)]
        items += [RepairHistoryItem(id=repair, type=RepairHistoryItemType.REPAIR) for repair in self.repairs]
        return Run(
            run_id=self.run_id,
            job_id=self.job_id,
            run_page_url=self.page,
            status=self.status,
            tasks=[RunTask(task_key="load", run_id=self.task_id, status=self.status)],
            repair_history=items if history else None,
        )

    def output(self) -> RunOutput:
        failed = self.end is not None and self.end.type != KIND.SUCCESS
        return RunOutput(
            error="\n".join(self.log[-3:]) if failed else None,
            logs="\n".join(self.log),
            metadata=self.shown(history=False),
        )
