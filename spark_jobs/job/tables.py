"""All tables of a JobSpec; a table that fails never stops another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.s3_errors import CODES
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.job.table_job import not_begun, on_spark, run_guarded
from spark_jobs.table.outcome import Declined, TableOutcome
from spark_jobs.table.runtime import Runtime

Show = Callable[[JobResult], None]


def run_job(job: JobSpec, runtime: Runtime, show: Show) -> list[TableOutcome]:
    """Work off every table of the job; `show` gets each result once it is durable.

    Tables of engine `delta_rs` are spread over tasks where the runtime has a spread; the others, and those that this
    engine declines, share a Spark, as many at once as the job has cores.

    The outcomes are in the order of the job's tables.
    """
    done = _Outcomes(show)
    fault = unreachable(job.roots, runtime.storage)
    if fault is not None:
        return [done.add(not_begun(job, spec, fault)) for spec in job.tables]
    left: list[TableSpec | Declined] = list(job.tables)
    if runtime.spread is not None:
        light = [spec for spec in job.tables if spec.size in job.tiers and job.tiers[spec.size].engine == "delta_rs"]
        names = {spec.table for spec in light}
        left = [spec for spec in job.tables if spec.table not in names]
        for found in runtime.spread.run(job, light):
            if isinstance(found, Declined):
                left.append(found)
            else:
                done.add(found)

    def one(item: TableSpec | Declined) -> None:
        done.add(on_spark(job, item, runtime) if isinstance(item, Declined) else run_guarded(job, item, runtime))

    if left:
        specs = tuple(item.spec if isinstance(item, Declined) else item for item in left)
        with ThreadPoolExecutor(threads_of(replace(job, tables=specs)), thread_name_prefix="table") as pool:
            list(pool.map(one, left))
    return [done.by_table[spec.table] for spec in job.tables]


@dataclass
class _Outcomes:
    """Outcomes so far, each shown as it comes."""

    show: Show
    by_table: dict[str, TableOutcome] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: TableOutcome) -> TableOutcome:
        with self._lock:
            self.by_table[outcome.result.table] = outcome
            self.show(outcome.result)
        return outcome


def unreachable(roots: Roots, storage: Storage) -> GddlError | None:
    """Why no table of these roots can be worked on, found before anything is written; null when nothing is known of it.

    A root that may not be listed as a whole is no reason: its parts may be.
    """
    for root in (roots.landing, roots.lake):
        if is_s3(root):
            try:
                storage.exists(root)
            except GddlError as error:
                if error.code in CODES:
                    return error
    return None


def threads_of(job: JobSpec) -> int:
    """Tables at once: a small table leaves most of Spark idle; a large one takes it all."""
    tiers = [job.tiers[t.size] for t in job.tables if t.size in job.tiers]
    if not tiers or any(tier.tables_per_job == 1 for tier in tiers):
        return 1
    return max(1, min(len(tiers), *(tier.cores for tier in tiers)))


def exit_status(outcomes: Sequence[TableOutcome]) -> int:
    """0 all succeeded; 1 some failed; 75 only passing faults."""
    failed = [o for o in outcomes if o.result.status == "failed"]
    if not failed:
        return 0
    return 75 if all(o.retriable for o in failed) else 1
