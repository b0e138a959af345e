"""Lookback of a continuous job for late files: the row's `lookback`, but not at every turn.

A turn that follows a file notification needs the newest files. Much older ones are rare, and finding that
there are none costs a listing and a ledger row for each file of the whole lookback.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spark_jobs.discovery.listing import GLANCE_BACK
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.file_times import BY_NAME, FileTimes, reaching_back

EVERY = timedelta(seconds=60)
_SHARE = 20
"""A deep listing is not repeated before this multiple of its duration."""


@dataclass(frozen=True)
class DeepListings:
    """Deep listings by landing folder, for one process: another process starts with its own deep listing.

    Attributes:
        recent: folder to the time of its deep listing, and the time until which short listings suffice.
    """

    recent: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    def reach(self, landing: str, now: datetime) -> timedelta | None:
        """Lookback behind the newest file; null: the row's `lookback`."""
        listed_at, until = self.recent.get(landing, (now, now))
        return GLANCE_BACK if listed_at <= now < until else None

    def record(
        self,
        landing: str,
        found: Discovery,
        cursor: str | None,
        began: datetime,
        ended: datetime,
        times: FileTimes = BY_NAME,
    ) -> None:
        """Record a deep listing.

        If it found a file that a short one would miss, the next listing is deep again, since the run that ingests the
        file lists once more.

        Args:
            cursor: relative path of the newest ingested change file; null: none.
        """
        since, root = reaching_back(times, cursor, GLANCE_BACK), f"{landing.rstrip('/')}/"
        names = (file.path.removeprefix(root) for file in found.waiting if file.kind == "change")
        if since is None or any((times.of(name) or since) < since for name in names):
            self.recent.pop(landing, None)
            return
        self.recent[landing] = began, ended + max(EVERY, _SHARE * (ended - began))
