"""The metadata folder, on a disk or in an object store: list and read only."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import tarfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Protocol

from airflow_gddl.contract.codes import METADATA_UNREACHABLE, REVISION_UNREADABLE, STORAGE_DENIED
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores import Storage, open_store

FILE = "gddl.yaml"
"""The settings."""
FOLDERS = ("tables", "keys")
"""Folders whose files are read."""
YAML_ENDINGS, JSON_ENDINGS = (".yaml", ".yml"), (".json",)
ENDINGS = (*YAML_ENDINGS, *JSON_ENDINGS, ".csv")
"""Of metadata files, in lower case."""
MAX_BYTES = 16 * 1024**2
"""Maximum size of a metadata file in bytes."""


class Folder(Protocol):
    """A folder of text files.

    `base` is what relative roots are relative to: an absolute path or an `s3://` URL without a slash at its end.
    """

    @property
    def base(self) -> str: ...

    def names(self, below: str) -> list[str]:
        """Paths of the files below a sub-folder, relative to this folder with `/`, sorted; hidden ones left out.

        An empty name stands for this folder.

        A path that ends with `/` is a folder in the place of a file, or a link to a folder, which is not searched.

        Raises:
            FatalError: `STORAGE_DENIED`: a folder can't be listed.
        """
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
        paths = []
        for place, folders, files in os.walk(self.path / below, onerror=_denied):
            inside = Path(place).relative_to(self.path)
            # Mounted ConfigMaps keep the files in hidden folders and link to them, so hidden ones would be duplicates.
            folders[:] = [name for name in folders if not _hidden([name])]
            odd = [name for name in folders if _is_odd(Path(place, name))]
            paths += [(inside / name).as_posix() for name in files if not _hidden([name])]
            paths += [f"{(inside / name).as_posix()}/" for name in odd if not _hidden([name])]
        return sorted(map(_shown, paths))

    def read(self, name: str) -> bytes:
        """Open a regular file in this folder; links to other folders, FIFOs and devices are refused."""
        path = self.path / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.path)):  # resolve() raises on loops
            raise OSError(errno.EPERM, "a link that leaves the metadata folder", name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would block
        except FileNotFoundError:
            if path.is_symlink():
                raise OSError(errno.EINVAL, "a link to a file that does not exist", name) from None
            if self._is_no_utf8(path):
                raise OSError(errno.EILSEQ, "its name is not UTF-8", name) from None
            raise
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            return file.read(MAX_BYTES + 1)

    def _is_no_utf8(self, path: Path) -> bool:
        """Whether a file with undecodable name bytes is listed under this name."""
        there = path.parent.iterdir() if path.parent.is_dir() else iter(())
        return any(entry.name != path.name and _shown(entry.name) == path.name for entry in there)


@dataclass(frozen=True)
class StoreFolder:
    """A folder in S3."""

    store: Storage
    base: str

    def names(self, below: str) -> list[str]:
        with reached(self.base):
            inside = join(self.base, below) if below else self.base
            paths = [f"{below}/{entry.name}".lstrip("/") for entry in self.store.list(inside)]
        return sorted(path for path in paths if not _hidden(path.split("/")))

    def read(self, name: str) -> bytes:
        with reached(self.base):
            return self.store.read(join(self.base, name), MAX_BYTES + 1)


@dataclass(frozen=True)
class RevisionFolder:
    """A folder as it was in a revision of its Git repository.

    Attributes:
        base: of the folder that it was read for, so that relative roots mean the same.
        contents: of its files, by name.
    """

    base: str
    contents: Mapping[str, bytes]

    @classmethod
    def read_from(cls, folder: str | Path, revision: str) -> RevisionFolder:
        """
        Raises:
            FatalError: `REVISION_UNREADABLE`: not in a repository, no such revision, or no folder in it.
        """
        remedy = "name a commit, tag or branch that has the folder; in CI, fetch it first"
        if revision.startswith("-") or is_s3(str(folder)):
            raise FatalError(REVISION_UNREADABLE, f"{folder}: no revision {revision!r} of it", remedy=remedy)
        command = ("git", "-C", str(folder), "archive", "--format=tar", revision)
        try:
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - no shell, no option
        except OSError as error:
            what = f"git can't be started: {error.strerror}"
            raise FatalError(REVISION_UNREADABLE, what, remedy="install git, and clone the repository") from error
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["git failed"]
            what = f"{folder} at {revision!r}: {last[0].removeprefix('fatal: ')}"
            raise FatalError(REVISION_UNREADABLE, what, remedy=remedy)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            files = {one.name: archive.extractfile(one) for one in archive if one.isreg()}
            return cls(LocalFolder(Path(folder)).base, {name: file.read() for name, file in files.items() if file})

    def names(self, below: str) -> list[str]:
        inside = f"{below}/" if below else ""
        return sorted(name for name in self.contents if name.startswith(inside) and not _hidden(name.split("/")))

    def read(self, name: str) -> bytes:
        if name not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "not in this revision", name)
        return self.contents[name]


_PARALLEL = 16
"""Files of a store that are read at a time."""


@dataclass(frozen=True)
class FolderInMemory:
    """What a load needs of a folder, read already. Errors are raised when their file is read.

    Attributes:
        folder: for all that was not read.
        listed: names by sub-folder.
        contents: by name.
    """

    folder: Folder
    listed: Mapping[str, list[str]]
    contents: Mapping[str, bytes | Exception]

    @property
    def base(self) -> str:
        return self.folder.base

    def names(self, below: str) -> list[str]:
        return self.listed[below] if below in self.listed else self.folder.names(below)

    def read(self, name: str) -> bytes:
        content = self.contents.get(name)
        if isinstance(content, Exception):
            raise content
        return self.folder.read(name) if content is None else content


def read_ahead(folder: Folder) -> FolderInMemory:
    """Read the settings and the files of all tables and keys; those of a store in parallel.

    Raises:
        GddlError: a folder can't be listed, or the store does not answer.
    """
    listed = {below: folder.names(below) for below in FOLDERS}
    names = [FILE, *(name for paths in listed.values() for name in paths if name.lower().endswith(ENDINGS))]
    remaining, contents = deque(names), dict[str, bytes | Exception]()

    def work() -> None:
        with suppress(IndexError):
            while name := remaining.popleft():
                try:
                    contents[name] = folder.read(name)
                except (OSError, GddlError) as error:
                    contents[name] = error

    # Not those of an executor, which a process waits for when it ends: these may hang.
    parallel = min(len(names), _PARALLEL) if isinstance(folder, StoreFolder) else 1
    threads = [Thread(target=work, daemon=True, name="gddl-metadata") for _ in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unanswered = (content for content in contents.values() if isinstance(content, RetriableError))
    if (error := next(unanswered, None)) is not None:
        raise error
    return FolderInMemory(folder, listed, contents)


def open_folder(place: str | Path, environ: Mapping[str, str] = os.environ) -> Folder:
    """A local path, or an `s3://` URL reached as the environment says."""
    if isinstance(place, str) and is_s3(place):
        return StoreFolder(open_store(environ), place.rstrip("/"))
    return LocalFolder(Path(place))


def _shown(name: str) -> str:
    """The name, bytes of it that are no UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _is_odd(folder: Path) -> bool:
    return folder.is_symlink() or folder.suffix.lower() in ENDINGS


def _denied(error: OSError) -> None:
    """Raise where a folder can't be listed; one that does not exist holds no files."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        remedy = "let the user of this process list the folder and read its files"
        raise FatalError(
            STORAGE_DENIED, "a metadata folder can't be listed", where=str(error.filename), remedy=remedy
        ) from error


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(".") for part in parts)


@contextmanager
def reached(base: str) -> Iterator[None]:
    """Raise transient store errors as `METADATA_UNREACHABLE`; others, such as `STORAGE_DENIED`, unchanged."""
    try:
        yield
    except RetriableError as error:
        raise RetriableError(METADATA_UNREACHABLE, error.what, where=base, remedy=error.remedy) from error
