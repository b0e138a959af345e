"""A process that has used this engine starts programs by forking, as Spark's own launcher does."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import subprocess, threading
from spark_jobs.rules import sql

def start():
    print(subprocess.run(["true"], preexec_fn=lambda: None).returncode)

assert sql.query("SELECT 1 AS one", {}).to_pylist() == [{"one": 1}]
thread = threading.Thread(target=start)
thread.start()
thread.join()
assert sql.query("SELECT 2 AS two", {}).to_pylist() == [{"two": 2}]
"""


def test_a_thread_forks_beside_one_that_holds_a_connection() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
