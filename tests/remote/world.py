"""A platform and a lake in memory, and workers that may be lost between any two of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import result_name, results_folder
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.runners.interface import ENDED, Handle, RunRequest, RunStatus, State, WaitPolicy
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey, cancel
from airflow_gddl.stores import StoredObject
from tests.remote.heard import Heard

LAKE = "s3://lake"
KEY = TaskKey(pipeline="p", run="r", task="t")
TABLES = ("s.a", "s.b", "s.c")


class LostError(BaseException):
    """The worker is gone: nothing that it would have done on the way out happens."""


@dataclass
class Fuse:
    """Burns down by one at each step outside the worker; the last one is its end, before or after the step."""

    left: int | None = None
    after: bool = False
    burnt: int = 0

    def burn(self) -> bool:
        """Whether the worker is lost after this very step."""
        self.burnt += 1
        if self.left is None or self.burnt < self.left:
            return False
        if not self.after or self.burnt > self.left:
            raise LostError
        return True


@dataclass
class MemoryStore:
    """See `Storage`."""

    objects: dict[str, bytes] = field(default_factory=dict)
    fuse: Fuse = field(default_factory=Fuse)

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:  # noqa: ARG002 - the port's
        self.fuse.burn()
        for path in sorted(self.objects):
            name = path.removeprefix(f"{folder}/")
            if name != path and name > after:
                yield StoredObject(folder, name, 1, str(hash(self.objects[path])), 0.0)

    def read(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def write(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def delete(self, *paths: str) -> None:
        for path in paths:
            self.objects.pop(path, None)

    def create(self, path: str, data: bytes) -> bool:
        lost = self.fuse.burn()
        made = self.objects.setdefault(path, data) is data
        if lost:
            raise LostError
        return made


@dataclass
class MemoryRun:
    """A run; `answered` are its tables' results so far."""

    token: str
    spec: JobSpec
    state: State = "running"
    stopping: bool = False
    restartable: bool = False
    restarted: int = 0
    message: str = "as told"
    answered: dict[str, bool] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        return self.state not in ENDED


@dataclass
class MemoryPlatform:
    """See `Platform`: of two orders with one token it starts one run."""

    store: MemoryStore
    fuse: Fuse = field(default_factory=Fuse)
    runs: list[MemoryRun] = field(default_factory=list)
    refuses_restart: bool = False
    refuses_cancel: bool = False

    def submit(self, order: RunRequest) -> Handle:
        lost = self.fuse.burn()
        number = next((n for n, run in enumerate(self.runs) if run.token == order.token), None)
        if number is None:
            assert not self.active, "two runs at once"
            self.runs.append(MemoryRun(order.token, from_json(JobSpec, self.store.read(order.spec).decode())))
            number = len(self.runs) - 1
        if lost:
            raise LostError
        return Handle(run=str(number), page=f"https://runs/{number}")

    def poll(self, handle: Handle) -> RunStatus:
        self.fuse.burn()
        run = self.runs[int(handle.run)]
        return RunStatus(state=run.state, message=run.message, restartable=run.restartable)

    def cancel(self, handle: Handle) -> None:
        lost = self.fuse.burn()
        if self.refuses_cancel:
            raise FatalError("PLATFORM_REFUSED", "no")
        self.runs[int(handle.run)].stopping = True
        if lost:
            raise LostError

    def links(self, handle: Handle) -> dict[str, str]:
        return {"page": handle.page}

    def restart(self, handle: Handle) -> None:
        run = self.runs[int(handle.run)]
        if self.refuses_restart:
            raise FatalError("PLATFORM_REFUSED", "no")
        run.state, run.restartable, run.restarted = "running", False, run.restarted + 1

    @property
    def active(self) -> MemoryRun | None:
        return next((run for run in self.runs if run.is_active), None)

    def answer(self, table: str, *, good: bool) -> None:
        """The running job is done with a table."""
        run = self.active
        assert run is not None
        run.answered[table] = good
        error = None if good else ErrorInfo(code="SCHEMA_REFUSED", message="no")
        status = "succeeded" if good else "failed"
        result = JobResult(table=table, status=status, run_id=run.spec.run_id, error=error)
        folder = results_folder(LAKE, run.spec.run_id)
        self.store.objects[f"{folder}/{result_name(table)}"] = to_json(result).encode()


@dataclass
class World:
    """One task of a DAG run, over all of its tries."""

    store: MemoryStore = field(default_factory=MemoryStore)
    platform: MemoryPlatform = field(init=False)
    done: set[str] = field(default_factory=set)
    begun: tuple[tuple[str, ...], int] | None = None
    waiting: WaitPolicy | None = None
    reported: list[JobResult] = field(default_factory=list)
    tries: int = 0

    def __post_init__(self) -> None:
        self.platform = MemoryPlatform(self.store)

    def work(self, fuse: Fuse | None = None) -> bool:
        """What a worker does with the task, at a try's start or after its wait; whether it came to the try's end."""
        fuse = fuse or Fuse()
        self.store.fuse = self.platform.fuse = fuse
        begun, self.begun, self.waiting = self.begun, None, None
        self.tries += 1
        try:
            return self._work(begun, fuse)
        except LostError:
            return False
        finally:
            self.store.fuse = self.platform.fuse = Fuse()

    def _work(self, begun: tuple[tuple[str, ...], int] | None, fuse: Fuse) -> bool:
        tables = begun[0] if begun else tuple(table for table in TABLES if table not in self.done)
        runner, heard = self.runner(None if begun is None else begun[1]), Heard()
        outcome = runner.run(spec_of(tables, f"j{self.tries}"), heard)
        fuse.burn()
        self.done |= {result.table for result in heard.results if result.status != "failed"}
        if outcome.waiting is not None:
            self.begun, self.waiting = (tables, runner.since or 0), outcome.waiting
            return False
        runner.settle()
        self.reported = heard.results
        return True

    def runner(self, since: int | None = None) -> RemoteRunner:
        return RemoteRunner(
            open=lambda: self.platform,
            store=self.store,
            attempts=self.attempts,
            patient=False,
            since=since,
            now=lambda: 0.0,
        )

    @property
    def attempts(self) -> Attempts:
        return Attempts(self.store, LAKE, KEY)

    def stop_task(self, fuse: Fuse | None = None) -> None:
        """A person marks or clears the task while it waits."""
        assert self.waiting is not None
        self.store.fuse = self.platform.fuse = fuse or Fuse()
        try:
            cancel(self.platform, self.attempts, self.waiting)
        except LostError:
            pass
        finally:
            self.store.fuse = self.platform.fuse = Fuse()
        self.begun = self.waiting = None

    def time_out(self) -> None:
        """The trigger finds that the task has reached its time limit; the run ends on request, or not."""
        assert self.waiting is not None
        cancel(self.platform, self.attempts, self.waiting, "timeout")


def spec_of(tables: Sequence[str], run_id: str) -> JobSpec:
    specs = tuple(TableSpec(table=table, keys=("id",)) for table in tables)
    return JobSpec(run_id=run_id, roots=Roots(landing="s3://landing", lake=LAKE), tables=specs)
