"""How a job that goes on hears signals: at any instant, that of its own waiting included."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from spark_jobs.job.stop import Stop

SIGNALLED = """
import signal, time
from spark_jobs.job.stop import Stop
stop = Stop()
signal.signal(signal.SIGALRM, lambda *_: stop.wake())
signal.setitimer(signal.ITIMER_REAL, 0.0004, 0.0004)
ends = time.monotonic() + 2
while time.monotonic() < ends:
    stop.wait(0.0001)
signal.setitimer(signal.ITIMER_REAL, 0)
print("alive")
"""


def test_signal_during_a_wait_does_not_deadlock() -> None:
    """Thousands of signals, of which some come while the wait holds what it holds."""
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


def test_wait_ends_on_wake_and_wakes_do_not_accumulate() -> None:
    stop, began = Stop(), time.monotonic()
    for _ in range(1000):
        stop.wake()
    stop.wait(60)
    threading.Timer(0.1, lambda: stop.ask("enough")).start()
    stop.wait(60)
    assert (stop.why, stop.is_asked) == ("enough", True)
    assert 0.05 < time.monotonic() - began < 30
    stop.wait(0)
