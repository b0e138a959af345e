"""A Delta log as it is read: checkpoints and commits, replayed up to a version.

Small tables have a batch every few minutes, and `deltalake` lists a log and reads each of its commits twice. What a run
knows of the version that it left is enough for the next one: it reads that commit again, to see that the log is still
the same, and the ones after it, until there is none.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, read_if_there

Add = Mapping[str, Any]
"""An `add` action."""
COMMIT = re.compile(r"(\d{20})\.json")
"""Name of a commit, with its version."""
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")
"""Name of a checkpoint's file, with its version and, of one in several parts, the part and their number."""
POINTER = "_last_checkpoint"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_FILES = 200
"""Of a version that is remembered: a larger one takes as long to store as its log to read."""


def is_elsewhere(path: str) -> bool:
    """Whether a data file, by its path in the log, is outside of the table's folder."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def stated_rows(add: Add) -> int | None:
    """Rows of a file, deleted ones among them; None: its statistics do not state them."""
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    return None if rows is None else int(rows)


class DamagedLogError(ValueError):
    """A log that can't be replayed."""


@dataclass(frozen=True, kw_only=True)
class ReplayedLog:
    """A table at a version, by its log.

    Attributes:
        protocol, metadata: the newest actions of these kinds.
        transactions: application to the last version that it committed.
        files: `add` actions of the current files, by their path without escapes.
        domains: domain to its configuration, JSON.
        digest: of the version's commit; empty where it was not read.
    """

    version: int
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, Add] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    @property
    def schema(self) -> str:
        """JSON."""
        return str(self.metadata["schemaString"])

    @property
    def properties(self) -> dict[str, str | None]:
        return dict(self.metadata.get("configuration") or {})

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def description(self) -> str | None:
        return self.metadata.get("description")

    @property
    def reader_features(self) -> frozenset[str]:
        """Features that the protocol names; older protocols name none."""
        return frozenset(self.protocol.get("readerFeatures") or ())

    @property
    def writer_features(self) -> frozenset[str]:
        """See `reader_features`."""
        return frozenset(self.protocol.get("writerFeatures") or ())

    @property
    def has_files_elsewhere(self) -> bool:
        """Whether a data file is outside of the table's folder, as those of a shallow clone are."""
        return any(is_elsewhere(add["path"]) for add in self.files.values())

    def after(self, commit: bytes) -> ReplayedLog:
        """The version of the next commit: its removals, then what it adds (a new vector of a file has both).

        Raises:
            ValueError: not JSON, or no actions.
        """
        log = _Replay(self)
        log.take(_actions(commit))
        return replace(log.result(self.version + 1), digest=digest_of(commit))

    def to_json(self) -> dict[str, Any] | None:
        """What `of_json` takes; None: the version is too large to remember."""
        if len(self.files) > _MOST_FILES:
            return None
        return {**self.__dict__, "files": list(self.files.values())}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> ReplayedLog:
        """A version that `to_json` gave."""
        files = {unquote(add["path"]): add for add in stored["files"]}
        return cls(**{**stored, "files": files})


class _Replay:
    """Actions as they are applied."""

    def __init__(self, start: ReplayedLog) -> None:
        self._protocol, self._metadata = start.protocol, start.metadata
        self._transactions, self._files = dict(start.transactions), dict(start.files)
        self._domains = dict(start.domains)

    def take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """The actions of one commit, or of a checkpoint."""
        added: list[Add] = []
        for action in actions:
            if remove := action.get("remove"):
                self._files.pop(unquote(remove["path"]), None)
            elif add := action.get("add"):
                added.append(add)
            elif transaction := action.get("txn"):
                self._transactions[transaction["appId"]] = int(transaction["version"])
            elif domain := action.get("domainMetadata"):
                self._domains[domain["domain"]] = domain["configuration"]
                if domain.get("removed"):
                    del self._domains[domain["domain"]]
            else:
                self._protocol = action.get("protocol") or self._protocol
                self._metadata = action.get("metaData") or self._metadata
        self._files |= {unquote(add["path"]): add for add in added}

    def result(self, version: int) -> ReplayedLog:
        return ReplayedLog(
            version=version, protocol=self._protocol, metadata=self._metadata, transactions=self._transactions,
            files=self._files, domains=self._domains,
        )  # fmt: skip


