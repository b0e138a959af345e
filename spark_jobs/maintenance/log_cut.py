"""Removes old parts of a Delta log: commits contain lowest and highest keys of files, also of removed ones.

Delta itself keeps its log for `delta.logRetentionDuration`, 30 days unless set. For erased keys that is too long
(docs/decisions/074-logs-of-erased-keys.md).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.engines.port import Maintenance

_SETTLED = timedelta(hours=12)
"""Minimum age of a checkpoint before older commits are removed: earlier readers have finished opening the table."""
_VERSION = re.compile(r"(\d{20})\.")
_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.(?:(\d{10})\.(\d{10})\.|[0-9a-f-]{36}\.)?(?:parquet|json)")
_JOINED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")
_HARMLESS = re.compile(r"\d{20}\.crc|_last_checkpoint|_last_vacuum_info|(?:.*/)?[._][^/]*\.(?:crc|tmp)")
"""Files without statistics, or with them only while being written."""
_KNOWN = (_COMMIT, _CHECKPOINT, _JOINED, _HARMLESS)


@dataclass(frozen=True)
class CutLog:
    """Attributes:
    removed: files removed, or under `dry_run` to be removed.
    unknown: names of files of unknown kinds; if there are any, nothing was removed.
    """

    removed: int = 0
    unknown: tuple[str, ...] = ()


def cut_log(
    storage: Storage, maintenance: Maintenance, path: str, now: datetime, before: datetime, *, dry_run: bool
) -> CutLog:
    """Remove files of a table's log about commits from before that time.

    Later versions are unchanged. If no checkpoint that is old enough replaces them, one is written,
    and a later call removes them. A log with files of another kind (sidecars of v2 checkpoints, commits of a
    catalog) is unchanged: they may hold the same statistics, or be needed by remaining versions.
    """
    everything = list(storage.list(join(path, "_delta_log")))
    if unknown := sorted(f.name for f in everything if not any(k.fullmatch(f.name) for k in _KNOWN)):
        return CutLog(unknown=tuple(unknown))
    files = [f for f in everything if _VERSION.match(f.name)]
    last = max((_version(f) for f in files if _COMMIT.fullmatch(f.name) and _modified(f) < before), default=None)
    if last is None:
        return CutLog()
    standing = [f for f in _checkpoints(files) if _version(f) > last]
    if not any(_modified(found) < now - _SETTLED for found in standing):
        if not standing and not dry_run:
            maintenance.checkpoint(path)
        return CutLog()
    doomed = [found for found in files if _last_version(found) <= last]
    for found in doomed if not dry_run else ():
        storage.delete(found.path)
    return CutLog(removed=len(doomed))


def _version(found: StoredObject) -> int:
    return int(found.name[:20])


def _last_version(found: StoredObject) -> int:
    joined = _JOINED.fullmatch(found.name)
    return int(joined[1]) if joined else _version(found)


def _modified(found: StoredObject) -> datetime:
    return datetime.fromtimestamp(found.modified, UTC)


def _checkpoints(files: Sequence[StoredObject]) -> list[StoredObject]:
    """One file of each complete checkpoint."""
    parts: dict[tuple[int, str], list[StoredObject]] = defaultdict(list)
    for found in files:
        match = _CHECKPOINT.fullmatch(found.name)
        if match:
            parts[_version(found), match[2] or ""].append(found)
    return [found[-1] for (_, total), found in parts.items() if len(found) == int(total or 1)]
