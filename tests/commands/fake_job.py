"""A job for tests of the runner and the command line: obeys FAKE_JOB, a JSON object, instead of starting Spark.

`results`: table to fields of its JobResult (a table that isn't there gets no answer). `exit`: exit status. `noise`:
lines for standard output that are no results. `log`: lines for standard error. `progress`: events. `awaits`: file
that it waits for before its results. `sleep`: seconds to sleep at the end. `kill`: signal sent to itself after that.
`on_term`: `ignore`, which removes the file `ready`, or `answer` (the remaining tables, then exit). `child`: starts a
process that outlives it and holds its pipes; its id goes to that file. `ready`: file that is written before the
sleep. `dump`: file that gets the spec, the arguments and the environment.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHILD = "import time; time.sleep(600)"


def main() -> int:
    orders = json.loads(os.environ["FAKE_JOB"])
    spec = json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())
    if "dump" in orders:
        Path(orders["dump"]).write_text(json.dumps({"spec": spec, "argv": sys.argv[1:], "environ": dict(os.environ)}))
    on_signal(orders, spec)
    for line in orders.get("log", ()):
        print(line, file=sys.stderr, flush=True)
    for event in orders.get("progress", ()):
        print("GDDL-PROGRESS " + json.dumps(event), file=sys.stderr, flush=True)
    while "awaits" in orders and not Path(orders["awaits"]).exists():
        time.sleep(0.01)
    for line in orders.get("noise", ()):
        print(line, flush=True)
    for table in spec["tables"]:
        if table["table"] in orders.get("results", {}):
            answer(spec, table["table"], orders["results"][table["table"]])
    finish(orders)
    return int(orders.get("exit", 0))


def on_signal(orders: dict, spec: dict) -> None:
    def answer_rest(number: int, frame: object) -> None:
        for table in spec["tables"]:
            if table["table"] not in orders.get("results", {}):
                answer(spec, table["table"], {"status": "failed", "error": {"code": "STOPPED", "message": "told to"}})
        sys.exit(1)

    if orders.get("on_term") == "ignore":
        signal.signal(signal.SIGTERM, lambda *_: Path(orders["ready"]).unlink(missing_ok=True))
    if orders.get("on_term") == "answer":
        signal.signal(signal.SIGTERM, answer_rest)


def answer(spec: dict, table: str, fields: dict) -> None:
    result = {"table": table, "status": "succeeded", "run_id": spec["run_id"], **fields}
    print(json.dumps(result), flush=True)


def finish(orders: dict) -> None:
    if orders.get("child"):
        child = subprocess.Popen([sys.executable, "-c", CHILD])
        Path(orders["child"]).write_text(str(child.pid))
    if "ready" in orders:
        Path(orders["ready"]).write_text("ready")
    time.sleep(orders.get("sleep", 0))
    if "kill" in orders:
        os.kill(os.getpid(), orders["kill"])


if __name__ == "__main__":
    sys.exit(main())
