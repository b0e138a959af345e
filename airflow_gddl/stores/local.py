"""Files in local folders, with the semantics of an object store: the local part of `Storage`.

Not obstore's LocalStore: that one lists unordered, walks folders that lie wholly before the offset, and hides names
such as `p#1`. Measured, the newest 100 of 10,000 files in 1,000 date folders: 1 ms here, 12 ms there.

Writes are atomic against a crash of the process, not synced against a loss of power, as are Spark's own local files.
"""

# A `Path` takes as long as the calls of the system that a small object needs.
# ruff: noqa: PTH105, PTH108, PTH118, PTH123
from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO, NamedTuple

from airflow_gddl.contract.codes import STORAGE_UNUSABLE
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores.readers import StoredObject, StoreReader, make_folder


def has_link(path: str, bounds: str) -> bool:
    """Whether the path below `bounds` contains a link; far cheaper than `leaves`."""
    if not path.startswith(f"{bounds.rstrip('/')}/") or "/.." in path:
        return True
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        while len(path) > len(bounds):
            if S_ISLNK(os.lstat(path).st_mode):
                return True
            path = path.rpartition("/")[0]
    return False


def leaves(path: str, bounds: str) -> bool:
    return not f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(bounds).rstrip('/')}/")


_FILE = "file://"
_CHUNK = 4 * 1024 * 1024
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
_LINK_OUT = "a link that leaves the landing folder"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


def bare(path: str) -> str:
    """A path without `file://` and without a slash at its end.

    Raises:
        FatalError: `STORAGE_UNUSABLE`: it is not absolute.
    """
    location = path.removeprefix(_FILE)
    if not location.startswith("/"):
        what, remedy = f"{path!r} is neither absolute nor s3://", "use /folder, file:///folder or s3://bucket/prefix"
        raise FatalError(STORAGE_UNUSABLE, what, remedy=remedy)
    return location.rstrip("/") or "/"


def list(folder: str, after: str, within: str | None) -> Iterator[StoredObject]:  # noqa: A001 - as `Storage` calls it
    """See `Storage.list`.

    In the order of an object store: `a.b` before `a/b` before `a0`. Files that vanish during the walk are skipped.
    Links are followed, but never upwards. Entries before `after` are neither stat'ed nor descended. A folder that leads
    out of `within` is returned as one refused object.

    Raises:
        NotADirectoryError: a file is in place of the folder, which would else look like an empty one; with `within`, a
            loop of links.
    """
    root, bounds = bare(folder), None if within is None else bare(within)
    try:
        if bounds is None or not has_link(root, bounds) or not leaves(root, bounds):
            yield from _walk(_Listing(folder, root, bounds), "", after)
        elif (status := status_of(Path(root))) is not None:
            yield _stored(folder, "", status, _LINK_OUT)
    except OSError as error:
        if bounds is None or error.errno != errno.ELOOP:
            raise
        raise NotADirectoryError(errno.ENOTDIR, "no folder, but a loop of links", folder) from error


def stat(path: str, within: str | None) -> StoredObject:
    """See `Storage.stat`.

    Raises:
        FileNotFoundError: nothing there, or no regular file.
    """
    file = bare(path)
    status = status_of(Path(file))
    if status is None or not S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, "no such file", path)
    folder, _, name = path.rpartition("/")
    refused = _LINK_OUT if within is not None and leaves(file, bare(within)) else ""
    return _stored(folder, name, status, refused)


def _stored(folder: str, name: str, status: os.stat_result, refused: str = "") -> StoredObject:
    return StoredObject(folder, name, status.st_size, _etag(status), status.st_mtime, refused)


def _etag(status: os.stat_result) -> str:
    """Changes with every rewriting: a replaced file has a new inode, one written in place a new time or size."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _refusal(entry: os.DirEntry[str], bounds: str | None) -> str:
    if not is_utf8(entry.name):
        return "its name is not UTF-8"
    return _LINK_OUT if bounds is not None and entry.is_symlink() and leaves(entry.path, bounds) else ""


def is_utf8(name: str) -> bool:
    """Python represents undecodable bytes of a name as surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Listing(NamedTuple):
    """What is listed: the folder as it was asked for, its bare path, and the folder that links must not leave."""

    folder: str
    root: str
    bounds: str | None


def _walk(listing: _Listing, prefix: str, after: str) -> Iterator[StoredObject]:
    """Below the folder `prefix` of the listing, which ends with a slash unless it is empty."""
    for as_named, entry in _sorted_entries(f"{listing.root}/{prefix}", after, is_root=not prefix):
        name, refused = prefix + as_named, ""
        if entry.is_symlink() or not as_named.isascii():
            refused = _refusal(entry, listing.bounds)
        if refused:
            status = None if listing.bounds is None else status_of(entry)
            if status is not None and (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode)):
                shown = os.fsencode(name.rstrip("/")).decode(errors="backslashreplace")
                yield _stored(listing.folder, shown, status, refused)
        elif as_named.endswith("/"):
            yield from _walk(listing, name, after[len(as_named) :] if after.startswith(as_named) else "")
        elif (status := status_of(entry)) is not None and S_ISREG(status.st_mode):
            yield _stored(listing.folder, name, status)