def digest_of(commit: bytes) -> str:
    return hashlib.sha256(commit).hexdigest()


def commit_path(table: str, version: int) -> str:
    return join(table, "_delta_log", f"{version:020d}.json")


def replayed(storage: Storage, table: str) -> ReplayedLog | None:
    """The newest version; None where there is no table.

    Raises:
        DamagedLogError: the log is damaged, or lacks a commit.
    """
    try:
        return _replayed(storage, table)
    except _DAMAGED as error:
        raise _damaged(error) from error


def continued(
    storage: Storage, table: str, known: ReplayedLog, *, is_sure: bool = False
) -> tuple[ReplayedLog, list[bytes]] | None:
    """The newest version, by an earlier one, and the commits between; None where the log lacks that one as it was.

    Args:
        is_sure: that it has it.

    Raises:
        DamagedLogError: as `replayed`.
    """
    stored = None if is_sure else read_if_there(storage, commit_path(table, known.version))
    if not is_sure and (stored is None or digest_of(stored) != known.digest):
        return None
    commits: list[bytes] = []
    try:
        while (commit := read_if_there(storage, commit_path(table, known.version + 1))) is not None:
            known = known.after(commit)
            commits.append(commit)
    except _DAMAGED as error:
        raise _damaged(error) from error
    return known, commits


class KnownLogs:
    """Logs of a run's tables as far as they are known: what was read is not read again until `look_again`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._logs: dict[str, ReplayedLog | None] = {}
        self._trust: dict[str, Trust] = {}
        self._since: dict[str, tuple[int, list[bytes]]] = {}

    def recall(self, table: str, log: ReplayedLog | None) -> None:
        """Take over what an earlier run knew; it is compared with the log before it is used.

        Args:
            log: None: there was no table, and only this run may make one.
        """
        if table not in self._logs:
            self._keep(table, log, "recalled" if log else "read")

    def note(self, table: str, log: ReplayedLog) -> None:
        """The version of a commit that was made here; others may have made more since."""
        self._keep(table, log, "made")

    def look_again(self, *tables: str) -> None:
        """Something may have changed these tables, or without a name any."""
        for table in tables or tuple(self._logs):
            if self._logs.get(table) is None:
                self._logs.pop(table, None)
            else:
                self._trust[table] = "recalled"

    def known(self, table: str) -> ReplayedLog | None:
        """As far as it was read or recalled."""
        return self._logs.get(table)

    def newest(self, table: str) -> ReplayedLog | None:
        """The newest version of a table's log; None: there is no table.

        Raises:
            DamagedLogError: as `replayed`.
        """
        if not self._is_read(table):
            log = replayed(self._storage, table)
            if log is None:
                return None
            self._keep(table, log, "read")
        return self._logs[table]

    def commits_since(self, table: str, version: int) -> list[bytes] | None:
        """Commits after a version that was recalled; None where that was another one, or is not in the log.

        Raises:
            DamagedLogError: as `replayed`.
        """
        known, commits = self._since.get(table, (-1, [])) if self._is_read(table) else (-1, [])
        return commits if known == version else None

    def _is_read(self, table: str) -> bool:
        """Whether the newest version is known, once what came after a known one was read."""
        if table not in self._logs or self._trust[table] == "read":
            return table in self._logs
        known = self._logs.pop(table)
        ended = known and continued(self._storage, table, known, is_sure=self._trust[table] == "made")
        if not known or not ended:
            return False
        self._since.setdefault(table, (known.version, ended[1]))
        self._keep(table, ended[0], "read")
        return True

    def _keep(self, table: str, log: ReplayedLog | None, trust: Trust) -> None:
        self._logs[table], self._trust[table] = log, trust


Trust = Literal["recalled", "made", "read"]
"""Why a version is known: an earlier run left it, it was committed here, or no later one was found."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException)
_DAMAGED = (*_UNREADABLE, OSError)


