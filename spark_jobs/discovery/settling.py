"""Files that are still being written: file systems show growing files, which are left until they settle.

A file settles once it has not changed for the row's `settle` (docs/semantics.md, section 2). S3 objects appear whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from airflow_gddl.contract.durations import wait_seconds
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.plan.files import FileEntry, LandedFile

Wait = Literal["never", "idle", "always"]
SETTLE_VARIABLE = "GDDL_SETTLE"
_FILE_SYSTEM_SETTLE = "3s"
_LONGEST_WAIT = timedelta(minutes=1)


def settle_of(spec: TableSpec, landing: str, environ: Mapping[str, str]) -> timedelta:
    """The row's `settle`, else the deployment's `GDDL_SETTLE`, else 3 seconds on file systems and none on S3."""
    default = "0s" if landing.startswith("s3://") else environ.get(SETTLE_VARIABLE, _FILE_SYSTEM_SETTLE)
    return timedelta(seconds=wait_seconds(default if spec.settle is None else spec.settle))


@dataclass(frozen=True, kw_only=True)
class Settling:
    """How long new files must be unchanged before they are ingested.

    Attributes:
        wait: `never`: leave them for a later listing; `idle`: wait for them if nothing else is new; or `always`. A wait
            of more than a minute is left to a later listing.
    """

    after: timedelta = timedelta(0)
    wait: Wait = "never"
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def split(
        self, storage: Storage, listing: Iterable[LandedFile], known: Mapping[str, FileEntry], now: datetime
    ) -> tuple[list[LandedFile], tuple[str, ...]]:
        """Settled files, and paths of new ones that may still be growing.

        Args:
            now: aware. A file from the future counts as just written: clocks differ.
        """
        files = list(listing)
        new = [file for file in files if file.path not in known or known[file.path].etag != file.etag]
        young = self.young(new, now)
        if young and (self.wait == "always" or (self.wait == "idle" and len(young) == len(new))):
            young = self._still_growing(storage, young, now)
        left = {file.path for file in young}
        return [file for file in files if file.path not in left], tuple(sorted(left))

    def young(self, new: Iterable[LandedFile], now: datetime) -> list[LandedFile]:
        """Files among new ones that may still be growing."""
        since = (now - self.after).astimezone(UTC).isoformat(timespec="microseconds")
        return [file for file in new if file.modified > since] if self.after else []

    def _still_growing(self, storage: Storage, young: Sequence[LandedFile], now: datetime) -> list[LandedFile]:
        newest = datetime.fromisoformat(max(file.modified for file in young))
        wait = min(newest - now + self.after, self.after)
        if wait > _LONGEST_WAIT:  # tables of the same process would wait, too
            return list(young)
        self.sleep(wait.total_seconds())
        return [file for file in young if (found := storage.stat(file.path)) is None or found.etag != file.etag]


AT_ONCE = Settling()
"""Files are ingested as listed."""
