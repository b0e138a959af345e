"""Who runs the tables of a job that goes on, where they are neither processes of this machine nor Spark's threads."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.continuous.loop import Loop, TableThreads
from spark_jobs.job.stop import Stop

SPECS = [TableSpec(table=f"s.t{n:02d}", keys=("id",)) for n in range(20)]
JOB = JobSpec(run_id="r", roots=Roots(landing="/l", lake="/k"), tables=tuple(SPECS))


@dataclass
class Cluster:
    """A spread whose tables wait for a word. Like that of a cluster it tidies up after the last outcome of a run."""

    go: threading.Event = field(default_factory=threading.Event)
    tidied: list[str] = field(default_factory=list)
    broken: frozenset[str] = frozenset()

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TableOutcome]:  # noqa: ARG002 - the protocol
        self.go.wait(30)
        for spec in specs:
            if spec.table in self.broken:
                raise RetriableError("NO_EXECUTORS", "none came")
            yield TableOutcome(JobResult(table=spec.table, status="succeeded"))
        self.tidied += [spec.table for spec in specs]


def hands_of(cluster: Cluster, stop: Stop) -> TableThreads:
    runtime = Runtime(storage=Storage(), spark=NoSpark(), spread=cluster)
    return TableThreads(JOB, runtime, stop.wake)


def all_of(threads: TableThreads, stop: Stop) -> dict[str, JobResult]:
    found: dict[str, JobResult] = {}
    while threads.is_busy:
        stop.wait(0.1)
        found |= {one.result.table: one.result for one in threads.finished()}
    return found


def test_each_table_has_an_outcome_and_files_are_removed() -> None:
    cluster, stop = Cluster(broken=frozenset({"s.t07"})), Stop()
    threads = hands_of(cluster, stop)
    cluster.go.set()
    threads.start(SPECS)
    found = all_of(threads, stop)
    assert {table for table, result in found.items() if result.status == "succeeded"} == set(cluster.tidied)
    failed = [result for result in found.values() if result.status == "failed"]
    assert [(result.table, result.error.code if result.error else "") for result in failed] == [
        ("s.t07", "NO_EXECUTORS")
    ]
    assert len(found) == len(SPECS)


def test_pending_tables_can_be_dropped() -> None:
    cluster, stop = Cluster(), Stop()
    threads = hands_of(cluster, stop)
    threads.start(SPECS)
    dropped = threads.drop()
    assert threads.is_busy
    cluster.go.set()
    found = all_of(threads, stop)
    assert 0 < len(found) < len(SPECS)
    assert sorted(found) == sorted(cluster.tidied)
    assert sorted([*found, *dropped]) == [spec.table for spec in SPECS]


@dataclass
class Asked:
    """`Streams` without news, which counts how often it is asked."""

    times: int = 0

    def follow(self, specs: Sequence[TableSpec]) -> None: ...

    def news(self) -> Collection[str]:
        self.times += 1
        return ()

    def close(self) -> None: ...


def test_cluster_job_does_not_block_its_driver() -> None:
    cluster, stop, asked = Cluster(), Stop(), Asked()
    threading.Timer(1.0, lambda: stop.ask("enough")).start()
    threading.Timer(1.2, cluster.go.set).start()
    runtime = Runtime(storage=Storage(), spark=NoSpark(), spread=cluster)
    reported: list[JobResult] = []
    loop = Loop(JOB, runtime, reported.append, stop, streams=lambda *_: asked)
    outcomes = loop.run()
    assert len(outcomes) == len(reported) > 0
    assert asked.times < 20
