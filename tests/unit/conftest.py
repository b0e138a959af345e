"""What is tested here starts no process, Spark included, and connects to nothing but a server of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import croniter  # noqa: F401 - its import asks `file` for the architecture: before the guard is on
import pytest

_STARTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"})
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Guard:
    """A hook of the interpreter can't be removed: it is on only during a test of this folder."""

    on = False

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event in _STARTS:
            raise AssertionError(f"a unit test starts a process ({event}: {args[0]}); it belongs to another folder")
        if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in _LOOPBACK:
            raise AssertionError(f"a unit test connects to {args[1][0]}; it belongs to another folder")


_GUARD = _Guard()
sys.addaudithook(_GUARD)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    _GUARD.on = True
    yield
    _GUARD.on = False
