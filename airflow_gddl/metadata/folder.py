"""The metadata folder, on a disk or in an object store: list and read, nothing else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores import Storage, open_store

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
    """A folder in S3."""

    store: Storage
    base: str

    def names(self, below: str) -> list[str]:
        with reached(self.base):
            paths = [f"{below}/{found.name}" for found in self.store.list(join(self.base, below))]
        return sorted(path for path in paths if not _hidden(path.split("/")))

    def read(self, name: str) -> bytes:
        with reached(self.base):
            return self.store.read(join(self.base, name), MAX_BYTES + 1)


def open_folder(place: str | Path, environ: Mapping[str, str] = os.environ) -> Folder:
    """A local path, or an `s3://` URL reached as the environment says."""
    if isinstance(place, str) and is_s3(place):
        return StoreFolder(open_store(environ), place.rstrip("/"))
    return LocalFolder(Path(place))


def _shown(name: str) -> str:
    """The name, bytes of it that are no UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(".") for part in parts)


@contextmanager
def reached(base: str) -> Iterator[None]:
    """Faults of the store that may pass as `METADATA_UNREACHABLE`; others, such as `STORAGE_DENIED`, as they are."""
    try:
        yield
    except RetriableError as error:
        raise RetriableError("METADATA_UNREACHABLE", error.what, where=base, remedy=error.remedy) from error
