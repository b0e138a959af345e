"""Small tables over the executors of a Spark cluster: a row a table, `mapInArrow`, the longest first.

Every result is put below `lake/_gddl/jobs/<run_id>/` when its table is done, where the driver finds it while the Spark
job goes on. A task that comes late to a table of its own job (speculative, or after an executor was lost) answers with
that result, or waits for the claim to end: of one table no two tasks work.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_gddl.contract import codec
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.job.runtime import Runtime, SparkSource
from spark_jobs.job.table_job import Declined, TableOutcome, attempt, look_at, totals_of
from spark_jobs.job.task_results import Found, TaskResultStore, from_bytes, to_bytes
from spark_jobs.job.worker import NoSpark
from spark_jobs.ledger.claim import TTL_SECONDS
from spark_jobs.spark.cluster_check import check_executors
from spark_jobs.storage.objects import Storage
from spark_jobs.table.run import TableRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 1.0
_WAVES = 8
"""Tasks for each slot: enough that a long one doesn't leave the others idle, few enough that starting them is cheap."""
_BUSY = "TABLE_BUSY"


@dataclass(frozen=True)
class ClusterSpread:
    """See `Spread`; `spark` is asked for a session when there is something to spread."""

    spark: SparkSource
    storage: Storage

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[Found]:
        """Each table's outcome as soon as the driver sees it; tables that this engine can't take come as declined."""
        bare = replace(job, tables=())
        runtime = Runtime(storage=self.storage, spark=NoSpark())
        costs: dict[str, int] = {}
        for spec in specs:
            looked = self._looked(TableRun(job=bare, spec=spec, runtime=runtime))
            if isinstance(looked, int):
                costs[spec.table] = looked
            else:
                yield looked
        waiting = sorted((s for s in specs if s.table in costs), key=lambda s: -costs[s.table])
        if waiting:
            yield from self._spread(bare, waiting, costs)

    def _looked(self, run: TableRun) -> Found | int:
        """Idle tables cost the driver a listing, and Spark nothing."""
        options = run.job.options
        return look_at(run) if options.action == "run" and not options.full_refresh else 0

    def _spread(self, job: JobSpec, specs: Sequence[TableSpec], costs: dict[str, int]) -> Iterator[Found]:
        try:
            session = self.spark.for_table()
            check_executors(session, _slots(session))
        except GddlError as error:
            yield from (_refused(job, spec, error) for spec in specs)
            return
        result_store = TaskResultStore.of(job, self.storage)
        left = {spec.table: spec for spec in specs}
        with ThreadPoolExecutor(1, thread_name_prefix="spread") as pool:
            running = pool.submit(_run_tasks, session, job, _dealt(specs, costs, _slots(session)))
            while not running.done():
                time.sleep(_POLL_SECONDS)
                yield from _taken(result_store.all(left.values()), left)
        yield from _taken(running.result(), left)
        result_store.clear()


def _refused(job: JobSpec, spec: TableSpec, error: GddlError) -> TableOutcome:
    """Of a table that nothing was done to, because the cluster is not fit for it."""
    info = ErrorInfo(code=error.code, message=str(error))
    result = JobResult(table=spec.table, status="failed", engine="delta_rs", run_id=job.run_id, error=info)
    return TableOutcome(result, passing=isinstance(error, RetriableError))


def _taken(found: Sequence[Found], left: dict[str, TableSpec]) -> Iterator[Found]:
    """Those that have not been given yet."""
    for item in found:
        if left.pop(item.spec.table if isinstance(item, Declined) else item.result.table, None) is not None:
            yield item


def _slots(session: SparkSession) -> int:
    """Tasks that can run at once, as far as the session tells; 4 where it doesn't (Spark Connect)."""
    # Asked for, though executors may still be on their way.
    asked = [int(session.conf.get("spark.cores.max", "0") or 0)]
    executors, cores = session.conf.get("spark.executor.instances", "0"), session.conf.get("spark.executor.cores", "1")
    asked.append(int(executors or 0) * int(cores or 1))
    try:
        return max(1, int(session.sparkContext.defaultParallelism), *asked)
    except Exception:  # noqa: BLE001 - Connect raises what it likes for what it lacks
        return max(4, *asked)


@dataclass(frozen=True)
class _Shares:
    """The tables of each task."""

    tasks: tuple[tuple[TableSpec, ...], ...]


def _dealt(specs: Sequence[TableSpec], costs: dict[str, int], slots: int) -> _Shares:
    """Tables into tasks of about equal cost, the longest in the first ones.

    Args:
        specs: the costly ones first.
    """
    bins: list[list[TableSpec]] = [[] for _ in range(min(len(specs), slots * _WAVES))]
    load = [0] * len(bins)
    for spec in specs:
        least = load.index(min(load))
        bins[least].append(spec)
        load[least] += costs[spec.table] + 1
    return _Shares(tuple(tuple(share) for share in bins))


def _run_tasks(session: SparkSession, job: JobSpec, shares: _Shares) -> list[Found]:
    """A row a task, the number of its tables among all. Each task is sent all; being alike, they take few bytes."""
    dealt, tasks = zlib.compress(codec.to_json(shares).encode()), len(shares.tasks)
    rows = session.range(0, tasks, 1, tasks).mapInArrow(_task(job, dealt), "found binary").collect()
    specs = {spec.table: spec for share in shares.tasks for spec in share}
    return [found.found(specs[found.table]) for found in (from_bytes(bytes(row["found"])) for row in rows)]


def _task(job: JobSpec, dealt: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares = codec.from_json(_Shares, zlib.decompress(dealt).decode())
        for batch in batches:
            for slot in batch.column("id").to_pylist():
                for spec in shares.tasks[slot]:
                    yield pa.RecordBatch.from_pydict({"found": [to_bytes(once(job, spec))]})

    return work


def once(job: JobSpec, spec: TableSpec) -> Found:
    """Run a table in a task, unless another task of this job has done so or is at it; then its result."""
    storage = Storage()
    result_store = TaskResultStore.of(job, storage)
    run = TableRun(job=job, spec=spec, runtime=Runtime(storage=storage, spark=NoSpark()))
    deadline: float | None = None
    while True:
        known = result_store.get(spec)
        if known is not None:
            return known
        found = attempt(run, totals_of(job))
        mine: Any = isinstance(found, TableOutcome) and found.result.error
        if not mine or mine.code != _BUSY or repr(job.run_id) not in mine.message:
            # A task of this job that held the claim while this one waited has left nothing to do, and its result.
            known = result_store.get(spec)
            if known is None:
                result_store.put(found)
            return known or found
        # A task of this job holds the table: it ends and leaves its result, or is dead and its claim expires.
        deadline = deadline or time.monotonic() + 2 * TTL_SECONDS + seconds(job.tiers[spec.size].delta_rs_timeout)
        if time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)
