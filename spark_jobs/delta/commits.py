"""Delta transactions of a batch: the same in all engines, so that one engine can finish a batch of another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import MainCounts
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan

_COMMIT = re.compile(r"(\d{20})\.json")
_STATED = re.compile(r"\d{20}\.(json|checkpoint\..+)")
"""Commits and checkpoints; beside them lie checksums, and what a writer that was interrupted left."""
_NEWEST_COMMITS = 50
_MERGED = {name: f"numTargetRows{name.capitalize()}" for name in ("inserted", "updated", "deleted")}
_POINTER = "_last_checkpoint"
OURS = "gddl"
"""Prefix of the user metadata of this project's commits."""


@dataclass(frozen=True, kw_only=True)
class DeltaCommit:
    """Attributes:
    operation: as named by its writer, e.g. `RESTORE`.
    ours: it was made by this project.
    changes_data: rows were added, removed or changed. OPTIMIZE and VACUUM only move rows, or remove old files.
    transactions: application to the version that the commit states of it.
    """

    version: int
    operation: str
    ours: bool
    changes_data: bool
    transactions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DeltaCommits:
    """The log of Delta tables, by path."""

    storage: Storage
    _checkpoints: dict[str, int] = field(default_factory=dict, compare=False)

    def exists(self, table: str) -> bool:
        """Whether the table exists: its log has a commit or a checkpoint."""
        found = self.storage.list(join(table, "_delta_log"))
        return any(_STATED.fullmatch(item.path.rsplit("/", 1)[-1]) for item in found)

    def version(self, table: str) -> int | None:
        """The newest version; None when there is no table."""
        return max((number for number, _ in self._commits(table)), default=None)

    def since(self, table: str, version: int) -> list[DeltaCommit] | None:
        """Commits after a version, oldest first; None where the log lacks that commit and all later ones."""
        log, found, has_commits = join(table, "_delta_log"), [], False
        for item in self.storage.list(log, f"{version:020d}"):
            match = _COMMIT.fullmatch(item.path.rsplit("/", 1)[-1])
            has_commits = has_commits or match is not None
            if match and int(match[1]) > version:
                found.append(_commit_of(int(match[1]), self.storage.read(item.path)))
        return found if has_commits else None

    def metrics(self, table: str, user_metadata: str) -> dict[str, int]:
        """Operation metrics of the newest commit with this user metadata, among the last 50; empty without one."""
        newest = sorted(self._commits(table), reverse=True)[:_NEWEST_COMMITS]
        for _, path in newest:
            info = _commit_info(self.storage.read(path))
            own, _, stated = str(info.get("userMetadata", "")).partition(" {")
            if own == user_metadata:
                found = {**info.get("operationMetrics", {}), **(json.loads(f"{{{stated}") if stated else {})}
                return {k: int(v) for k, v in found.items() if str(v).isdigit()}
        return {}

    def last_transaction(self, table: str, app: str) -> int:
        """Highest version that an application committed, among the newest commits; -1 when none."""
        actions = (
            json.loads(line) for _, path in self._commits(table) for line in self.storage.read(path).splitlines()
        )
        return max((int(a["txn"]["version"]) for a in actions if a.get("txn", {}).get("appId") == app), default=-1)

    def _commits(self, table: str) -> Iterator[tuple[int, str]]:
        """The newest commits, oldest first, from shortly before the last checkpoint.

        A log keeps a month of commits; a continuous table makes thousands a day.
        """
        log = join(table, "_delta_log")
        first = self._checkpoint(log) - _NEWEST_COMMITS
        after = f"{first:020d}" if first > 0 else ""
        for found in self.storage.list(log, after):
            match = _COMMIT.fullmatch(found.path.rsplit("/", 1)[-1])
            if match:
                yield int(match[1]), found.path

    def _checkpoint(self, log: str) -> int:
        """Version of the last checkpoint at the first call; 0 where there is none."""
        if log not in self._checkpoints:
            try:
                self._checkpoints[log] = int(json.loads(self.storage.read(join(log, _POINTER)))["version"])
            except (FileNotFoundError, ValueError, TypeError, KeyError):
                return 0
        return self._checkpoints[log]


def merge_metrics(counts: MainCounts) -> dict[str, int]:
    """Operation metrics in the names of Delta's MERGE on Spark."""
    return {metric: getattr(counts, name) for name, metric in _MERGED.items()}


def main_counts(metrics: Mapping[str, int]) -> MainCounts:
    """Row counts of a commit to the replica by its metrics, for every engine and step."""
    if _MERGED["inserted"] in metrics:
        return MainCounts(**{name: metrics.get(metric, 0) for name, metric in _MERGED.items()})
    swept = metrics.get("numDeletedRows", 0) + metrics.get("numUpdatedRows", 0)
    return MainCounts(inserted=metrics.get("numOutputRows", 0), deleted=swept)


def _commit_of(version: int, data: bytes) -> DeltaCommit:
    actions = [json.loads(line) for line in data.splitlines()]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = [action.get("add") or action.get("remove") for action in actions if "add" in action or "remove" in action]
    return DeltaCommit(
        version=version,
        operation=str(info.get("operation", "unknown")),
        ours=str(info.get("userMetadata", "")).split(" ")[0] == OURS,
        changes_data=any(file.get("dataChange", True) for file in files),
        transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
    )


def _commit_info(data: bytes) -> dict[str, Any]:
    for line in data.splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            return dict(action["commitInfo"])
    return {}


APPEND, QUARANTINE, TOMBSTONES, TRUNCATE, MERGE, SWEEP, HISTORY = (
    f"gddl:{step}" for step in ("append", "quarantine", "tombstones", "truncate", "merge", "sweep", "history")
)
REWRITE = "refresh:rewrite"
"""The change table by the row's current settings."""
REFRESH = "refresh:"
"""Prefix of the steps of a full refresh."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def version_of(plan: BatchPlan) -> int:
    """Microseconds of the plan's time since 1970.

    Plan times of a table always increase (`next_batch.moment`), also those of a new ledger: a table that has the
    transactions of a lost ledger never mistakes a new one for an old one.
    """
    return round((datetime.fromisoformat(plan.planned_at) - _EPOCH) / timedelta(microseconds=1))


def app_of(app: str, shard: str) -> str:
    """The name of a step's transactions; each shard of a table has its own.

    Plans of shards are made and carried on in any order, so that the versions of one say nothing of another's.
    """
    return f"{app}@{shard}" if shard else app


def user_metadata(app: str, version: int, metrics: Mapping[str, int] | None = None) -> str:
    """User metadata of a transaction's commit, by which its metrics are found.

    Args:
        metrics: stated here, where another writer states those of the commit.
    """
    return f"gddl {app} {version}{f' {json.dumps(metrics)}' if metrics else ''}"


def is_later(transactions: Mapping[str, int], shard: str, known: int) -> bool:
    """Whether transactions of a commit are of a later plan of the table, or shard, than the ledger knows.

    Sweeps don't count: a plan without readable files may be dropped after its sweep.

    Args:
        known: version of the ledger's newest plan.
    """
    for app, version in transactions.items():
        step, _, of = app.partition("@")
        kept = step in (APPEND, TOMBSTONES, MERGE, HISTORY) or step.startswith(REFRESH)
        if kept and of == shard and version > known:
            return True
    return False
