"""A rebuild reads the change table alone: what is in quarantine, and rows that are stale by it, stay."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.contract.actions import Explain, HandleErrors, Rebuild, Reload
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.runtime.state.table_runs import TableRecord
from tests.harness.lake import Lake, spec_of

SPEC = spec_of(settle="0s")


def attention(record: TableRecord, result: JobResult) -> tuple[TableRecord, bool]:
    after = record.after(result, 0.0)
    return after, after.holds("QUARANTINE_STALE")


def test_a_stale_row_stays_stale_through_a_rebuild_and_a_reload(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC)
    lake.change(SPEC, 1, [("?", 0, "unknown operation")])
    record, stale = attention(TableRecord(), lake.done(SPEC))
    assert (stale, record.quarantined) == (True, 1)
    rebuilt = lake.done(SPEC, JobOptions(action=Rebuild()))
    assert rebuilt.in_quarantine == 1
    record, stale = attention(record, rebuilt)
    assert stale
    assert lake.done(SPEC, JobOptions(action=Explain(key={"id": "0"}))).details["may_be_stale"]
    reloaded = lake.done(SPEC, JobOptions(action=Reload(confirmed=True)))
    record, stale = attention(record, reloaded)
    assert (reloaded.in_quarantine, reloaded.quarantined, stale) == (1, 1, True)
    dismissal = HandleErrors(mode="dismiss", codes=("OP_UNKNOWN",), reason="a test row")
    record, stale = attention(record, lake.done(SPEC, JobOptions(action=dismissal)))
    assert (stale, record.quarantined) == (False, 0)
