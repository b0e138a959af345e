"""`gddl-job` that gets SIGTERM some time after a step: `python -m tests.spark.stopped_child SPEC STEP SECONDS`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from spark_jobs import program as job
from spark_jobs.batch.runtime import Step


def main(spec: str, step: str, seconds: str) -> int:
    sent = threading.Event()

    def observe(reported: Step) -> None:
        if reported.step == step and not sent.is_set():
            sent.set()
            threading.Thread(target=send).start()

    def send() -> None:
        time.sleep(float(seconds))
        os.kill(os.getpid(), signal.SIGTERM)

    job.print_step = observe
    return job.run(["--spec", spec, "--progress"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
