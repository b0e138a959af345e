"""Ends of processes, while a thread of Arrow reads a Python file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import atexit, sys, threading, time
from airflow_gddl.contract.python_command import exit_process
import pyarrow as pa, pyarrow.parquet as pq

begun = threading.Event()


class Slow:
    closed = False
    def __init__(self): self.at = 0
    def size(self): return 1 << 20
    def tell(self): return self.at
    def seek(self, at, whence=0): self.at = at if whence == 0 else (1 << 20) + at
    def close(self): pass
    def readable(self): return True
    def writable(self): return False
    def seekable(self): return True
    def read(self, size=-1):
        begun.set()
        time.sleep(0.3)
        return b"PAR1" * (size // 4)


def read():
    try:
        pq.read_metadata(Slow())
    except (OSError, pa.ArrowException):
        pass


atexit.register(print, "exit function")
later = threading.Thread(target=lambda: (time.sleep(0.1), print("thread")))
later.start()
threading.Thread(target=read, daemon=True).start()
begun.wait()
print("done", end="")
exit_process(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_process_ends_with_its_status_while_arrow_reads(status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(status)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout == "donethread\nexit function\n"


def test_output_that_is_lost_is_a_failure() -> None:
    program = "from airflow_gddl.contract.python_command import exit_process; print('x'); exit_process(0)"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, env=buffered, check=False, timeout=60)
    assert done.returncode == 120
