"""The checks by name with the remedy of their failure, and the reasons for which one is not tried."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.codes import PLATFORM_CHECK_FAILED, PLATFORM_NOT_REMOVED, UNEXPECTED
from airflow_gddl.contract.errors import GddlError, documented
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import Roots
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.stores import Storage

_STORE = "use a store with conditional puts and consistent reads and listings, as Amazon S3 has"
_ROWS = "see the message; where rows differ, report it: no platform may lead to that"
CHECKS: Mapping[str, str] = {
    "storage.put": f"grant what {documented('permissions.md')} lists for the lake; {_STORE}",
    "storage.lost_answer": _STORE,
    "storage.listing": _STORE,
    "storage.denied": "close the bucket or folder to others; if it is closed, report the answer in the message",
    "job.load": "see the code and the log that the message names, and `gddl check` without --platform",
    "job.cancel": "grant the right to stop runs; end the run by hand",
    "job.resume": "see the code that the message names",
    "tables.verify": _ROWS,
    "tables.rows": _ROWS,
    "cleanup": "grant the right to delete; stop the run, or remove the folder, that the message names",
}
"""Name to remedy, in the order in which they are made."""

REASONS: Mapping[str, str] = {
    "all-rights": "this user may read everything",
    "ended": "the job had ended before it could be stopped",
    "failed": "a check that it needs did not pass",
    "no-package": "a package that it needs is not installed here",
    "stopped": "the check was stopped",
    "time": "the time limit was reached",
}
"""Why a check was not tried, by name. The names are all that a report says of it."""


class NotTriedError(Exception):
    """A check can't be made.

    Args:
        reason: one of `REASONS`.
        detail: for the screen alone; empty: nothing more is known.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class FoundError(Exception):
    """A check fails; the text says what was found instead.

    Args:
        cause: code of the error that was met; empty: none.
    """

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What the checks work with.

    Attributes:
        loaded: the user's metadata: roots, runner, tiers.
        root: folder of the check, below the lake.
        store: reaches the lake.
        unsigned: a store without credentials, which must be refused.
        until: end of the checks, in seconds of the monotonic clock.
    """

    cli: CliContext
    loaded: LoadedMetadata
    root: str
    store: Storage
    unsigned: Storage
    until: float

    def below(self, *parts: str) -> str:
        return join(self.root, *parts)

    @property
    def roots(self) -> Roots:
        """Landing and lake of the jobs."""
        return Roots(landing=self.below("landing"), lake=self.below("lake"))

    @property
    def on_s3(self) -> bool:
        return is_s3(self.root)

    @property
    def seconds_left(self) -> float:
        return self.until - time.monotonic()

    def require_time(self) -> None:
        """
        Raises:
            NotTriedError: `time`.
        """
        if self.seconds_left <= 0:
            raise NotTriedError("time")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a check.

    Attributes:
        finding: for the screen alone, since it may hold names.
        cause: code of the error that it met; empty: none, or it has no code.
        reason: one of `REASONS`; empty where it was tried.
        seconds: how long it took.
    """

    check: str
    state: Literal["PASS", "FAIL", "NOT TRIED"]
    finding: str = ""
    cause: str = ""
    reason: str = ""
    seconds: float = 0.0

    @property
    def code(self) -> str:
        """Code of the failure; empty where it did not fail."""
        code = PLATFORM_NOT_REMOVED if self.check == "cleanup" else PLATFORM_CHECK_FAILED
        return code if self.state == "FAIL" else ""

    @property
    def line(self) -> str:
        """What a person is told."""
        head = f"{self.state} {self.check}: "
        if self.state == "FAIL":
            return f"{head}[{self.code}] {self.finding}. Remedy: {CHECKS[self.check]}"
        why = REASONS.get(self.reason, self.reason)
        return head + ": ".join(filter(None, (why, self.finding)))


def not_tried(check: str, reason: str, finding: str = "") -> Outcome:
    return Outcome(check=check, state="NOT TRIED", reason=reason, finding=finding)


def failed(check: str, error: Exception, seconds: float = 0.0) -> Outcome:
    """The outcome of a check that raised this error."""
    cause = error.code if isinstance(error, GddlError) else getattr(error, "cause", UNEXPECTED)
    said = f"{type(error).__name__}: {error}" if cause == UNEXPECTED else str(error)
    return Outcome(check=check, state="FAIL", finding=said.rstrip("."), cause=cause, seconds=seconds)
