"""The job of the end-to-end tests: the real one for tables of the schema `real`, else a stand-in that is done at once.

The stand-in obeys the folder E2E_JOB: it adds a line to `jobs.jsonl` when it starts and when it ends, and waits as long
as there is a file `hold-<table>`; at a table with a file `refuse-<table>` it fails, for one with `idle-<table>` it
finds nothing new. It ends with its task, as the real one does.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path

# Long enough for the slowest machine: one that gives up ends a test's premise. It ends with its task in any case.
PATIENCE_SECONDS = 1800


def main() -> int:
    order = sys.argv[sys.argv.index("--spec") + 1]
    spec = json.loads(Path(order).read_text())
    tables = [table["table"] for table in spec["tables"]]
    if any(table.startswith("real.") for table in tables):
        os.execv(sys.executable, [sys.executable, "-m", "spark_jobs.main", *sys.argv[1:]])  # noqa: S606 - no shell
    importlib.import_module("spark_jobs.job.stop").end_with(int(sys.argv[sys.argv.index("--parent") + 1]))
    folder = Path(os.environ["E2E_JOB"])
    note(folder, "start", spec, tables)
    for table in tables:
        wait(folder / f"hold-{table}")
        if (folder / f"refuse-{table}").exists():
            error = {"code": "BROKEN_ON_PURPOSE", "message": "told to fail"}
            print(
                json.dumps({"table": table, "run_id": spec["run_id"], "status": "failed", "error": error}), flush=True
            )
            return 1
        if (folder / f"idle-{table}").exists():
            print(json.dumps({"table": table, "run_id": spec["run_id"], "status": "skipped"}), flush=True)
            continue
        result = {"table": table, "run_id": spec["run_id"], "status": "succeeded", "rows_read": 3, "files": 1}
        result |= {"changes_written": 3, "version": 1, "main": {"inserted": 3, "rows": 3}}
        print(json.dumps({**result, "freshness": {"lag_seconds": 12.5}}), flush=True)
    note(folder, "end", spec, tables)
    return 0


def note(folder: Path, what: str, spec: dict, tables: list[str]) -> None:
    line = {
        "what": what,
        "run_id": spec["run_id"],
        "tables": tables,
        "options": spec.get("options", {}),
        "pid": os.getpid(),
    }
    with (folder / "jobs.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def wait(hold: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while hold.exists() and time.monotonic() < deadline:
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
