"""Detects metadata changes without reading the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_gddl import __version__
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.spec import CONTRACT_VERSION
from airflow_gddl.metadata.folder import reached
from airflow_gddl.runtime.snapshot.documents import FORMAT
from airflow_gddl.stores import open_store

_PREFIX, _PLACE = "GDDL_", "GDDL_METADATA"


@dataclass(frozen=True)
class Signature:
    """`text` changes whenever the result of a load may change; `newest`: newest modification time, seconds."""

    text: str
    newest: float


def is_remote(metadata: str) -> bool:
    return "://" in metadata


def sign(metadata: str, environ: Mapping[str, str]) -> Signature:
    """Names, sizes and times of the folder's files, this package's version, and the environment's overrides.

    Raises:
        RetriableError: `METADATA_UNREACHABLE`: the folder is missing or does not respond.
    """
    digest, newest = hashlib.sha256(), 0.0
    for line in (f"{__version__} {CONTRACT_VERSION} {FORMAT}", *_overrides(environ)):
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    for name, size, tag, modified in sorted(_remote(metadata, environ) if is_remote(metadata) else _local(metadata)):
        digest.update(f"{name}\0{size}\0{tag}\n".encode(errors="surrogateescape"))
        newest = max(newest, modified)
    return Signature(digest.hexdigest(), newest)


def _overrides(environ: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{name}={environ[name]}" for name in sorted(environ) if name.startswith(_PREFIX) and name != _PLACE)


def _local(metadata: str) -> Iterator[tuple[str, int, str, float]]:
    if not Path(metadata).is_dir():
        remedy = "put the folder there, or set [gddl] metadata or GDDL_METADATA to where it is"
        raise RetriableError("METADATA_UNREACHABLE", "there is no such folder", where=metadata, remedy=remedy)
    for folder, subfolders, names in os.walk(metadata, followlinks=False):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each file would double the cost
            try:
                status = os.stat(path)  # noqa: PTH116 - as above
            except FileNotFoundError:
                continue
            yield path[len(metadata) :], status.st_size, str(status.st_mtime_ns), status.st_mtime


def _remote(metadata: str, environ: Mapping[str, str]) -> Iterator[tuple[str, int, str, float]]:
    with reached(metadata):
        for found in open_store(environ).list(metadata.rstrip("/")):
            yield found.name, found.size, found.etag, found.modified
