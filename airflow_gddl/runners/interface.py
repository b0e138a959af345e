"""Interface of a platform that runs jobs, and its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from airflow_gddl.contract import codes
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import CONTRACT_VERSION, JobSpec, TierSpec


class Connections(Protocol):
    """Credentials by the name that the metadata gives them.

    Raises (every method):
        FatalError: `CONNECTION_UNUSABLE`.
    """

    def login(self, platform: str, name: str) -> Any:
        """What reaches a platform with credentials of its own, as its runner takes it; None: as its SDK finds them.

        Args:
            platform: name of the module of `airflow_gddl.hooks` that has the function `login` of a connection's name.
        """
        ...

    def aws(self, name: str, service: str, region: str | None) -> Any:
        """boto3's client of a service, such as `glue`.

        Args:
            region: None: the connection's.
        """
        ...


class FromEnvironment:
    """Default credentials of the SDKs: environment variables, profiles, the machine's role. Connection names are
    ignored."""

    def login(self, platform: str, name: str) -> Any:  # noqa: ARG002 - names belong to Airflow
        return None

    def aws(self, name: str, service: str, region: str | None) -> Any:  # noqa: ARG002 - as above
        from airflow_gddl.runners import aws  # noqa: PLC0415 - needs boto3

        return aws.client(service, region)


State = Literal["waiting", "running", "succeeded", "failed", "cancelled", "lost"]
"""`lost`: the platform no longer knows the run; final, like the three before it."""
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A job to start.

    Attributes:
        run_id: the JobSpec's.
        spec: path or URL of the JobSpec, for `gddl-job --spec`.
        size: name of the tier of its tables.
        tier: its settings.
        token: idempotency token: the platform starts one run for each token; at most 64 letters, digits and `-`.
    """

    run_id: str
    spec: str
    size: str
    tier: TierSpec
    token: str


@dataclass(frozen=True, kw_only=True)
class Handle:
    """A run that was started.

    Attributes:
        run: the platform's id of it.
        group: id of what it belongs to (a job, an application); empty where ids of runs stand alone.
        page: URL of its web page; empty when there is none.
    """

    run: str
    group: str = ""
    page: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of a run.

    Attributes:
        message: the platform's message; empty when there is none.
        restartable: the platform failed, not the job, and `restart` would start the run again.
    """

    state: State
    message: str = ""
    restartable: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED and not self.restartable


class Platform(Protocol):
    """Starts, polls and stops runs. Every call blocks.

    Raises (every method):
        RetriableError: `PLATFORM_UNREACHABLE`: no response, throttled for long, or a server error.
        FatalError: `PLATFORM_REFUSED`: the platform rejected the request; or a more specific code.
    """

    def submit(self, request: RunRequest) -> Handle:
        """Start a run, or find the one that was started with this token."""
        ...

    def poll(self, handle: Handle) -> RunStatus: ...

    def cancel(self, handle: Handle) -> None:
        """Request that the run be stopped; not an error for a finished run."""
        ...

    def links(self, handle: Handle) -> Mapping[str, str]:  # noqa: ARG002 - of the platforms that have more
        """Further web pages of a run, by name; empty where its page leads to all. They are logged, so that none is
        signed: a signed URL is a credential."""
        return {}

    def restart(self, handle: Handle) -> None:  # noqa: ARG002 - of the platforms that have such runs
        """Restart a `restartable` run under the same handle; does nothing if it was already restarted."""
        raise AssertionError("no run of this platform is restartable")


def check_contract(runner: str, job: str, deployed: str | None) -> None:
    """Check a saved job before a machine is started. The job checks as well, since its wheel may differ.

    Args:
        deployed: contract version that the job was deployed with; null: not known.

    Raises:
        FatalError: `CONTRACT_VERSION`: another version deployed it.
    """
    if deployed not in (None, str(CONTRACT_VERSION)):
        what = f"job {job!r} was deployed for contract version {deployed}, and this side has {CONTRACT_VERSION}"
        remedy = f"put the same airflow-gddl on both sides, and run `gddl deploy {runner}`"
        raise FatalError(codes.CONTRACT_VERSION, what, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """Progress of one table in a running job.

    Attributes:
        step: as the job names it: `discover`, `starting Spark`, `plan`, `append`, `merge`, … `done`.
        batch: number of the current batch, from 1 in this run; 0 before the first.
        batches: batches of this run; null while unknown.
        rows: rows read so far in this run.
    """

    table: str
    step: str
    batch: int = 0
    batches: int | None = None
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """A remote run that has not ended.

    Attributes:
        number: of its attempt, see `remote.Attempts`.
    """

    number: int
    handle: Handle


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """A finished job.

    Attributes:
        results: one a table of the spec, in the order they ended; tables without a result from the job come last, as
            failed.
        exit_status: the job's own, 0 to 255; 128 plus the signal's number when a signal ended it.
        cancelled_by: number of the signal that stopped it; null when it was not stopped.
        log: where the job's log was written, or the page of its run; null when the runner keeps none.
        waiting: a remote run for the caller to wait for: results are incomplete, and the same call made later resumes
            it. Null when the job has ended.
    """

    results: tuple[JobResult, ...]
    exit_status: int
    cancelled_by: int | None = None
    log: str | None = None
    waiting: WaitPolicy | None = None


class Listener(Protocol):
    """Callbacks during a job, in the caller's thread."""

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None: ...


class Runner(Protocol):
    """Runs a job to its end."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """Every table of the spec has a result in the outcome, and the listener was called with each.

        Raises:
            GddlError: nothing was started, and why.
        """
        ...
