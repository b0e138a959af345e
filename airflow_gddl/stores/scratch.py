"""Temporary folders of this machine that outlive no process for long.

Each folder holds a locked file. The lock ends with the process, however it ends, so that the next one that makes such a
folder knows which ones nobody uses and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gddl-scratch-"
_OWNER = ".owner"
_held: dict[Path, int] = {}
"""Folder to the descriptor that holds its lock."""


def make(purpose: str, parent: Path | None = None) -> Path:
    """A new folder for this process, after those that ended processes left there were removed.

    Args:
        purpose: a word for its name.
        parent: None: the machine's temporary folder.
    """
    within = Path(tempfile.gettempdir()) if parent is None else parent
    remove_stale(within)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=within))
        # Until it is locked another process may take it for a stale one, and remove it.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            _held[folder] = _locked(folder / _OWNER, os.O_CREAT)
            if (folder / _OWNER).exists():
                return folder


def remove(folder: Path) -> None:
    """Remove one that `make` made, with its content."""
    shutil.rmtree(folder, ignore_errors=True)
    release(folder)


def release(folder: Path) -> None:
    """Let it stay, under another name or purpose, as a folder like any other."""
    held = _held.pop(folder, None)
    if held is not None:
        (folder / _OWNER).unlink(missing_ok=True)
        os.close(held)


@contextlib.contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    folder = make(purpose)
    try:
        yield folder
    finally:
        remove(folder)


def remove_stale(within: Path) -> None:
    """Remove folders of ended processes; those of other users, and those in use, stay."""
    for folder in within.glob(f"{PREFIX}*"):
        try:
            held = _locked(folder / _OWNER, 0)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _locked(path: Path, flags: int) -> int:
    """
    Raises:
        BlockingIOError: another process holds the lock, or this one.
        OSError: it can't be opened.
    """
    held = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
