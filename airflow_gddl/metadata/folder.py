"""The metadata folder, on a disk or in an object store: list and read, nothing else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import obstore
from obstore.store import ObjectStore

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.s3_errors import s3_error
from airflow_gddl.stores.s3 import make_client

MAX_BYTES = 16 * 1024**2
"""Larger files are not metadata."""


class Folder(Protocol):
    """A folder of text files.

    `base` is what relative roots are relative to: an absolute path or an `s3://` URL without a slash at its end.
    """

    @property
    def base(self) -> str: ...

    def names(self, below: str) -> list[str]:
        """Paths of the files below a sub-folder, relative to this folder with `/`, sorted; hidden ones left out."""
        ...

    def read(self, name: str) -> bytes:
        """Content of a file, at most `MAX_BYTES` + 1 bytes of it.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it can't be read.
        """
        ...


@dataclass(frozen=True)
class LocalFolder:
    path: Path

    @property
    def base(self) -> str:
        return os.path.normpath(self.path.absolute())

    def names(self, below: str) -> list[str]:
        found = (p.relative_to(self.path) for p in (self.path / below).rglob("*") if not p.is_dir())
        # Mounted ConfigMaps keep the real files in hidden folders and link to them, so hidden ones would come twice.
        return sorted(_shown(p.as_posix()) for p in found if not _hidden(p.parts))

    def read(self, name: str) -> bytes:
        """A regular file that really lies in this folder: what a link shows of other folders, and what a FIFO or a
        device would give, is no metadata.
        """
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise OSError(errno.EPERM, "a link that leaves the metadata folder", name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would keep us waiting
        except FileNotFoundError:
            if self._is_no_utf8(path):
                raise OSError(errno.EILSEQ, "its name is not UTF-8", name) from None
            raise
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            return file.read(MAX_BYTES + 1)

    def _is_no_utf8(self, path: Path) -> bool:
        """Whether there is a file that `names` shows by this name, for it has none that can be shown."""
        there = path.parent.iterdir() if path.parent.is_dir() else iter(())
        return any(found.name != path.name and _shown(found.name) == path.name for found in there)


@dataclass(frozen=True)
class StoreFolder:
    """A folder in an object store; `store` is rooted at the folder that `base` names."""

    store: ObjectStore
    base: str

    def names(self, below: str) -> list[str]:
        try:
            paths = [item["path"] for page in obstore.list(self.store, prefix=below) for item in page]
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _unreachable(self.base, error) from error
        return sorted(path for path in paths if not _hidden(path.split("/")))

    def read(self, name: str) -> bytes:
        try:
            answer = obstore.get(self.store, name)
            if answer.meta["size"] > MAX_BYTES:
                return bytes(obstore.get_range(self.store, name, start=0, end=MAX_BYTES + 1))
            return bytes(answer.bytes())
        except FileNotFoundError as error:
            told = s3_error(str(error), self.base)
            raise told or error from error
        except obstore.exceptions.BaseError as error:
            raise _unreachable(self.base, error) from error


def open_folder(place: str | Path, environ: Mapping[str, str] = os.environ) -> Folder:
    """A local path, or an `s3://` URL reached as the environment tells.

    Raises:
        FatalError: `S3_ENDPOINT_INVALID`, `S3_CREDENTIALS_MISSING`.
    """
    if isinstance(place, str) and is_s3(place):
        bucket, prefix = split(place)
        return StoreFolder(make_client(bucket, environ, prefix or None), place.rstrip("/"))
    return LocalFolder(Path(place))


def _shown(name: str) -> str:
    """The name, bytes of it that are no UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(".") for part in parts)


def _unreachable(base: str, error: Exception) -> GddlError:
    told = s3_error(str(error), base)
    if isinstance(told, FatalError):
        return told
    remedy = "check the network, the bucket's region and the role's right to list and read the folder"
    return RetriableError(
        "METADATA_UNREACHABLE", f"the metadata can't be read: {type(error).__name__}", where=base, remedy=remedy
    )
