"""Local folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores.port import ListedFile


class LocalStore:
    """See `Store`."""

    listing_spans_folders = False

    def list(self, folder: str, after: str = "") -> Iterator[ListedFile]:
        with _translated(folder):
            for found in _walk(folder, ""):
                if found.name > after:
                    yield found

    def read(self, path: str) -> bytes:
        with _translated(path):
            return Path(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        with _translated(path), _written_beside(path, data) as beside:
            beside.replace(path)

    def create(self, path: str, data: bytes) -> bool:
        with _translated(path), _written_beside(path, data) as beside:
            try:
                # A link to a name that is taken fails, whoever took it; a rename would replace what is there.
                os.link(beside, path)
            except FileExistsError:
                return False
            return True

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        with _translated(path), Path(path).open("rb") as file:
            return file.read(), _tag(os.fstat(file.fileno()))

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        target = Path(path)
        with _translated(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            # A rename alone can't tell whether somebody else was faster; the lock is of the folder, held for a moment.
            with (target.parent / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _tag_of(target) != tag:
                    return False
                self.write(path, data)
                return True

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _translated(path):
                Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _written_beside(path: str, data: bytes) -> Iterator[Path]:
    """A file with the content in the target's folder; it is gone afterwards unless it was moved."""
    target = Path(path)
    beside = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        beside.write_bytes(data)
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _tag_of(path: Path) -> str | None:
    try:
        return _tag(path.stat())
    except FileNotFoundError:
        return None


def _tag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}"


def _walk(folder: str, prefix: str) -> Iterator[ListedFile]:
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_dir():
                if not _leads_up(entry, folder):
                    yield from _walk(entry.path, f"{prefix}{entry.name}/")
                continue
            with contextlib.suppress(FileNotFoundError):  # it vanished since the folder was read
                status = entry.stat()
                yield ListedFile(prefix + entry.name, status.st_size, _tag(status), status.st_mtime)


def _leads_up(entry: os.DirEntry[str], folder: str) -> bool:
    """Whether it is a link to the folder it lies in or to one above, which would never end."""
    if not entry.is_symlink():
        return False
    return f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(entry.path)}/")


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        what = f"{error.strerror or type(error).__name__}"
        remedy = "check that the folder is mounted, and its permissions"
        raise RetriableError("LANDING_UNREACHABLE", what, where=path, remedy=remedy) from error
