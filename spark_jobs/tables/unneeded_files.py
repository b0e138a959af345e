"""Which files of a table no version needs that readers may still ask for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.tables.deletion_vectors import Descriptor, path_of
from spark_jobs.tables.replayed_log import COMMIT
from spark_jobs.tables.snapshots import TableSnapshot


def named_files(snapshot: TableSnapshot) -> frozenset[str]:
    """Paths of a version's data files and of the files of their deletion vectors."""
    vectors = (file.vector for file in snapshot.files if file.vector is not None)
    data_files = (join(snapshot.path, file.path) for file in snapshot.files)
    return frozenset((*data_files, *_paths(snapshot.path, vectors)))


def unneeded(storage: Storage, snapshot: TableSnapshot, found: Sequence[str], since: float) -> list[str]:
    """Those of the files that can be removed.

    `deltalake` knows which data files readers may ask for. It takes files of deletion vectors for files of no version.

    Args:
        found: names of files below the table's folder that `deltalake` would remove.
        since: seconds since 1970. What a later version has removed, and what was written later, is needed.
    """
    needed = named_files(snapshot) | frozenset(_removed_vectors(storage, snapshot, since))
    written = {item.path: item.modified for item in storage.list(snapshot.path)}
    reaches_back = _reaches_back(storage, snapshot.path, since)
    return [
        name
        for name in found
        if (path := join(snapshot.path, name)) not in needed
        and written.get(path, since) < since
        and (reaches_back or not name.endswith(".bin"))
    ]


def _paths(table: str, vectors: Iterable[Descriptor]) -> Iterator[str]:
    return (path_of(table, vector) for vector in vectors if vector["storageType"] != "i")


def _removed_vectors(storage: Storage, snapshot: TableSnapshot, since: float) -> Iterator[str]:
    """Files of the vectors that commits since then have removed or replaced."""
    for item in storage.list(join(snapshot.path, "_delta_log")):
        if item.modified < since or not COMMIT.fullmatch(item.path.rsplit("/", 1)[-1]):
            continue
        actions: Iterator[dict[str, Any]] = map(json.loads, storage.read(item.path).splitlines())
        removed = (action["remove"].get("deletionVector") for action in actions if "remove" in action)
        yield from _paths(snapshot.path, (vector for vector in removed if vector))


def _reaches_back(storage: Storage, table: str, since: float) -> bool:
    """Whether the log still has all commits since then, so that it names every vector that they have removed."""
    commits = [
        (int(match[1]), item.modified)
        for item in storage.list(join(table, "_delta_log"))
        if (match := COMMIT.fullmatch(item.path.rsplit("/", 1)[-1]))
    ]
    first = min(commits, default=(1, since))
    return first[0] == 0 or first[1] < since
