"""Identity of a process, by which another process on the machine can check whether it still runs."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

_LINUX = sys.platform == "linux"


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process, unique until the machine's next boot.

    Attributes:
        boot: the boot and the process-id namespace (containers of one machine share the boot, not the ids); empty where
            the system doesn't say, and then nothing is concluded from a process id.
        started: start time, on Linux in the kernel's ticks; a reused process id has another start time.
    """

    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot=_boot(), pid=pid, started=_started(pid) or "")

    def is_known_dead(self, observer: ProcessIdentity) -> bool:
        """True only for certain: same host, boot and namespace as the observer, and the process has ended."""
        comparable = (self.host, self.boot) == (observer.host, observer.boot) and self.boot != "" and self.started != ""
        return comparable and _started(self.pid) != self.started


def _boot() -> str:
    if not _LINUX:
        return f"{psutil.boot_time():.0f}"  # this system has no process-id namespaces
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """None when there is no such process or it is a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return _ticks(pid) if _LINUX else repr(process.create_time())
    except (psutil.NoSuchProcess, OSError):
        return None


def _ticks(pid: int) -> str:
    """Field 22 of `/proc/<pid>/stat`, since boot: psutil adds the time of boot, which moves with the clock."""
    # The second field, the name in parentheses, may itself hold spaces and parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
