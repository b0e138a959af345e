"""The checks by name, with the code and the remedy of their failure, and the reasons for which one is not tried.

Pure: what a check does is in the modules `*_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.errors import GddlError, documented

State = Literal["PASS", "FAIL", "NOT TRIED"]
Origin = Literal["here", "worker", "triggerer", "dag processor"]
Row = tuple[str | None, ...]
"""A row that an engine of a platform gives, as text."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check.

    Attributes:
        code: of its failure, listed in docs/codes.md.
        what: what holds where it passes.
    """

    code: str
    what: str
    remedy: str


def _check(what: str, *, failure_code: str, remedy: str) -> Check:
    return Check(code=failure_code, what=what, remedy=remedy)


_CONDITIONS = "use a store with conditional puts (If-None-Match, If-Match), such as Amazon S3, or update this one"
_CONSISTENCY = "use a store whose reads and listings show each finished write, as Amazon S3's do"

CHECKS: Mapping[str, Check] = {
    "storage.write": _check(
        "an object can be written, read, copied and deleted",
        failure_code="PLATFORM_NOT_WRITABLE",
        remedy=f"grant the role of this process what {documented('permissions.md')} lists for the lake",
    ),
    "storage.landing": _check(
        "each landing root can be listed",
        failure_code="PLATFORM_LANDING_UNREADABLE",
        remedy=f"grant the role of this process what {documented('permissions.md')} lists for landing roots",
    ),
    "storage.create": _check(
        "a put if absent replaces nothing",
        failure_code="PLATFORM_CREATE_REPLACES",
        remedy=_CONDITIONS,
    ),
    "storage.swap": _check(
        "a put on the condition of a tag replaces only the object of that tag",
        failure_code="PLATFORM_SWAP_REPLACES",
        remedy=_CONDITIONS,
    ),
    "storage.lost_answer": _check(
        "a put that is repeated since its answer was lost is known to be done",
        failure_code="PLATFORM_ANSWER_UNKNOWN",
        remedy=_CONSISTENCY,
    ),
    "storage.claims": _check(
        "of processes that claim the same at once one gets it",
        failure_code="PLATFORM_TWO_CLAIMS",
        remedy=_CONDITIONS,
    ),
    "storage.updates": _check(
        "of changes made to one object at once none is lost",
        failure_code="PLATFORM_UPDATE_LOST",
        remedy=_CONDITIONS,
    ),
    "storage.fresh": _check(
        "a listing shows what was written or deleted just before",
        failure_code="PLATFORM_LISTING_STALE",
        remedy=_CONSISTENCY,
    ),
    "storage.listing": _check(
        "a listing of more than a thousand objects is complete and in order, and they are deleted together",
        failure_code="PLATFORM_LISTING_INCOMPLETE",
        remedy=_CONSISTENCY,
    ),
    "storage.denied": _check(
        "who has no right is refused, with a code that says so",
        failure_code="PLATFORM_DENIAL_IGNORED",
        remedy="close the bucket or folder to others; if it is closed, report the answer that the message shows",
    ),
    "job.load": _check(
        "the runner starts a job, follows it to its end, and every table has a result",
        failure_code="PLATFORM_JOB_FAILED",
        remedy="see the code and the log that the message names, and `gddl check` without --platform",
    ),
    "job.once": _check(
        "of two submissions with one token one run is started",
        failure_code="PLATFORM_JOB_TWICE",
        remedy="report it with the version of the platform: a lost answer would start a job twice",
    ),
    "job.cancel": _check(
        "a job that is cancelled ends, and says so",
        failure_code="PLATFORM_JOB_NOT_CANCELLED",
        remedy="grant the right to stop runs; end the run by hand",
    ),
    "job.killed": _check(
        "a job that was killed fails its tables with a code that says so",
        failure_code="PLATFORM_KILL_UNNOTICED",
        remedy="report it with the runner's settings",
    ),
    "job.resume": _check(
        "the job after a stopped one does what was left",
        failure_code="PLATFORM_JOB_NOT_RESUMED",
        remedy="see the code that the message names",
    ),
    "tables.verify": _check(
        "a job finds each replica equal to its change table",
        failure_code="PLATFORM_TABLES_INCONSISTENT",
        remedy="see the message; where rows differ, report it: no platform may lead to that",
    ),
    "tables.rows": _check(
        "a reader other than the job finds the source's rows, each of them",
        failure_code="PLATFORM_ROWS_DIFFER",
        remedy="see the message; where rows differ, report it: no platform may lead to that",
    ),
    "tables.spark": _check(
        "the platform's own Spark merges into a table, which then has the source's rows",
        failure_code="PLATFORM_SPARK_DIFFERS",
        remedy=f"see {documented('platforms/tested.md')} for the versions of Spark and Delta that fit",
    ),
    "tables.athena": _check(
        "Athena finds the source's rows in a table of the catalog",
        failure_code="PLATFORM_ATHENA_DIFFERS",
        remedy="see the message; Athena needs the right to read the lake, and a place for results",
    ),
    "tables.databricks_sql": _check(
        "a SQL warehouse of Databricks finds the source's rows in a table of the catalog",
        failure_code="PLATFORM_DATABRICKS_SQL_DIFFERS",
        remedy="see the message; the warehouse needs an external location for the lake, its user the right to select",
    ),
    "catalog.answer": _check(
        "each catalog answers, and takes the credentials",
        failure_code="PLATFORM_CATALOG_SILENT",
        remedy=f"see the code that the message names, and {documented('catalogs.md')}",
    ),
    "catalog.register": _check(
        "jobs register a table in a catalog of each kind, and each catalog has it",
        failure_code="PLATFORM_NOT_REGISTERED",
        remedy=f"see the code that the message names, and {documented('catalogs.md')}",
    ),
    "airflow.triggerer": _check(
        "the triggerer makes the checks of storage",
        failure_code="PLATFORM_TRIGGERER_SILENT",
        remedy="see the log of the task `triggerer`; the triggerer needs the package and the credentials of workers",
    ),
    "airflow.dag_processor": _check(
        "the DAG processor makes the checks of storage",
        failure_code="PLATFORM_PROCESSOR_SILENT",
        remedy="see the log of the DAG processor; it needs the package and the credentials of workers",
    ),
    "cleanup": _check(
        "everything that the check made is removed",
        failure_code="PLATFORM_NOT_REMOVED",
        remedy="grant the right to delete, and remove the folder that the message names",
    ),
}
"""In the order in which they are shown."""

STORAGE = tuple(name for name in CHECKS if name.startswith("storage."))

REASONS: Mapping[str, str] = {
    "all-rights": "this user may read everything",
    "ended": "the job had ended before it could be stopped",
    "failed": "a check that it needs did not pass",
    "job-here": "jobs are processes of this machine, which has no tokens",
    "no-airflow": "only a DAG can try it: --dag FILE writes one",
    "no-catalog": "the metadata names no catalog",
    "no-glue": "the metadata names no catalog in this account's Glue (without `catalog_id`), or the lake is not in S3",
    "no-java": "no Java was found for jobs on this machine",
    "no-package": "a package that it needs is not installed here",
    "no-warehouse": "no SQL warehouse runs; name one in DATABRICKS_WAREHOUSE_ID, which is then started at its price",
    "no-workspace": "the metadata names no catalog of the kind unity, or no Databricks workspace at its address",
    "not-from-here": "it can't be tried from here",
    "registration": "nothing here could remove its entries again; try `gddl catalog sync` with a table of your own",
    "stopped": "the check was stopped",
    "time": "the time limit was reached",
}
"""Why a check was not tried, by name. The names and texts are all that a report says of it."""


class NotTriedError(Exception):
    """A check can't be made.

    Args:
        reason: one of `REASONS`.
        detail: for the screen alone; empty: nothing more is known.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def unended(what: str, *, seconds_left: float, most: float) -> NotTriedError | FoundError:
    """What to raise of a query that did not end in so many seconds, or before the check is to end."""
    if seconds_left < most:
        return NotTriedError("time")
    return FoundError(f"the {what} did not end in {most:.0f} seconds")


