"""The program `gddl-job`: argv ─► JobSpec ─► JobResult ─► exit status; `main` calls it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import Run
from airflow_gddl.contract.codes import CONTRACT_VERSION, SPEC_INVALID
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import places_of
from airflow_gddl.contract.packages import leaves_spark_out
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.source_access import announce
from airflow_gddl.contract.spec import JobSpec, size_bytes
from airflow_gddl.stores import Storage
from airflow_gddl.stores.lake_files import try_roots
from airflow_gddl.stores.scratch import scratch
from spark_jobs.batch.runtime import LazySpark, Runtime, SparkLeftOut, print_step, silent
from spark_jobs.continuous.loop import run_continuously
from spark_jobs.discovery import SOURCES
from spark_jobs.job.job_logging import set_up_logging
from spark_jobs.job.job_tables import Show, exit_status, run_job
from spark_jobs.job.run_results import ResultStore
from spark_jobs.job.spread_spark import SparkSpread
from spark_jobs.job.stop import Stop, end_with
from spark_jobs.job.telemetry import MetricsPublisher, publish
from spark_jobs.rooms.catalogs.catalog_port import session_settings
from spark_jobs.spark.application import application_of
from spark_jobs.spark.s3a import s3a_settings
from spark_jobs.spark.session_settings import SessionSettings, is_on_a_cluster
from spark_jobs.spark.tasks import keep_freed_memory, leave_pandas_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(argv: Sequence[str] | None, *, raises: bool = False) -> int:
    """Run the job of the arguments; standard output has one JobResult line per table and nothing else.

    Args:
        argv: None: those of the process.
        raises: raise what `read_spec` and `try_roots` raise; otherwise it is printed, and the exit status is 2, or 75.
    """
    args = _parser().parse_args(argv)
    if args.parent is not None:
        end_with(args.parent)
    if not is_on_a_cluster(os.environ):
        leave_pandas_out()
        keep_freed_memory()
    results = _own_stdout()
    try:
        job = read_spec(args.spec)
        if not job.tables:  # sent by `gddl check`
            try_roots(job, os.environ)
    except GddlError as error:
        if raises:
            raise
        print(error, file=sys.stderr)
        return 75 if isinstance(error, RetriableError) else 2
    return _run(job, args, results)


def _run(job: JobSpec, args: argparse.Namespace, results: TextIO) -> int:
    announce(job.access, os.environ)
    spark, stop = LazySpark(_settings(job, args.verbose, os.environ), opened=_announce), Stop()
    lasts = job.options.continuous is not None and isinstance(job.options.action, Run)
    stopped_by = str if lasts else lambda: stop.why
    left_out, steps = leaves_spark_out(os.environ), args.progress and not is_on_a_cluster(os.environ)
    observe = set_up_logging(job.run_id, os.environ, print_step if args.progress else silent)
    files = SOURCES[args.discovery].having(dict(args.stream_option)) if args.discovery in SOURCES else None
    runtime = Runtime(
        storage=Storage(),
        spark=SparkLeftOut() if left_out else spark,
        observe=observe,
        spread=None if left_out else SparkSpread(spark, Storage(), steps=steps, stopped_by=stopped_by, observe=observe),
        files=files,
        stopped_by=stopped_by,
    )
    show = _printer(results, ResultStore.of(job, runtime.storage) if args.results else None)
    try:
        if lasts:
            return _keep(job, runtime, show, stop)
        stop.listen(signal.SIGTERM)
        stop.then(spark.cancel)
        outcomes = run_job(job, runtime, show)
    finally:
        spark.stop()
        _leave_class_archive(spark)
    publish(job, [outcome.result for outcome in outcomes], time.time())
    status = exit_status(outcomes)
    return 128 + signal.SIGTERM if status and stop.is_asked else status


def _leave_class_archive(spark: LazySpark) -> None:
    """Have the archive of Java classes written, with which the next job starts Spark sooner."""
    settings = spark.settings
    if not spark.was_started_here or not settings.ship_delta:
        return
    from spark_jobs.spark import class_archive, session  # noqa: PLC0415 - Spark is imported already

    with suppress(GddlError), scratch("archive") as folder:  # the JARs were there when Spark started
        class_archive.write_later(session.class_path_of(settings, folder), os.environ, s3a=settings.s3)


def _keep(job: JobSpec, runtime: Runtime, show: Show, stop: Stop) -> int:
    """A continuous job; publishes metrics while it runs."""
    figures = MetricsPublisher(job, time.time)
    stop.listen(signal.SIGTERM, signal.SIGINT)

    def report(result: JobResult) -> None:
        show(result)
        figures.take(result)

    try:
        return exit_status(run_continuously(job, runtime, report, stop))
    except GddlError as error:
        print(error, file=sys.stderr)
        return 75 if isinstance(error, RetriableError) else 1
    finally:
        figures.flush()


def read_spec(text: str) -> JobSpec:
    """A JobSpec from JSON, or from a file or object (`s3://`) that holds it.

    Raises:
        FatalError: `SPEC_INVALID`, `CONTRACT_VERSION`.
    """
    if not text.lstrip().startswith("{"):
        try:
            text = (Storage().read(text) if "://" in text else Path(text).read_bytes()).decode()
        except (OSError, ValueError) as error:
            raise FatalError(
                SPEC_INVALID, f"the JobSpec can't be read: {error}", remedy="give JSON, a file or an s3:// URL"
            ) from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise FatalError(SPEC_INVALID, f"not JSON: {error}", remedy="build the spec from the metadata") from error
    version = data.get("contract_version", JobSpec.contract_version) if isinstance(data, dict) else None
    if version != JobSpec.contract_version:
        raise FatalError(
            CONTRACT_VERSION,
            f"the spec has contract version {version}, this job {JobSpec.contract_version}",
            remedy="install the same airflow-gddl on both sides",
        )
    return codec.decode(JobSpec, data)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gddl-job", description="Run one JobSpec.")
    parser.add_argument("--spec", required=True, help="a JobSpec as JSON, or a file or s3:// URL that holds it")
    parser.add_argument("--results", action="store_true", help="also write results to the lake, below _gddl/results")
    parser.add_argument(
        "--discovery",
        choices=("listing", *SOURCES),
        default="listing",
        help="how tables with tasks: many discover new files: by listing, or by a Spark stream",
    )
    parser.add_argument(
        "--stream-option",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of that stream",
    )
    parser.add_argument("--progress", action="store_true", help="print each step on standard error")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process, which started the job, ends")
    parser.add_argument("--verbose", action="store_true", help="print Spark's log")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _own_stdout() -> TextIO:
    """Reserve standard output for results: all other output, also of the JVM, goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _settings(job: JobSpec, verbose: bool, environ: Mapping[str, str]) -> SessionSettings:
    # Roots with credentials of their own are read by Arrow alone.
    apart = {access.landing for access in job.access}
    s3a = s3a_settings(environ, [root for root in places_of(job) if root not in apart])
    cluster = SessionSettings(
        verbose=verbose,
        s3=bool(s3a),
        extra={**s3a, **session_settings(job)},
        start_seconds=float(seconds(environ.get("GDDL_SPARK_START_TIMEOUT", "10m"))),
        ship_delta=environ.get("GDDL_SPARK_DELTA", "ship") == "ship",
    )
    tiers = [job.tiers[t.size] for t in job.tables if t.size in job.tiers]
    if not tiers:
        return cluster
    largest = max(tiers, key=lambda tier: size_bytes(tier.memory))
    brief = all(tier.tables_per_job > 1 for tier in tiers)
    return replace(
        cluster,
        cores=max(t.cores for t in tiers),
        memory=largest.memory,
        # Address space of a Python process: three copies of the largest content, and 4 GiB for libraries.
        worker_memory=max(max(size_bytes(t.task_memory), 3 * t.inflated_bytes) for t in tiers) + 4 * 1024**3,
        brief=brief,
        lasting=job.options.continuous is not None,
        single=len(job.tables) == 1,
    )


def _announce(session: SparkSession) -> None:
    """Print the id of Spark's application, for the job's log."""
    if application := application_of(session):
        print(f"GDDL-APPLICATION {application}", file=sys.stderr, flush=True)


def _printer(out: TextIO, answers: ResultStore | None) -> Show:
    def show(result: JobResult) -> None:
        print(codec.to_json(result), file=out, flush=True)
        if answers is not None:
            answers.put(result)

    return show
