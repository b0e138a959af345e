"""Until when everything of a source is known to have come, and whether its log stands still; pure.

What is evidence, and what isn't: docs/decisions/sources-and-security.md. Moments are seconds since the
epoch; None: none, or not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOWS = "windows"
"""Key of `JobResult.details` of a verification by windows."""
DELIVERY_SECONDS = 300.0
"""By how much later than the heartbeat's file the file of another table with an earlier commit may land."""
AHEAD_SECONDS = 86_400.0
"""A heartbeat's commit that is further ahead of the moment at which it was applied is of a clock that is wrong."""


@dataclass(frozen=True, kw_only=True)
class HeartbeatFacts:
    """What is known of a source's heartbeat table, whose rows the source updates all the time.

    Attributes:
        commit: newest commit of it that was applied.
        loaded: start of the newest run that loaded some of it.
        as_of: last moment at which all of it that had landed was applied.
    """

    commit: float | None = None
    loaded: float | None = None
    as_of: float | None = None

    @property
    def standstill(self) -> float:
        """How long nothing of the log had come when it was last looked at, in seconds; 0 before anything is known.

        It does not grow while nobody looks: late runs are no proof of a stopped log. A heartbeat of which nothing but
        the full load came, or whose commit time can't be, counts from its newest load.
        """
        if self.as_of is None:
            return 0.0
        is_known = self.commit is not None and self.commit <= self.as_of + AHEAD_SECONDS
        last = self.commit if is_known else self.loaded
        return 0.0 if last is None else max(0.0, self.as_of - last)


def is_stopped(heartbeat: HeartbeatFacts | None, limit: float | None, commit: float | None = None) -> bool:
    """Whether the source's log stands still for longer than a table's freshness allows.

    Args:
        heartbeat: None: the source has none, so that a quiet table says nothing.
        limit: `freshness` of the table in seconds; None: none.
        commit: newest commit of the table itself that was applied: its log advances even where the heartbeat has ended.
    """
    if heartbeat is None or limit is None or heartbeat.standstill <= limit:
        return False
    return commit is None or heartbeat.as_of is None or heartbeat.as_of - commit > limit


def complete_until(
    commit: float | None,
    as_of: float | None,
    heartbeat: HeartbeatFacts | None = None,
    verified: float | None = None,
    missing_from: float | None = None,
) -> float | None:
    """The commit time of the source until which everything of a table is known to have come.

    Args:
        commit: newest commit of the table that was applied.
        as_of: last moment at which all of the table that had landed was applied.
        verified: until when a comparison with the source found nothing missing.
        missing_from: from when a comparison found something missing; nothing after it is known to be complete.
    """
    known = [moment for moment in (commit, verified) if moment is not None]
    if heartbeat is not None and heartbeat.commit is not None and as_of is not None:
        known.append(min(heartbeat.commit, as_of - DELIVERY_SECONDS))
    until = max(known, default=None)
    return until if until is None or missing_from is None else min(until, missing_from)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What comparisons with the source have shown; see `complete_until`."""

    until: float | None = None
    missing_from: float | None = None

    def after(self, since: float | None, until: float | None, missing_from: float | None) -> Verified:
        """With one more comparison. It ends an earlier finding only where it has found nothing at its time: a window
        that is open or unsettled, or was not compared, shows nothing.

        Args:
            since: from when it compared; None: everything.
        """
        kept = self.missing_from
        if kept is not None and (since is None or since <= kept) and until is not None and until > kept:
            kept = None
        moments = [moment for moment in (kept, missing_from) if moment is not None]
        proven = [moment for moment in (self.until, until) if moment is not None]
        return Verified(until=max(proven, default=None), missing_from=min(moments, default=None))


def window_bounds(details: Any) -> tuple[str | None, str | None] | None:
    """`since` and `missing_from` of a verification by windows (ISO 8601), from its result's details; None: it was
    none."""
    windows = details.get(WINDOWS) if isinstance(details, Mapping) else None
    return (windows.get("since"), windows.get("missing_from")) if isinstance(windows, Mapping) else None
