"""Jobs and runs of the fake workspace, and their state transitions."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from databricks.sdk.service.jobs import BaseJob, Job, JobSettings, PythonWheelTask, QueueSettings, Task

from airflow_gddl.devtools.fakes.databricks.checking import Refusal, invalid
from airflow_gddl.devtools.fakes.databricks.process import TaskProcess
from airflow_gddl.devtools.fakes.databricks.run import CODE, KIND, LIVE, FakeRun

_REFERENCE = re.compile(r"\{\{job\.parameters\.(\w+)\}\}")
_ENTRY = ("airflow_gddl", "gddl-task")


@dataclass
class FakeWorkspace:
    """State of the server.

    Attributes:
        command: program and first arguments of the job, in the place of the wheel's entry point.
        url: that pages of runs are below.
        cloud_failures: number of next starts that fail with missing cloud capacity.
        started: how many processes were started.
    """

    command: Sequence[str]
    url: str = ""
    jobs: dict[int, JobSettings] = field(default_factory=dict)
    runs: dict[int, FakeRun] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    cloud_failures: int = 0
    started: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    _last: int = 1000

    def create(self, settings: JobSettings) -> int:
        self.jobs[self._id()] = settings
        return self._last

    def job(self, job_id: int) -> Job:
        return Job(job_id=job_id, settings=self._settings(job_id))

    def reset(self, job_id: int, settings: JobSettings) -> None:
        self._settings(job_id)
        self.jobs[job_id] = settings

    def listed(self, name: str | None) -> list[BaseJob]:
        """Jobs of that name, as `list` matches it: in full, whatever its case; in brief."""
        return [
            BaseJob(job_id=number, settings=JobSettings(name=settings.name, tags=settings.tags))
            for number, settings in self.jobs.items()
            if name is None or (settings.name or "").lower() == name.lower()
        ]

    def run_now(self, arguments: dict[str, Any]) -> FakeRun:
        """A new run, or the one that was started with the same token."""
        token = arguments.get("idempotency_token")
        if token is not None and len(token) > 64:
            raise invalid("idempotency_token is longer than 64 characters")
        if token in self.tokens:
            return self.runs[self.tokens[token]]
        settings = self._settings(arguments["job_id"])
        given = arguments.get("job_parameters") or {}
        known = {parameter.name: parameter.default for parameter in settings.parameters or ()}
        if unknown := sorted(set(given) - set(known)):
            raise invalid(f"job {arguments['job_id']} has no parameter {unknown[0]!r}")
        number = self._id()
        page = f"{self.url}/runs/{number}"
        run = FakeRun(number, arguments["job_id"], page, {**known, **given})
        self.runs[number] = run
        if token is not None:
            self.tokens[token] = number
        self._start_next(run.job_id)
        return run

    def run(self, run_id: int) -> FakeRun:
        if run_id not in self.runs:
            raise invalid(f"Run {run_id} does not exist.")
        return self.runs[run_id]

    def task_run(self, task_id: int) -> FakeRun:
        for run in self.runs.values():
            if run.task_id == task_id:
                return run
        raise invalid(f"Run {task_id} does not exist.")

    def cancel(self, run_id: int) -> None:
        run = self.run(run_id)
        if run.state == LIVE.QUEUED:
            run.close(CODE.USER_CANCELED, KIND.SUCCESS, "Run cancelled.")
        elif run.is_going and run.process is not None:
            run.state = LIVE.TERMINATING
            run.process.cancel()

    def repair(self, run_id: int, latest: int | None) -> int:
        run = self.run(run_id)
        if run.is_going:
            raise Refusal(409, "RESOURCE_CONFLICT", f"Run {run_id} is active.")
        if latest != (run.repairs[-1] if run.repairs else None):
            raise invalid(f"latest_repair_id must be that of the last repair of run {run_id}")
        repair = self._id()
        run.reopen(repair)
        self._start_next(run.job_id)
        return repair

    def close(self) -> None:
        """End what runs."""
        for run in list(self.runs.values()):
            if run.is_going:
                self.cancel(run.run_id)

    def _settings(self, job_id: int) -> JobSettings:
        if job_id not in self.jobs:
            raise invalid(f"Job {job_id} does not exist.")
        return self.jobs[job_id]

    def _id(self) -> int:
        self._last += 1
        return self._last

    def _start_next(self, job_id: int) -> None:
        """As many queued runs as the job may have at once; without a queue the others are skipped."""
        settings = self._settings(job_id)
        queue = settings.queue or QueueSettings(enabled=False)
        going = [run for run in self.runs.values() if run.job_id == job_id and run.is_going]
        free = (settings.max_concurrent_runs or 1) - sum(run.state != LIVE.QUEUED for run in going)
        for run in [run for run in going if run.state == LIVE.QUEUED]:
            if free > 0:
                free -= 1
                self._start(run, settings)
            elif not queue.enabled:
                run.close(CODE.MAX_CONCURRENT_RUNS_EXCEEDED, KIND.CLIENT_ERROR, "too many runs at once")

    def _start(self, run: FakeRun, settings: JobSettings) -> None:
        if self.cloud_failures:
            self.cloud_failures -= 1
            run.close(CODE.CLOUD_FAILURE, KIND.CLOUD_FAILURE, "AWS_INSUFFICIENT_INSTANCE_CAPACITY_FAILURE")
            return
        (task,) = settings.tasks or [Task(task_key="none")]
        wheel = task.python_wheel_task or PythonWheelTask(package_name="", entry_point="")
        if (wheel.package_name, wheel.entry_point) != _ENTRY:
            message = f"no entry point {wheel.entry_point} in {wheel.package_name}"
            run.close(CODE.RUN_EXECUTION_ERROR, KIND.CLIENT_ERROR, message)
            return
        parameters = [_REFERENCE.sub(lambda m: run.parameters[m[1]], text) for text in wheel.parameters or ()]
        clusters = {cluster.job_cluster_key: cluster.new_cluster for cluster in settings.job_clusters or ()}
        cluster = clusters.get(task.job_cluster_key or "")
        run.process = TaskProcess([*self.command, *parameters], (cluster and cluster.spark_env_vars) or {})
        run.state, run.attempts, self.started = LIVE.RUNNING, run.attempts + 1, self.started + 1
        threading.Thread(target=self._attend, args=(run, run.process), daemon=True).start()

    def _attend(self, run: FakeRun, process: TaskProcess) -> None:
        status = process.wait()
        with self.lock:
            run.log = list(process.lines)
            if process.cancelled:
                run.close(CODE.USER_CANCELED, KIND.SUCCESS, "Run cancelled.")
            elif status == 0:
                run.close(CODE.SUCCESS, KIND.SUCCESS)
            else:
                run.close(CODE.RUN_EXECUTION_ERROR, KIND.CLIENT_ERROR, f"SystemExit: {status}")
            self._start_next(run.job_id)
