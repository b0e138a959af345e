"""Seconds of the jobs that read or write a whole table over many tasks: verify, rebuild and reload from files.

    python benchmarks/whole_tables.py [--scale 0.2]

A table of 5,000,000 rows of ten columns that 200,000 changes were merged into; each job by ranges of keys in Arrow
tasks, whose files one commit names, and by Spark's own writes, as for tables that only Spark can write. The replica is
compared with the workload after each; a first verify is not counted. The last line of output is one JSON object.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import this_engine
import truth
import workload
from large_merge import scaled
from measuring import peak_mib, print_figures, say
from workload import Folders

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session import SessionSettings
from spark_jobs.tables import many_tasks

JOBS = {
    "verify": JobOptions(action=Verify()),
    "rebuild": JobOptions(action=Rebuild()),
    "reload": JobOptions(action=Reload(confirmed=True)),
}
WAYS = ("named by one commit", "written by Spark")


@contextmanager
def way(name: str) -> Iterator[None]:
    if name == WAYS[0]:
        yield
        return
    with patch.object(many_tasks, "hides_commits", return_value=True):
        yield


def job_seconds(folders: Folders, side: this_engine.Side, options: JobOptions) -> float:
    """
    Raises:
        JobFailedError: the job failed, or the tables differ.
    """
    job = replace(this_engine.job_of(folders, side), options=options)
    started, shown = time.perf_counter(), []
    run_job(job, Runtime(storage=Storage(), spark=side.spark), shown.append)
    seconds = time.perf_counter() - started
    if shown[0].status != "succeeded" or (shown[0].details or {}).get("verdict", "equal") != "equal":
        raise this_engine.JobFailedError(str(shown[0]))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and changes; 1 is the stated work")
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {name: {} for name in WAYS}
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as root:
        folders = Folders(Path(root))
        work = scaled(5_000_000, 4, 50_000, args.scale, 1)
        workload.write(work, folders)
        spark = LazySpark(SessionSettings(cores=this_engine.TIER.cores, memory=this_engine.TIER.memory))
        side = this_engine.Side(spark, this_engine.TIER)
        job_seconds(folders, side, JobOptions())
        folders.deliver()
        job_seconds(folders, side, JobOptions())
        job_seconds(folders, side, JOBS["verify"])  # what is compiled and imported once is in no figure
        for name in WAYS:
            for job, options in JOBS.items():
                with way(name):
                    found[name][job] = round(job_seconds(folders, side, options), 2)
                this_engine.export(folders, spark)
                rows = truth.check(folders, this_engine.SIDE)
                shutil.rmtree(folders.exported(this_engine.SIDE))
                say(f"{job}, {name}: {found[name][job]} s; {rows:,} rows are right")
        spark.stop()
    print_figures({"rows": work.rows, **found, "peak_mib": round(peak_mib())}, "rows", *JOBS, "peak_mib")


if __name__ == "__main__":
    main()
