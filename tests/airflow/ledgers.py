"""A ledger as the job writes it."""

from __future__ import annotations

from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, TableState

MOMENT = "2024-01-01T00:00:00.000000+00:00"


def write(roots: Roots, table: str, batches: int) -> str:
    """Commit so many batches of a file each; the path of the last."""
    layout = Layout.of(roots, TableSpec(table=table, keys=()))
    ledger, path = Ledger.open(Storage(), layout.state), ""
    for number in range(1, batches + 1):
        path = join(layout.landing, f"202401{number:02d}-000000000.parquet")
        plan = BatchPlan(number=number, mode="incremental", planned_at=MOMENT, generation=1, files=())
        row = FileEntry(
            path=path,
            kind="change",
            size=10,
            etag="e",
            modified=MOMENT,
            fingerprint="f",
            generation=1,
            batch=number,
            rows=3,
        )
        ledger.write_plan(plan)
        ledger.commit(BatchCommit(number=number, plan=plan, files=(row,), state=TableState(batch=number, generation=1)))
    return path
