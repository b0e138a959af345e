"""What a snapshot depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings:
    """Where the metadata is, and how it is watched.

    Attributes:
        metadata: an absolute local path or an `s3://` URL.
        cache: a local folder, shared by any number of metadata folders and processes.
        environ: names that start with `GDDL_` override settings; `AWS_…` tell how S3 is reached.
        clock: seconds since the epoch.
        refresh_seconds: a remote folder is listed no more often.
        time_limit: seconds that reading may take.
        settle_seconds: a file younger than that may still be being written; while there is a good snapshot, it waits.
        copy: lake in which the last good copy is kept, too; empty: in the cache alone.
        copy_environ: tells how that lake is reached.
    """

    metadata: str
    cache: Path
    environ: Mapping[str, str]
    clock: Callable[[], float]
    refresh_seconds: float = 30.0
    time_limit: float = 60.0
    settle_seconds: float = 1.0
    copy: str = ""
    copy_environ: Mapping[str, str] = field(default_factory=dict)

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="seconds")
