"""A job for tests of the Airflow side: obeys FAKE_JOB, a JSON file's path, instead of starting Spark.

`record`: a file that gets a JSON line for each job: its run id, tables, options and roots. `fail`: table to [code,
message]; `fatal`: those of them that no retry helps; `fail_jobs`: only in the first so many jobs. `die_at`: a table
before which the process kills itself.
`columns`: table to what its result says of its columns. `skip`: tables that have nothing new. `sleep`: seconds before
each table, or table to seconds. `pid`: a file that gets this process's id. `write`: path
to text. A continuous job answers for tables as its standing order names them, for `lasts` seconds, until it has
answered for the table `until`, or until it is asked to stop, and then ends with `status`; it makes the file `answered`
once it has answered for all.
"""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    orders = json.loads(Path(os.environ["FAKE_JOB"]).read_text())
    spec = {"options": {}, **json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())}
    if "--parent" in sys.argv:
        parent = int(sys.argv[sys.argv.index("--parent") + 1])
        importlib.import_module("spark_jobs.job.stop").end_with(parent)
    names = [table["table"] for table in spec["tables"]]
    line = {"run_id": spec["run_id"], "tables": names, "options": spec["options"], "roots": spec["roots"]}
    with Path(orders["record"]).open("a") as file:
        file.write(json.dumps(line) + "\n")
    if "pid" in orders:
        Path(orders["pid"]).write_text(str(os.getpid()))
    for path, text in orders.get("write", {}).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    jobs = len(Path(orders["record"]).read_text().splitlines())
    if jobs > orders.get("fail_jobs", jobs):
        orders["fail"] = {}
    if spec["options"].get("continuous"):
        return keep(orders, spec)
    if orders.get("die_at") in names:
        for name in names[: names.index(orders["die_at"])]:
            load(orders, spec, name)
        os.kill(os.getpid(), signal.SIGKILL)
    bad = [name for name in names if not load(orders, spec, name)]
    return 1 if bad else 0


def load(orders: dict, spec: dict, table: str) -> bool:
    """Work, and leave the log of a replica, which is all that the Airflow side looks for."""
    done, lake = work(orders, spec["run_id"], table), spec["roots"]["lake"]
    if (
        done
        and spec["options"].get("action", {"name": "run"})["name"] in ("run", "rebuild", "reload")
        and not lake.startswith("s3://")
    ):
        log = Path(lake, *table.split("."), "_delta_log")
        log.mkdir(parents=True, exist_ok=True)
        (log / f"{0:020}.json").touch()
    return done


def keep(orders: dict, spec: dict) -> int:
    reported: dict[str, bool] = {}
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
    layout = importlib.import_module("airflow_gddl.contract.layout")
    folder, deadline = spec["options"]["continuous"]["folder"], time.monotonic() + orders.get("lasts", 0.5)
    order, stop = Path(layout.desired_path(folder)), Path(layout.stop_path(folder, spec["run_id"]))
    until = orders.get("until")
    while not stops and not stop.exists() and until not in reported and time.monotonic() < deadline:
        for row in json.loads(order.read_text())["tables"]:
            if row["table"] not in reported:
                reported[row["table"]] = work(orders, spec["run_id"], row["table"])
        if "answered" in orders:
            Path(orders["answered"]).touch()
        time.sleep(0.05)
    with Path(orders["record"]).open("a") as file:
        line = {
            "run_id": spec["run_id"],
            "tables": sorted(reported),
            "options": {},
            "ended": bool(stops or stop.exists()),
        }
        file.write(json.dumps(line) + "\n")
    return orders.get("status", 0 if all(reported.values()) else 1)


def work(orders: dict, run_id: str, table: str) -> bool:
    pause = orders.get("sleep", 0)
    time.sleep(pause.get(table, 0) if isinstance(pause, dict) else pause)
    result = {"table": table, "run_id": run_id, "status": "succeeded", "version": 3, "rows_read": 7, "files": 1}
    result |= {"changes_written": 7, "main": {"inserted": 7, "rows": 7}, "freshness": {"lag_seconds": 12.5}}
    result |= {"columns": orders.get("columns", {}).get(table, [])}
    if table in orders.get("skip", ()):
        result = {"table": table, "run_id": run_id, "status": "skipped"}
    if table in orders.get("fail", {}):
        code, message = orders["fail"][table]
        error = {"code": code, "message": message, "fatal": table in orders.get("fatal", ())}
        result = {"table": table, "run_id": run_id, "status": "failed", "error": error}
    print(json.dumps(result), flush=True)
    if "--results" in sys.argv:
        lake = Path(json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())["roots"]["lake"])
        layout = importlib.import_module("airflow_gddl.contract.layout")
        answer = Path(layout.results_folder(str(lake), run_id), layout.result_name(table))
        answer.parent.mkdir(parents=True, exist_ok=True)
        answer.write_text(json.dumps(result))
    return result["status"] != "failed"


if __name__ == "__main__":
    sys.exit(main())
