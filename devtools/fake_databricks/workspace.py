"""Jobs and runs of the fake workspace, and their state transitions."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import os
import re
import signal
import subprocess
import threading
import types
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from databricks.sdk.service.jobs import (
    BaseJob,
    Job,
    JobsAPI,
    JobSettings,
    PythonWheelTask,
    QueueDetails,
    QueueDetailsCodeCode,
    QueueSettings,
    RepairHistoryItem,
    RepairHistoryItemType,
    Run,
    RunLifecycleStateV2State,
    RunOutput,
    RunStatus,
    RunTask,
    Task,
    TerminationCodeCode,
    TerminationDetails,
    TerminationTypeType,
)


class Refusal(Exception):  # noqa: N818 - an answer of the API, not a fault of this program
    """An error answer of the API.

    Args:
        status: of HTTP.
        code: `error_code` of the body.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_PARAMETER_VALUE", message)


def settings_of(body: Mapping[str, Any]) -> JobSettings:
    """A job's settings; nothing of the body is lost on the way into the SDK's type and back."""
    settings: JobSettings = _parsed(JobSettings, body)
    tasks = settings.tasks or []
    clusters = {cluster.job_cluster_key for cluster in settings.job_clusters or ()}
    environments = {environment.environment_key for environment in settings.environments or ()}
    for task in tasks:
        if task.job_cluster_key and task.job_cluster_key not in clusters:
            raise invalid(f"task {task.task_key} names job cluster {task.job_cluster_key}, which the job does not have")
        if task.environment_key and task.environment_key not in environments:
            raise invalid(f"task {task.task_key} names environment {task.environment_key}, which the job does not have")
    return settings


def arguments_of(method: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a call as the arguments of the SDK's method of that name.

    Raises:
        Refusal: unknown, missing or wrong ones.
    """
    function = getattr(JobsAPI, method)
    hints, parameters = get_type_hints(function), inspect.signature(function).parameters
    unknown = sorted(set(body) - (set(parameters) - {"self"}))
    if unknown:
        raise invalid(f"{method}: unknown field {unknown[0]!r}")
    needed = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n != "self"]
    missing = [name for name in needed if name not in body]
    if missing:
        raise invalid(f"{method}: {missing[0]} is missing")
    return {name: _typed(hints[name], value, name) for name, value in body.items()}


def _parsed(cls: Any, body: Any) -> Any:
    if not isinstance(body, Mapping):
        raise invalid(f"{cls.__name__} must be an object, not {body!r:.80}")
    try:
        value = cls.from_dict(dict(body))
        back = value.as_dict()
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise invalid(f"{cls.__name__}: {error}") from error
    lost = sorted(_differing(dict(body), back, cls.__name__))
    if lost:
        raise invalid(f"{lost[0]} is no field, or no value, of the Jobs API 2.2")
    return value


def _differing(sent: Any, kept: Any, path: str) -> set[str]:
    """Paths of what was sent and not kept as it was; empty lists and objects mean as much as none."""
    if isinstance(sent, Mapping) and isinstance(kept, Mapping):
        names = {name for name, value in sent.items() if value not in ({}, [], None)}
        return {found for name in names for found in _differing(sent[name], kept.get(name), f"{path}.{name}")}
    if isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        return {f for n, (a, b) in enumerate(zip(sent, kept, strict=True)) for f in _differing(a, b, f"{path}[{n}]")}
    return set() if sent == kept and type(sent) is type(kept) else {path}


def _typed(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return None if value is None else _typed(inner, value, path)
    if origin is dict:
        _expect(isinstance(value, dict), value, path, "an object")
        return {_typed(str, k, path): _typed(get_args(hint)[1], v, f"{path}.{k}") for k, v in value.items()}
    if origin is list:
        _expect(isinstance(value, list), value, path, "a list")
        return [_typed(get_args(hint)[0], item, path) for item in value]
    if dataclasses.is_dataclass(hint):
        return _parsed(hint, value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        _expect(value in {item.value for item in hint}, value, path, f"a {hint.__name__}")
        return hint(value)
    _expect(type(value) is hint, value, path, getattr(hint, "__name__", str(hint)))
    return value


def _expect(good: bool, value: Any, path: str, wanted: str) -> None:
    if not good:
        raise invalid(f"{path} must be {wanted}, not {value!r:.80}")


_GRACE_SECONDS = 10.0
_LINES = 200


_ALLOWED = re.compile(
    r"GDDL_(SETTLE|SOURCE_[A-Z0-9_]{1,100})|AWS_(REGION|DEFAULT_REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|TZ"
)
"""Variables that a job may set. Others choose what code the owner of the fake runs, as PYTHONPATH and GDDL_JARS do."""


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's variables that its process gets."""
    return {name: value for name, value in environ.items() if _ALLOWED.fullmatch(name)}


class TaskProcess:
    """A process whose last lines are kept; it ends with this one."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES)
        self.cancelled = False
        self._process = subprocess.Popen(  # noqa: S603 - the job's own command; only its parameters come with a request
            [*command, "--parent", str(os.getpid())],
            env={**os.environ, **allowed(environ)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            process_group=0,
        )

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        if self._process.stdout is not None:
            with self._process.stdout as out:
                self.lines.extend(line.rstrip("\n") for line in out)
        return self._process.wait()

    def cancel(self) -> None:
        """Terminate it, and kill it after a grace period."""
        self.cancelled = True
        self._process.terminate()
        threading.Timer(_GRACE_SECONDS, self._kill).start()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


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

    def deploy(self, bundle: Path) -> None:
        """Create the jobs of an asset bundle, `databricks.yml`."""
        for job in yaml.safe_load(bundle.read_text(encoding="utf-8"))["resources"]["jobs"].values():
            self.create(settings_of(job))

    def job(self, job_id: int) -> Job:
        return Job(job_id=job_id, settings=self._settings(job_id))

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
