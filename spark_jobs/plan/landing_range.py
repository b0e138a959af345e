"""The time of a reload that reads only the files that landed in it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.codes import OPTION_INVALID
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobOptions


@dataclass(frozen=True, kw_only=True)
class LandingRange:
    """Times of last modification: from `since` on, before `until`; ISO 8601 with a zone, None: open."""

    since: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, options: JobOptions) -> LandingRange | None:
        """The time of the job's reload; None: it has none, or the job does not reload.

        Raises:
            FatalError: `OPTION_INVALID`.
        """
        if not isinstance(reload := options.load, Reload):
            return None
        given = {"landed_since": reload.landed_since, "landed_until": reload.landed_until}
        texts = {name: _moment(name, text) if text else None for name, text in given.items()}
        since, until = texts["landed_since"], texts["landed_until"]
        if since is None and until is None:
            return None
        if since is not None and until is not None and moment_of(since) >= moment_of(until):
            what = f"a reload of a time from {since} to {until}"
            raise FatalError(OPTION_INVALID, what, remedy="let the time end after it begins")
        return cls(since=since, until=until)

    def holds(self, modified: str) -> bool:
        moment = moment_of(modified)
        return (self.since is None or moment >= moment_of(self.since)) and (
            self.until is None or moment < moment_of(self.until)
        )

    def __str__(self) -> str:
        return f"from {self.since or 'the first file'} to {self.until or 'the last'}"


def _moment(name: str, text: str) -> str:
    try:
        return moment_of(text).isoformat()
    except ValueError as error:
        remedy = "write ISO 8601, e.g. 2026-01-31T00:00:00Z"
        raise FatalError(OPTION_INVALID, f"{name} {text!r} is not a moment", remedy=remedy) from error
