"""What a place that runs jobs elsewhere offers, and the words spoken with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from airflow_gddl.contract.spec import TierSpec

State = Literal["waiting", "running", "succeeded", "failed", "cancelled", "lost"]
"""`lost`: the platform does not know the run any more; like the three before it an end."""
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A job to be started.

    Attributes:
        run_id: the JobSpec's.
        spec: path or URL of the JobSpec, for `gddl-job --spec`.
        size: name of the tier of its tables.
        tier: what that means.
        token: of two orders with one token the platform starts one run; at most 64 letters, digits and `-`.
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
        page: URL of its page for people; empty when there is none.
    """

    run: str
    group: str = ""
    page: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How a run stands.

    Attributes:
        message: the platform's own words; empty when it says nothing.
        restartable: it failed for no fault of the job, and `restart` would start it again.
    """

    state: State
    message: str = ""
    restartable: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED and not self.restartable


class Platform(Protocol):
    """Starts runs, looks at them, stops them. Every call blocks.

    Raises (every method):
        RetriableError: `PLATFORM_UNREACHABLE`: no answer, throttled for long, or a fault of its own.
        FatalError: `PLATFORM_REFUSED`: it understood, and will not; or what it lacks, by a code of its own.
    """

    def submit(self, order: RunRequest) -> Handle:
        """Start a run, or find the one that was started with this token."""
        ...

    def poll(self, handle: Handle) -> RunStatus: ...

    def cancel(self, handle: Handle) -> None:
        """Ask that the run be stopped; that of one that has ended is no error."""
        ...

    def links(self, handle: Handle) -> Mapping[str, str]:
        """Further pages of a running or ended run for people, by name; none where there are none, or not just now."""
        ...

    def restart(self, handle: Handle) -> None:
        """Start again a run that is `restartable`, under the same handle; nothing happens when another has done so."""
        ...
