"""How far a continuous job looks back for late files: as far as `lookback` says, though not at every turn.

A turn that follows a notice of files wants the newest ones. What lies far behind them comes seldom, and finding that
nothing came costs a listing and a row of the ledger for each file of all these days.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spark_jobs.discovery.listing import GLANCE_BACK
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.file_times import BY_NAME, FileTimes, reaching_back

EVERY = timedelta(seconds=60)
_SHARE = 20
"""A long look is not repeated before so many times as long as it took."""


@dataclass(frozen=True)
class LookingBack:
    """Remembers long looks by landing folder, for one process: another one begins with a long look of its own.

    Attributes:
        rests: folder to when it was looked at so, and until when a short look is enough.
    """

    rests: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    def reach(self, landing: str, now: datetime) -> timedelta | None:
        """How far behind the newest file to look; null: as far as `lookback` says."""
        looked, until = self.rests.get(landing, (now, now))
        return GLANCE_BACK if looked <= now < until else None

    def looked(
        self,
        landing: str,
        found: Discovery,
        cursor: str | None,
        began: datetime,
        ended: datetime,
        times: FileTimes = BY_NAME,
    ) -> None:
        """After a long look.

        Where it found something that a short one would not, the next look is long again: whoever takes what was found
        looks once more before.

        Args:
            cursor: the newest change file that was taken, relative; null before any.
        """
        since, root = reaching_back(times, cursor, GLANCE_BACK), f"{landing.rstrip('/')}/"
        names = (file.path.removeprefix(root) for file in found.waiting if file.kind == "change")
        if since is None or any((times.of(name) or since) < since for name in names):
            self.rests.pop(landing, None)
            return
        self.rests[landing] = began, ended + max(EVERY, _SHARE * (ended - began))
