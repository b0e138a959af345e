"""Both sides of a comparison as Delta tables: a clone that Spark merges into, and our commit on the files of that
clone.

Our side is read by Spark, too: it gets the very actions of the commit, with paths that say where the files are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from airflow_gddl.contract.layout import join
from airflow_gddl.contract.sql_types import quoted
from airflow_gddl.stores import Storage
from spark_jobs.spark.session_settings import is_on_a_cluster
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.delta_log import Action, lines, log_path
from spark_jobs.tables.engine import ProposedCommit
from spark_jobs.tables.replayed_log import CHECKPOINT, COMMIT, commit_path

_SOURCE = "delta.`"
_FILES = ("add", "remove", "cdc")
_FEW_FILES = 8
FileKey = tuple[str, str | None, int | None]
"""Path, and deletion vector: a file with another vector is another one."""


@dataclass(frozen=True)
class Sides:
    """Attributes:
    folder: of both; empty when it begins.
    """

    spark: SparkSession
    storage: Storage
    folder: str
    proposed: ProposedCommit

    @property
    def theirs(self) -> str:
        return join(self.folder, "spark")

    @property
    def ours(self) -> str:
        return join(self.folder, "ours")

    def clone(self) -> None:
        """Make Spark's side: the table as it is before the commit, over its data files.

        A short log is copied with absolute paths, so that Spark reads our commits, and needs no job for the clone.
        """
        table = self.proposed.path
        if not (commits := self._short_log()):
            at = f"delta.{quoted(table)} VERSION AS OF {self.proposed.log.version}"
            self.spark.sql(f"CREATE TABLE delta.{quoted(self.theirs)} SHALLOW CLONE {at}").collect()
            return
        root = self._uri_of(table)
        for number, path in enumerate(commits):
            actions = map(json.loads, self.storage.read(path).splitlines())
            self.storage.write(commit_path(self.theirs, number), lines([_absolute(one, root) for one in actions]))

    def _short_log(self) -> Sequence[str]:
        """All commits of the table up to the one before ours; empty: Spark has to read the log, or to name its URI."""
        table, wanted = self.proposed.path, self.proposed.log.version + 1
        if "://" not in table and (not table.startswith("/") or is_on_a_cluster(os.environ)):
            return ()
        names = [item.path.rpartition("/")[2] for item in self.storage.list(join(table, "_delta_log"))]
        commits = [commit_path(table, number) for number in range(wanted)]
        whole = {path.rpartition("/")[2] for path in commits} <= set(names)
        return commits if whole and not any(map(CHECKPOINT.fullmatch, names)) else ()

    def propose(self) -> None:
        """Make our side: the clone's log, and our commit after it."""
        for number in range(self.commits):
            self.storage.write(commit_path(self.ours, number), self.storage.read(commit_path(self.theirs, number)))
        ours = [self._placed(action, self.proposed.path) for action in self.proposed.actions]
        self.storage.write(commit_path(self.ours, self.commits), lines(ours))

    def is_changed(self, side: str) -> bool:
        """Whether it has a commit after the clone's."""
        return len(_commits_of(self.storage, side)) > self.commits

    def read(self, side: str) -> DataFrame:
        return table_at(self.spark, side)

    def differing(self) -> tuple[DataFrame, DataFrame]:
        """Rows of our side and of Spark's, without those of many files that both have."""
        files = [self._files(side) for side in (self.ours, self.theirs)]
        both = files[0].keys() & files[1].keys()
        if len(both) <= _FEW_FILES:  # to read them takes less than to let Delta open two more tables
            return self.read(self.ours), self.read(self.theirs)
        for side, named in zip((self.ours, self.theirs), files, strict=True):
            adds = [{"add": add} for key, add in named.items() if key not in both]
            self.storage.write(commit_path(f"{side}-part", 0), lines([*self.header(side), *adds]))
        return self.read(f"{self.ours}-part"), self.read(f"{self.theirs}-part")

    def _files(self, side: str) -> dict[FileKey, Mapping[str, Any]]:
        """Current files of a side by what tells them apart."""
        return _current(self._placed(action, side) for action in self.actions(side))

    def header(self, side: str) -> list[dict[str, Any]]:
        """Protocol and metadata of a side's newest version."""
        newest: dict[str, Any] = {}
        for action in self.actions(side):
            newest |= {name: action[name] for name in ("protocol", "metaData") if name in action}
        return [{name: newest[name]} for name in ("protocol", "metaData")]

    @property
    def unmatched_removals(self) -> list[str]:
        """Files that our commit removes under a path or a vector that the table's log does not have."""
        known = self.proposed.log.files
        removed = [action["remove"] for action in self.proposed.actions if "remove" in action]
        return [
            one["path"] for one in removed if _key_of(one) != _key_of(known.get(unquote(one["path"]), {"path": ""}))
        ]

    def actions(self, side: str) -> Iterator[Mapping[str, Any]]:
        """All of a side's log, in order."""
        for path in _commits_of(self.storage, side):
            yield from map(json.loads, self.storage.read(path).splitlines())

    @property
    def new_files(self) -> Sequence[Mapping[str, Any]]:
        """`add` actions of our commit for files that the table did not have, with paths that the storage takes."""
        table, added = self.proposed.path, (action for action in self.proposed.actions if "add" in action)
        new = (a["add"] for a in added if unquote(self._placed(a, table)["add"]["path"]) not in self._base)
        return [{**add, "path": join(table, unquote(add["path"]))} for add in new]

    @property
    def commits(self) -> int:
        """Of the clone, before anything changes."""
        return len(self._commits)

    @cached_property
    def _commits(self) -> Sequence[str]:
        """Of the clone, before Spark merges into it."""
        return _commits_of(self.storage, self.theirs)

    @cached_property
    def _first(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for path in self._commits for line in self.storage.read(path).splitlines()]

    @cached_property
    def _scheme(self) -> str:
        """How Spark's URIs of the lake begin."""
        if "://" in self.proposed.path:
            return self.proposed.path.partition("://")[0] + "://"
        if not is_on_a_cluster(os.environ):
            return "file:"
        (named,) = (a["commitInfo"]["operationParameters"]["source"] for a in self._first if "commitInfo" in a)
        scheme, _, rest = named.removeprefix(_SOURCE).partition(":")
        return f"{scheme}://" if rest.startswith("//") else f"{scheme}:"

    def _uri_of(self, folder: str) -> str:
        return log_path(self._scheme + (folder.partition("://")[2] or folder))

    @cached_property
    def _base(self) -> Mapping[str, Mapping[str, Any]]:
        """The clone's files by path without escapes."""
        return {unquote(add["path"]): add for add in _current(self._first).values()}

    def _placed(self, action: Action, folder: str) -> Mapping[str, Any]:
        """An action of a folder's log with absolute paths; files that the table has are named as the clone does."""
        placed = _absolute(action, self._uri_of(folder))
        (kind, fields), *_ = placed.items()
        if kind not in _FILES or (known := self._base.get(unquote(fields["path"]))) is None:
            return placed
        named = {**fields, "path": known["path"]}
        if kind == "remove" and fields.get("deletionVector") is not None:
            named["deletionVector"] = known.get("deletionVector")
        return {kind: named}