def _sorted_entries(folder: str, after: str, *, is_root: bool = False) -> Sequence[tuple[str, os.DirEntry[str]]]:
    """Entries by name in the order of an object store, names of folders with `/` at their end.

    Args:
        is_root: a file in place of the folder is an error.
    """
    entries = []
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                name = entry.name
                as_folder = f"{name}/"
                if name <= after and as_folder <= after and not after.startswith(as_folder):
                    continue
                if _links_to_folder(entry, folder) if entry.is_symlink() else entry.is_dir():
                    entries.append((as_folder, entry))
                elif name > after:
                    entries.append((name, entry))
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        if is_root:
            raise
    return sorted(entries, key=itemgetter(0))


def _links_to_folder(link: os.DirEntry[str], folder: str) -> bool:
    """Whether to follow it; links to `folder` itself or above would be endless."""
    status = status_of(link)
    if status is None or not S_ISDIR(status.st_mode):
        return False
    target = os.path.realpath(link.path)
    return not f"{os.path.realpath(folder)}/".startswith(f"{target}/")


def status_of(of: Path | os.DirEntry[str]) -> os.stat_result | None:
    """What the system says of a file or folder; None: it is not there. Tests count these calls."""
    try:
        return of.stat()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def folders(folder: str) -> Sequence[str]:
    """See `Storage.folders`."""
    entries = _sorted_entries(bare(folder), "")
    return [name.rstrip("/") for name, _ in entries if name.endswith("/") and is_utf8(name)]


def exists(folder: str) -> bool:
    """A folder, even an empty one, or a file."""
    status = status_of(Path(bare(folder)))
    return status is not None and (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        with builtins.open(bare(path), "rb") as file:
            yield file
    except OSError as error:
        if error.errno in _ABSENT:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
        raise


def read(path: str) -> tuple[bytes, str]:
    """The content and its tag; a folder counts as nothing there."""
    with _opened(path) as file:
        return file.read(), _etag(os.fstat(file.fileno()))


def stream(path: str) -> Iterator[bytes]:
    with _opened(path) as file:
        while part := file.read(_CHUNK):
            yield part


def open(path: str) -> BinaryIO:  # noqa: A001 - as `Storage` calls it
    return StoreReader(path, io.FileIO(bare(path)))


def write(path: str, data: bytes) -> None:
    with _written_beside(path, data) as beside:
        os.replace(beside, bare(path))


def copy(path: str, target: str) -> None:
    """See `Storage.copy`."""
    if not Path(bare(path)).is_file():
        raise FileNotFoundError(errno.ENOENT, "no such file", path)
    with _written_beside(target, b"") as beside:
        shutil.copyfile(bare(path), beside)
        os.replace(beside, bare(target))


def create(path: str, data: bytes) -> bool:
    """Put if absent: the name appears with its whole content or not at all."""
    with _written_beside(path, data) as beside:
        try:
            # A hard link to an existing name fails; a rename would replace the file.
            os.link(beside, bare(path))
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                return _create_unlinked(bare(path), data)
            raise
    return True


def _create_unlinked(path: str, data: bytes) -> bool:
    """For file systems without hard links: exclusive, though a crash can leave a part."""
    try:
        with Path(path).open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def sync(path: str) -> None:
    """See `Storage.sync`."""
    target = Path(bare(path))
    for place in (target, target.parent):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def swap(path: str, data: bytes, tag: str | None) -> bool:
    """See `Storage.swap`."""
    target = Path(bare(path))
    make_folder(target.parent)
    # A rename can't detect a concurrent writer, so the folder is locked briefly.
    with (target.parent / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = status_of(target)
        if (None if status is None else _etag(status)) != tag:
            return False
        write(path, data)
        return True


@contextlib.contextmanager
def _written_beside(path: str, data: bytes) -> Iterator[str]:
    """A temporary file in the target's folder; removed afterwards unless it was moved."""
    folder, name = os.path.split(bare(path))
    beside = os.path.join(folder, f".{name[:100]}.{uuid.uuid4().hex}.tmp")
    try:
        try:
            put(beside, data)
        except FileNotFoundError:
            make_folder(folder)
            put(beside, data)
        yield beside
    finally:
        _unlink(beside)


def put(path: str, data: bytes) -> None:
    """Write a file. All writes of this module go through here, and tests let them fail here."""
    with builtins.open(path, "wb") as file:
        file.write(data)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def prune(folder: str, root: str) -> None:
    """Remove folders without files: `folder`, all below it, and its parents below `root`."""
    top, end = Path(bare(folder)), Path(bare(root))
    below = sorted((Path(found) for found, _, _ in os.walk(top)), key=lambda path: len(path.parts), reverse=True)
    above = [parent for parent in top.parents if end in parent.parents]
    for path in (*below, *above):
        with contextlib.suppress(OSError):  # it has files
            path.rmdir()


def delete(paths: Sequence[str]) -> None:
    for path in paths:
        _unlink(bare(path))