def _damaged(error: Exception) -> DamagedLogError:
    return DamagedLogError(f"its log can't be read: {type(error).__name__}: {str(error).partition(chr(10))[0]:.200}")


def _actions(commit: bytes) -> Iterator[dict[str, Any]]:
    """Actions of a commit.

    Raises:
        ValueError: not JSON, or no actions: a full disk leaves an empty file, and Delta takes it for a commit.
    """
    if not (lines := commit.splitlines()):
        raise ValueError("it is empty")
    return map(json.loads, lines)


def _replayed(storage: Storage, table: str) -> ReplayedLog | None:
    """By the newest checkpoint; where that can't be read, by an earlier one and all commits since."""
    folder = join(table, "_delta_log")
    names, newest, parts = _started(storage, folder)
    try:
        return _replayed_from(storage, folder, names, newest, parts)
    except _UNREADABLE as error:
        if newest < 0:
            raise
        names, start, first = _names(storage, folder, ""), newest, error
    while start >= 0:
        start, parts = _checkpoint(names, start - 1)
        with suppress(*_UNREADABLE):
            log = _replayed_from(storage, folder, names, start, parts)
            if log is not None and log.version >= newest:
                return log
    raise first


def drop_damaged_checkpoints(storage: Storage, table: str) -> None:
    """Remove the newest checkpoint if it can't be read, and what names it, of a log that `replayed` reads without it.

    Other readers don't look for another one.
    """
    folder = join(table, "_delta_log")
    pointed = pointed_version(read_if_there(storage, join(folder, POINTER)))
    _, start, parts = _started(storage, folder)
    try:
        for name in parts:
            for _ in _checkpointed(storage, folder, name, _KINDS):
                pass
    except _UNREADABLE:
        storage.delete(join(folder, POINTER), *(join(folder, name) for name in parts))
    else:
        if pointed is not None and pointed > start:
            storage.delete(join(folder, POINTER))


def _replayed_from(
    storage: Storage, folder: str, names: Sequence[str], start: int, parts: Sequence[str]
) -> ReplayedLog | None:
    numbers = [int(match[1]) for name in names if (match := COMMIT.fullmatch(name))]
    wanted = sorted(n for n in numbers if n > start)
    if start < 0 and not wanted:
        return None
    log = _Replay(ReplayedLog(version=-1))
    for name in parts:
        try:
            log.take(_checkpointed(storage, folder, name, _KINDS))
        except _UNREADABLE as error:
            raise ValueError(f"checkpoint {name} can't be read: {str(error).partition(chr(10))[0]:.200}") from error
    commit, expected = b"", start
    for number in wanted:
        expected += 1
        if number != expected:
            raise ValueError(f"commit {expected} is missing")
        commit = storage.read(join(folder, f"{number:020d}.json"))
        try:
            log.take(_actions(commit))
        except _UNREADABLE as error:
            raise ValueError(f"commit {number:020d}.json can't be read: {error}") from error
    ended = log.result(expected)
    if not ended.metadata or not ended.protocol:
        raise ValueError("it has no metadata or no protocol")
    return replace(ended, digest=digest_of(commit)) if wanted else ended


def _started(storage: Storage, folder: str) -> tuple[list[str], int, list[str]]:
    """Names in a log from its newest whole checkpoint on, the version of that (-1: there is none), and its files."""
    after = _after(read_if_there(storage, join(folder, POINTER)))
    names = _names(storage, folder, after)
    start, parts = _checkpoint(names)
    if start < 0 and after:  # the last checkpoint that the log names is gone, or not whole
        names = _names(storage, folder, "")
        start, parts = _checkpoint(names)
    return names, start, parts


