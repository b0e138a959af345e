"""Links of a local path below a folder that they must not leave."""

from __future__ import annotations

import contextlib
import os
from stat import S_ISLNK


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
