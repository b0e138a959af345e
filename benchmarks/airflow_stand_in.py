"""A job that is done at once, in place of Spark: notes each table, when, and its own id, in AIRFLOW_RUN_RECORD."""

import json
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    spec = json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())
    for table in spec["tables"]:
        result = {"table": table["table"], "run_id": spec["run_id"], "status": "succeeded", "files": 1, "version": 0}
        sys.stdout.write(json.dumps({**result, "rows_read": 1, "changes_written": 1}) + "\n")
    with Path(os.environ["AIRFLOW_RUN_RECORD"]).open("a") as record:
        record.write("".join(f"{table['table']}\t{time.time():.3f}\t{spec['run_id']}\n" for table in spec["tables"]))