class FoundError(Exception):
    """A check fails; the text says what was found instead.

    Args:
        cause: code of the error that was met; empty: none.
    """

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a check.

    Attributes:
        check: its name in `CHECKS`.
        origin: where it was made.
        finding: for the screen alone, since it may hold names; empty where it was not tried.
        cause: code of the error that it met; empty: none, or it has no code.
        reason: one of `REASONS`; empty where it was tried.
        seconds: how long it took.
    """

    check: str
    state: State
    origin: Origin = "here"
    finding: str = ""
    cause: str = ""
    reason: str = ""
    seconds: float = 0.0

    @property
    def code(self) -> str:
        """Code of the failure; empty where it did not fail."""
        return CHECKS[self.check].code if self.state == "FAIL" else ""

    @property
    def line(self) -> str:
        """What a person is told of a check that did not pass."""
        place = "" if self.origin == "here" else f" ({self.origin})"
        if self.state == "FAIL":
            return f"{self.check}{place}: [{self.code}] {self.finding}. Remedy: {CHECKS[self.check].remedy}"
        why = REASONS.get(self.reason, self.reason)
        return f"{self.check}{place}: {why}{f' ({self.finding})' if self.finding else ''}"


def not_tried(check: str, reason: str, origin: Origin = "here") -> Outcome:
    return Outcome(check=check, state="NOT TRIED", origin=origin, reason=reason)


def failed(check: str, error: Exception, *, origin: Origin, seconds: float) -> Outcome:
    """The outcome of a check that raised this error."""
    cause = error.code if isinstance(error, GddlError) else getattr(error, "cause", "UNEXPECTED")
    said = f"{type(error).__name__}: {error}" if cause == "UNEXPECTED" else str(error)
    return Outcome(check=check, state="FAIL", origin=origin, finding=said.rstrip("."), cause=cause, seconds=seconds)
