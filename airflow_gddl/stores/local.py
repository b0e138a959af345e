"""Local folders."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores.port import Found


class LocalStore:
    """See `Store`."""

    listing_spans_folders = False

    def list(self, folder: str, after: str = "") -> Iterator[Found]:
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

    def remove(self, path: str) -> None:
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


def _walk(folder: str, prefix: str) -> Iterator[Found]:
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
                tag = f"{status.st_ino:x}-{status.st_mtime_ns:x}"
                yield Found(prefix + entry.name, status.st_size, tag, status.st_mtime)


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
