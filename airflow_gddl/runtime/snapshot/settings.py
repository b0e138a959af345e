"""Settings of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings:
    """Location of the metadata, and how it is watched.

    Attributes:
        metadata: an absolute local path or an `s3://` URL.
        cache: a local folder, shared by any number of metadata folders and processes.
        environ: names that start with `GDDL_` override settings; `AWS_…` configure S3.
        clock: seconds since the epoch.
        refresh_seconds: minimum interval between listings of a remote folder.
        time_limit: time limit for reading, in seconds.
        settle_seconds: a younger file may be incomplete; with a good snapshot, rebuilding waits.
        copy: lake that also stores the last good copy; empty: only the cache does.
        copy_environ: environment for that lake.
        lake_environ: returns the environment for the metadata's lake, by its path and the Airflow connection that the
            metadata names; null: `environ`.
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
    lake_environ: Callable[[str, str], Mapping[str, str]] | None = None

    def reaching(self, path: str, aws_conn_id: str | None) -> Mapping[str, str]:
        """Environment for a path in the lake."""
        return self.environ if self.lake_environ is None else self.lake_environ(path, aws_conn_id or "")

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="seconds")