def checkpointed_removals(storage: Storage, table: str) -> tuple[int, list[dict[str, Any]]]:
    """Version of the newest whole checkpoint (-1: there is none), and its `remove` actions."""
    folder = join(table, "_delta_log")
    _, start, parts = _started(storage, folder)
    actions = (action for name in parts for action in _checkpointed(storage, folder, name, ("remove", _SIDECAR)))
    return start, [action["remove"] for action in actions if "remove" in action]


def copy_log(storage: Storage, table: str, version: int, into: Path) -> None:
    """Copy what a reader needs of a log up to a version; not the files that checkpoints of version 2 name."""
    folder, target = join(table, "_delta_log"), into / "_delta_log"
    target.mkdir(parents=True)
    pointer = read_if_there(storage, join(folder, POINTER))
    names = _names(storage, folder, _after(pointer, version))
    for name in names:
        match = COMMIT.fullmatch(name) or CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            (target / name).write_bytes(storage.read(join(folder, name)))
    if pointer is not None:
        (target / POINTER).write_bytes(pointer)


def _names(storage: Storage, folder: str, after: str) -> list[str]:
    return [item.name for item in storage.list(folder, after)]


def pointed_version(pointer: bytes | None) -> int | None:
    """Version of the checkpoint that the content of `POINTER` names; None where it names none."""
    try:
        return int(json.loads(pointer or b"{}")["version"])
    except (ValueError, TypeError, KeyError):
        return None


def _after(pointer: bytes | None, version: int | None = None) -> str:
    """Name in the log from which the last checkpoint and all commits since are listed; empty: all of it."""
    newest = pointed_version(pointer)
    return "" if newest is None or (version is not None and newest > version) else f"{newest:020d}"


def _checkpoint(names: Sequence[str], version: int | None = None) -> tuple[int, list[str]]:
    """Version and files of the newest checkpoint up to a version (None: any) that is whole; -1 without any."""
    files_of: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = CHECKPOINT.fullmatch(name)
        if match and (version is None or int(match[1]) <= version):
            files_of.setdefault((int(match[1]), int(match[3] or 0)), []).append(name)
    whole = {key: files for key, files in files_of.items() if key[1] in (0, len(files))}
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], whole[newest] if newest[1] else whole[newest][:1]  # several of the second version are equal


def _checkpointed(storage: Storage, folder: str, name: str, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Actions of a file of a checkpoint and of its sidecars; of parquet those of these kinds alone."""
    data = storage.read(join(folder, name))
    actions = map(json.loads, data.splitlines()) if name.endswith(".json") else _rows(data, kinds)
    for action in actions:
        if sidecar := action.get(_SIDECAR):
            yield from _rows(storage.read(join(folder, "_sidecars", sidecar["path"])), kinds)
        else:
            yield action


_SIDECAR = "sidecar"
_KINDS = ("add", "txn", "protocol", "metaData", "domainMetadata", _SIDECAR)
"""Of actions that a replay needs."""


def _rows(data: bytes, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Actions of a checkpoint file as commits spell them."""
    file = pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us")
    for row in file.read(list(_leaves(file.schema_arrow, kinds)), use_threads=False).to_pylist():
        for kind, action in row.items():
            if action is not None:
                yield {kind: _plain(action)}


def _leaves(schema: pa.Schema, kinds: Sequence[str]) -> Iterator[str]:
    """Fields of the actions; parsed copies of them may be large."""
    for kind in kinds:
        if kind in schema.names:
            yield from (f"{kind}.{part.name}" for part in schema.field(kind).type if not part.name.endswith("_parsed"))


def _plain(action: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are lists of pairs in Parquet, and absent fields null."""
    return {name: _plain_value(name, value) for name, value in action.items() if value is not None}


_MAPS = frozenset({"partitionValues", "tags", "configuration", "options"})


def _plain_value(name: str, value: Any) -> Any:
    if name in _MAPS and not isinstance(value, str):  # the configuration of a domain is text
        return dict(value)
    return _plain(value) if isinstance(value, dict) else value
