"""For each check, a fault with which it fails. A check that is not here is refused (`test_each_check_fails.py`)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from airflow_gddl.contract.python_command import JOB
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.checks import Outcome
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.stores import Storage
from tests.harness.s3_server import Bucket, serving
from tests.platform_check import aws_services, catalogs
from tests.platform_check import broken_stores as stores
from tests.platform_check.ground import Ground, outcomes
from tests.platform_check.platforms import ForgetfulGlue, on_glue

LOCAL, S3, ANY = ("local",), ("s3",), ("local", "s3")
FAKE_JOB = Path(__file__).parents[1] / "commands" / "fake_job.py"
PROGRESS = [{"table": "nyc.airlines", "step": "discover"}]


@dataclass(frozen=True)
class Fault:
    """Attributes:
    make: gives the outcome of the check on a ground.
    grounds: where it is made.
    """

    make: Callable[[Ground], Outcome]
    grounds: tuple[str, ...] = LOCAL


def of_store(check: str, kind: type[Storage]) -> Fault:
    def make(ground: Ground) -> Outcome:
        return outcomes(ground.context(store=kind(ground.cli.environ)), check)[check]

    return Fault(make, ANY)


def without_landing(ground: Ground) -> Outcome:
    made = ground.context()
    Path(ground.landing).rmdir()
    return outcomes(made, "storage.landing")["storage.landing"]


def in_open_bucket(ground: Ground) -> Outcome:
    """A server that asks nobody who they are."""
    with serving(Bucket()) as url:
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
        there = replace(ground, store="s3://bucket", environ={"AWS_ENDPOINT_URL": url, **keys})
        return outcomes(there.context(), "storage.denied")["storage.denied"]


def with_job(ground: Ground, *command: str, **variables: str) -> CheckContext:
    """A context whose jobs are another program."""
    cli = replace(ground.cli, job_command=command)
    return ground.context(cli=replace(cli, environ={**cli.environ, **variables}))


def with_fake_job(ground: Ground, check: str, **orders: Any) -> Outcome:
    made = with_job(ground, sys.executable, "-P", str(FAKE_JOB), FAKE_JOB=json.dumps(orders))
    return outcomes(made, check)[check]


def job_that_does_nothing(ground: Ground) -> Outcome:
    return outcomes(with_job(ground, sys.executable, "-c", "pass"), "job.load")["job.load"]


def job_that_starts_once(ground: Ground, check: str) -> Outcome:
    """The jobs after the first one end at once."""
    mark, program = ground.root / "started", ground.root / "once.py"
    program.write_text(
        f"import os, sys, pathlib\nmark = pathlib.Path({str(mark)!r})\nif mark.exists(): sys.exit(3)\nmark.touch()\n"
        f"os.execv({JOB[0]!r}, [*{list(JOB)!r}, *sys.argv[1:]])\n"
    )
    return outcomes(with_job(ground, sys.executable, "-P", str(program)), "job.load", check)[check]


def job_that_ends_otherwise(ground: Ground) -> Outcome:
    """It is asked to stop, and its tables fail with another code."""
    return with_fake_job(ground, "job.cancel", progress=PROGRESS, on_term="answer", sleep=60)


def job_of_another_result(ground: Ground) -> Outcome:
    """Tables fail with a code of their own before the job is killed."""
    failure = {"status": "failed", "error": {"code": "OTHER", "message": "before it was killed"}}
    orders = {"results": {"nyc.airlines": failure}, "sleep": 60}
    program = ground.root / "told.py"
    program.write_text(
        "import json, sys, threading, time, runpy\n"
        f"sys.argv[0] = {str(FAKE_JOB)!r}\n"
        f"line = 'GDDL-PROGRESS ' + json.dumps({PROGRESS[0]!r})\n"
        "threading.Timer(0.5, lambda: print(line, file=sys.stderr, flush=True)).start()\n"
        f"runpy.run_path({str(FAKE_JOB)!r}, run_name='__main__')\n"
    )
    made = with_job(ground, sys.executable, "-P", str(program), FAKE_JOB=json.dumps(orders))
    return outcomes(made, "job.killed")["job.killed"]


def two_runs(ground: Ground) -> Outcome:
    """Of two requests with one token the service knows neither."""
    with on_glue(ground, ForgetfulGlue) as made:
        return outcomes(made, "job.once")["job.once"]


def with_a_row_removed(ground: Ground, check: str) -> Outcome:
    """Somebody else deletes a row of a replica after it was loaded."""
    made, taken = ground.context(), []

    def take(one: Outcome) -> None:
        taken.append(one)
        if one.check == "job.load":
            assert one.state == "PASS", one
            replica = DeltaTable(made.place.below("lake", "nyc", "airlines"))
            assert replica.delete("carrier = 'AA'")["num_deleted_rows"] == 1

    course.everything(made, take, ("job.load", check))
    return next(one for one in taken if one.check == check)


def closed_catalog(ground: Ground) -> Outcome:
    catalog = {"kind": "unity", "url": "http://127.0.0.1:1", "catalog_name": "c", "token_env": None}
    there = replace(ground, settings={"catalogs": {"main": catalog}})
    return outcomes(there.context(), "catalog.answer")["catalog.answer"]


def at_glue(check: str, **faults: Any) -> Fault:
    """The stand-in of Glue and Athena has these faults."""

    def make(ground: Ground) -> Outcome:
        with aws_services.serving(ground.environ) as services:
            for name, value in faults.items():
                setattr(services, name, value)
            catalog = {"kind": "glue", "region": "us-east-1", "endpoint": services.url}
            environ = {**ground.environ, "AWS_ENDPOINT_URL_ATHENA": services.url}
            there = replace(ground, environ=environ, settings={"catalogs": {"main": catalog}})
            return outcomes(there.context(), "catalog.register", check)[check]

    return Fault(make, S3)


def warehouse_that_loses_a_row(ground: Ground) -> Outcome:
    with catalogs.in_workspace(ground, one="RUNNING") as (made, sql):
        read = sql.read
        sql.read = lambda *names: read(*names)[1:]
        return outcomes(made, "catalog.register", "tables.databricks_sql")["tables.databricks_sql"]


def silent(task: str) -> Outcome:
    from airflow_gddl.platform_check.dag import of_task  # noqa: PLC0415 - needs Airflow

    (one,) = of_task(task, None)
    return one


def no_deletes(ground: Ground) -> Outcome:
    with serving(Bucket()) as url:
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
        there = replace(ground, store="s3://bucket", environ={"AWS_ENDPOINT_URL": url, **keys})
        made = there.context(store=stores.NoDeletes({**os.environ, **there.environ}))
        return outcomes(made, "storage.write")["cleanup"]


FAULTS: Mapping[str, Fault] = {
    "storage.write": of_store("storage.write", stores.OldReads),
    "storage.landing": Fault(without_landing),
    "storage.create": of_store("storage.create", stores.NoIfNoneMatch),
    "storage.swap": of_store("storage.swap", stores.NoIfMatch),
    "storage.lost_answer": of_store("storage.lost_answer", stores.LateReads),
    "storage.claims": of_store("storage.claims", stores.LooksThenCreates),
    "storage.updates": of_store("storage.updates", stores.LooksThenSwaps),
    "storage.fresh": of_store("storage.fresh", stores.LateListings),
    "storage.listing": of_store("storage.listing", stores.OnePage),
    "storage.denied": Fault(in_open_bucket),
    "job.load": Fault(job_that_does_nothing),
    "job.once": Fault(two_runs),
    "job.cancel": Fault(job_that_ends_otherwise),
    "job.killed": Fault(job_of_another_result),
    "job.resume": Fault(lambda ground: job_that_starts_once(ground, "job.resume")),
    "tables.verify": Fault(lambda ground: with_a_row_removed(ground, "tables.verify")),
    "tables.rows": Fault(lambda ground: with_a_row_removed(ground, "tables.rows")),
    "tables.spark": Fault(lambda ground: job_that_starts_once(ground, "tables.spark")),
    "tables.athena": at_glue("tables.athena", loses=True),
    "tables.databricks_sql": Fault(warehouse_that_loses_a_row),
    "catalog.answer": Fault(closed_catalog),
    "catalog.register": at_glue("catalog.register", forgets=True),
    "airflow.triggerer": Fault(lambda _: silent("triggerer")),
    "airflow.dag_processor": Fault(lambda _: silent("dag_processor")),
    "cleanup": Fault(no_deletes),
}
