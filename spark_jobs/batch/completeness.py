"""Until when the replica is known to be complete; its lag is in `totals`."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

from airflow_gddl.contract.completeness import HeartbeatFacts, complete_until
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import Layout
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger

_LOG = logging.getLogger(__name__)


def known_until(run: TableRun, totals: RunTotals) -> str | None:
    """See `Freshness.complete_until`, of a run with batches; None for an idle run, which reads no other table.

    A run with a limited number of batches may have left files, so that only its own changes are evidence.
    """
    if not totals.batches:
        return None
    whole = run.job.options.max_batches is None and not totals.revisit and totals.started_at
    since = min(filter(None, (totals.started_at, totals.waiting_since)), key=datetime.fromisoformat, default="")
    as_of = datetime.fromisoformat(since).timestamp() if whole else None
    newest = None if totals.max_commit_ts is None else datetime.fromisoformat(totals.max_commit_ts).timestamp()
    heartbeat = None if run.spec.heartbeat is None or run.spec.shards else _heartbeat(run, run.spec.heartbeat)
    until = newest if heartbeat is None else complete_until(newest, as_of, heartbeat)
    return None if until is None else iso(datetime.fromtimestamp(until, UTC))


def _heartbeat(run: TableRun, table: str) -> HeartbeatFacts | None:
    """What the ledger of the source's heartbeat table says; None: nothing, also where it can't be read."""
    layout = Layout.of(run.job.roots, replace(run.spec, table=table))
    try:
        newest = Ledger.open(run.runtime.storage, layout.state).state.max_commit_ts
    except GddlError as error:  # a load never fails because of another table
        _LOG.warning("the heartbeat %s can't be read: %s", table, error)
        return None
    return None if newest is None else HeartbeatFacts(commit=datetime.fromisoformat(newest).timestamp())
