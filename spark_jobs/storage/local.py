"""Objects in a local folder, with the semantics of an object store.

Not obstore's LocalStore: that one lists unordered, walks folders that lie wholly before the offset, and hides names
such as `p#1`. Measured, the newest 100 of 10,000 files in 1,000 date folders: 1 ms here, 12 ms there.

Writes are atomic against a crash of the process, not synced against a loss of power, as are Spark's own local files.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
_LINK_OUT = "a link that leaves the landing folder"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class LocalObject:
    """A file of a walk; `name` is relative to the walk's root, with `/`.

    Attributes:
        refused: why it must not be read; empty: it may. A name that isn't UTF-8 comes with its bytes escaped.
    """

    name: str
    status: os.stat_result
    refused: str = ""

    @property
    def etag(self) -> str:
        """Changes with every rewriting: a replaced file has a new inode, one written in place a new time or size."""
        return f"{self.status.st_ino:x}-{self.status.st_mtime_ns:x}-{self.status.st_size:x}"


def walk(root: str, start_after: str = "", within: str | None = None) -> Iterator[LocalObject]:
    """Files below `root` whose relative name is greater than `start_after`.

    In the order of an object store: `a.b` before `a/b` before `a0`. A missing root is empty; what vanishes during the
    walk is left out. Links are followed, but never upwards. Entries wholly before `start_after` cost neither a stat nor
    a descent.

    Args:
        within: a folder that links must not leave: what lies outside comes as refused, folders as a whole. Null: links
            may lead anywhere.
    """
    bounds = None if within is None else os.path.realpath(within)
    if bounds is not None and _leaves(root, bounds):
        status = _status(Path(root))
        if status is not None:
            yield LocalObject("", status, _LINK_OUT)
        return
    yield from _walk(root, "", start_after, bounds)


def look(path: str, within: str | None = None) -> LocalObject | None:
    """The file of this path, as a walk would show it; null when there is none."""
    status = _status(Path(path))
    if status is None or not S_ISREG(status.st_mode):
        return None
    refused = _LINK_OUT if within is not None and _leaves(path, os.path.realpath(within)) else ""
    return LocalObject(path, status, refused)


def _leaves(path: str, bounds: str) -> bool:
    return not f"{os.path.realpath(path)}/".startswith(f"{bounds.rstrip('/')}/")


def _refusal(entry: os.DirEntry[str], bounds: str | None) -> str:
    if not is_utf8(entry.name):
        return "its name is not UTF-8"
    return _LINK_OUT if bounds is not None and entry.is_symlink() and _leaves(entry.path, bounds) else ""


def is_utf8(name: str) -> bool:
    """Python gives the bytes of a name that are none as halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(folder: str, prefix: str, start_after: str, bounds: str | None) -> Iterator[LocalObject]:
    for entry, is_folder in _sorted_entries(folder, start_after):
        name = entry.name
        if refused := _refusal(entry, bounds):
            status = _status(entry)
            if status is not None and (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode)):
                shown = os.fsencode(prefix + name).decode(errors="backslashreplace")
                yield LocalObject(shown, status, refused)
        elif is_folder:
            below = f"{name}/"
            rest = start_after[len(below) :] if start_after.startswith(below) else ""
            yield from _walk(f"{folder}/{name}", prefix + below, rest, bounds)
        elif (status := _status(entry)) is not None and S_ISREG(status.st_mode):
            yield LocalObject(prefix + name, status)


def _sorted_entries(folder: str, start_after: str) -> list[tuple[os.DirEntry[str], bool]]:
    entries = []
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                as_folder = f"{entry.name}/"
                if entry.name <= start_after and as_folder <= start_after and not start_after.startswith(as_folder):
                    continue
                is_folder = _is_folder(entry, folder)
                if is_folder or entry.name > start_after:
                    entries.append((entry, is_folder))
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
    return sorted(entries, key=lambda item: f"{item[0].name}/" if item[1] else item[0].name)


def _is_folder(entry: os.DirEntry[str], folder: str) -> bool:
    """True for folders and links to folders, but for a link to `folder` itself or above, which would never end."""
    if not entry.is_dir():
        return False
    if not entry.is_symlink():
        return True
    target = os.path.realpath(entry.path)
    return not f"{os.path.realpath(folder)}/".startswith(f"{target}/")


def _status(of: Path | os.DirEntry[str]) -> os.stat_result | None:
    try:
        return of.stat()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def exists(path: str) -> bool:
    """A folder, even an empty one, or a file."""
    status = _status(Path(path))
    return status is not None and (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode))


def folders(path: str) -> Iterator[str]:
    """Names of the folders right below a folder; none when it isn't there."""
    if not Path(path).is_dir():
        return
    with os.scandir(path) as entries:
        yield from (entry.name for entry in entries if is_utf8(entry.name) and _is_folder(entry, path))


def read(path: str) -> bytes:
    """
    Raises:
        FileNotFoundError: nothing there, or a folder.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        if error.errno in _ABSENT:
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from error
        raise


def write(path: str, data: bytes) -> None:
    temporary = _write_beside(path, data)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create(path: str, data: bytes) -> bool:
    """Put if absent: the name appears with its whole content or not at all."""
    temporary = _write_beside(path, data)
    try:
        Path(path).hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            return _create_unlinked(path, data)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _create_unlinked(path: str, data: bytes) -> bool:
    """For file systems without hard links: exclusive, though a crash can leave a part."""
    try:
        with Path(path).open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def _write_beside(path: str, data: bytes) -> Path:
    folder, name = os.path.split(path)
    temporary = Path(folder, f".{name[:100]}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(data)
    except FileNotFoundError:
        Path(folder).mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def delete(path: str) -> None:
    """Nothing there is no error."""
    Path(path).unlink(missing_ok=True)