def table_at(spark: SparkSession, path: str) -> DataFrame:
    """A table by its name, so that a setting of Delta decides which of its two readers reads it."""
    return spark.read.table(f"delta.{quoted(path)}")


def _current(actions: Iterable[Mapping[str, Any]]) -> dict[FileKey, Mapping[str, Any]]:
    """Files that a log's actions leave, by what tells them apart."""
    files: dict[FileKey, Mapping[str, Any]] = {}
    for action in actions:
        if (removed := action.get("remove")) is not None:
            files.pop(_key_of(removed), None)
        elif (added := action.get("add")) is not None:
            files[_key_of(added)] = added
    return files


def _absolute(action: Action, root: str) -> Mapping[str, Any]:
    """An action whose paths do not depend on where the log is.

    Args:
        root: URI of the table.
    """
    (kind, fields), *_ = action.items()
    if kind not in _FILES:
        return action
    placed = {**fields, "path": fields["path"] if _is_absolute(fields["path"]) else f"{root}/{fields['path']}"}
    if fields.get("deletionVector") is not None:
        placed["deletionVector"] = _vector_at(root, fields["deletionVector"])
    return {kind: placed}


def _vector_at(root: str, vector: Mapping[str, Any]) -> Mapping[str, Any]:
    """A vector whose file, if it has one, is named by an absolute path."""
    if vector["storageType"] != "u":
        return vector
    return {**vector, "storageType": "p", "pathOrInlineDv": f"{root}/{log_path(path_of('', vector).lstrip('/'))}"}


def _key_of(file: Mapping[str, Any]) -> FileKey:
    vector = file.get("deletionVector") or {}
    return file["path"], vector.get("pathOrInlineDv"), vector.get("offset")


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "file:")) or "://" in path


def _commits_of(storage: Storage, side: str) -> list[str]:
    files = (item.path for item in storage.list(join(side, "_delta_log")))
    return sorted(path for path in files if COMMIT.fullmatch(path.rpartition("/")[2]))
