"""Context of the commands: environment, clock, ids, the job's command and the terminal."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import typer

from airflow_gddl.cli import airflow_home
from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.codes import SETUP
from airflow_gddl.contract.connections import LENT, is_lent
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.runners.interface import JobOutcome

OK = 0
FAILED = 1
BAD_METADATA = 2
RETRY = 75


def of_outcome(outcome: JobOutcome, *, bad_rows: bool) -> int:
    """By precedence: failed tables, invalid metadata, transient errors; 128 plus the signal's number after a signal."""
    failed = [result for result in outcome.results if result.status == "failed"]
    if failed and outcome.cancelled_by is not None:
        return 128 + outcome.cancelled_by
    if failed and all(result.error is not None and result.error.code in SETUP for result in failed):
        return BAD_METADATA
    if failed and outcome.exit_status not in (BAD_METADATA, RETRY):
        return FAILED
    if bad_rows:
        return BAD_METADATA
    return outcome.exit_status if outcome.exit_status in (OK, BAD_METADATA, RETRY) else FAILED


def of_error(error: GddlError) -> int:
    """Status of an error outside a table's run, which changed nothing: the caller must fix it, or retry."""
    if isinstance(error, RetriableError):
        return RETRY
    return BAD_METADATA if isinstance(error, FatalError) else FAILED


@dataclass(frozen=True, kw_only=True)
class CliContext:
    """Passed to every command.

    Attributes:
        environ: environment of the command and of the jobs it starts.
        now: the time, with zone.
        new_id: a fresh random suffix for a run id.
        job_command: program and first arguments of the embedded job.
    """

    environ: Mapping[str, str]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    job_command: tuple[str, ...]
    screen: Screen = field(default_factory=Screen)

    def lending(self, connection: str) -> CliContext:
        """A copy for a job that may use this connection: a user who names it on the command line already has its
        secret."""
        if not connection or is_lent(connection, self.environ):
            return self
        listed = ",".join(filter(None, (self.environ.get(LENT), connection)))
        return replace(self, environ={**self.environ, LENT: listed})

    def apart(self, **variables: str) -> CliContext:
        """A copy without this package's variables, which may name another lake, but with these."""
        kept = {name: value for name, value in self.environ.items() if not name.startswith("GDDL_")}
        return replace(self, environ={**kept, **variables})

    def run_id(self) -> str:
        """A unique id that sorts by time."""
        return f"{self.now():%Y%m%dT%H%M%S}-{self.new_id()}"


def real() -> CliContext:
    """The context of this process."""
    return CliContext(
        environ=os.environ,
        now=lambda: datetime.now(UTC),
        new_id=lambda: secrets.token_hex(4),
        job_command=airflow_home.job_command(os.environ),
    )


def user_name() -> str:
    """The user of this process, for records of decisions; a container's may be a number alone."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def of(ctx: typer.Context) -> CliContext:
    """The context that the command was started with."""
    cli = ctx.find_object(CliContext)
    if cli is None:
        raise LookupError("the command was started without a CliContext")
    return cli
