"""`gddl check --platform`: the order of the checks, what they show, and the file of their results."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from airflow_gddl.cli import context
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.codes import PATH_UNUSABLE
from airflow_gddl.contract.errors import MetadataError, documented
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.source_access import announced
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.runners.child import Stopped, stoppable, unstoppable
from airflow_gddl.stores import open_store
from airflow_gddl.tools.platform_check import job_checks, storage_checks
from airflow_gddl.tools.platform_check.checks import (
    CHECKS,
    CheckContext,
    FoundError,
    NotTriedError,
    Outcome,
    failed,
    not_tried,
)
from airflow_gddl.tools.platform_check.job_checks import JobChecks
from airflow_gddl.tools.platform_check.report import is_report, report, text

FOLDER = "_gddl_check"
"""Folder of the lake with those of checks."""
REPORT, MINUTES = "it-runs-on.json", 30.0
_NEEDED = ("storage.put", "job.load")
"""Checks without which those after them say nothing."""
_STYLES = {"PASS": "dim", "FAIL": "bold red", "NOT TRIED": "dim"}
Taken = Callable[[Outcome], None]


def check_platform(cli: CliContext, metadata: str, *, minutes: float | None, file: str, as_json: bool) -> int:
    """Make the checks; return the exit status.

    Args:
        minutes: the time limit; None: `MINUTES`.
        file: of the results, to be published; empty: `REPORT`.

    Raises:
        GddlError: the metadata can't be read, or the file not be written; nothing was made.
    """
    minutes = minutes or MINUTES
    made = context_of(cli, metadata_folder.read(cli, metadata), minutes)
    path = Path(file or REPORT)
    _require_report(path)
    runner = made.loaded.runner
    cli.screen.warn(f"making the checks in {made.root}, and removing it; at most {minutes:g} minutes, jobs of {runner}")
    outcomes: list[Outcome] = []

    def take(one: Outcome) -> None:
        outcomes.append(one)
        if as_json:
            cli.screen.record({**vars(one), "code": one.code})
        else:
            cli.screen.say(one.line, _STYLES[one.state])

    stopped = everything(made, take)
    is_written = _write(cli, path, text(report(made, outcomes)))
    found = Counter(one.state for one in outcomes)
    cli.screen.warn(f"{found['PASS']} passed, {found['FAIL']} failed, {found['NOT TRIED']} not tried", "bold")
    if stopped is not None:
        return 128 + stopped
    return context.FAILED if found["FAIL"] or not is_written else context.OK


def _require_report(path: Path) -> None:
    """Look before checks that take minutes whether their results can be written, and replace no file but a report.

    Raises:
        MetadataError: `PATH_UNUSABLE`.
    """
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        why = "can't be written"
    elif path.exists() and not is_report(path.read_bytes()):
        why = "is there, and no report of a check"
    else:
        return
    raise MetadataError(PATH_UNUSABLE, f"{path} {why}", remedy="name another file with --report")


def _write(cli: CliContext, path: Path, content: str) -> bool:
    """Write the file and name it, or show what it would hold; return whether it was written."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        cli.screen.warn(f"[PATH_UNUSABLE] {path}: {error.strerror}. Remedy: copy what follows.", "red")
        cli.screen.warn(content)
        return False
    page = documented("platforms/check.md")
    cli.screen.warn(f"wrote {path}, without names, ids and addresses: publish it as {page} says")
    return True


def context_of(cli: CliContext, loaded: LoadedMetadata, minutes: float) -> CheckContext:
    """What the checks work with, in a new folder."""
    environ = announced(loaded.access, cli.environ)
    return CheckContext(
        cli=cli,
        loaded=loaded,
        root=join(loaded.roots.lake, FOLDER, cli.run_id()),
        store=open_store(environ),
        unsigned=open_store({**environ, "AWS_SKIP_SIGNATURE": "true"}),
        until=time.monotonic() + 60 * minutes,
    )


def everything(made: CheckContext, take: Taken) -> int | None:
    """Make the checks, and remove what they made whatever happens; the number of the signal that stopped them.

    Outcomes are handed to `take`, those of what was not tried too.
    """
    jobs, left, number = JobChecks(made), [*CHECKS], None

    def keep(one: Outcome) -> None:
        left.remove(one.check)
        take(one)

    try:
        with stoppable():
            for outcome in outcomes_of(made, {**storage_checks.PROBES, **job_checks.probes(jobs)}):
                keep(outcome)
    except Stopped as stopped:
        number = stopped.number
    finally:  # also where the terminal or the pipe that is written to is gone
        with unstoppable():
            cleanup = removed(made, jobs)
    for name in left[:-1]:
        take(not_tried(name, "stopped"))
    take(cleanup)
    return number


def outcomes_of(made: CheckContext, probes: Mapping[str, Callable[[CheckContext], str]]) -> Iterator[Outcome]:
    """Make checks one after the other."""
    is_possible = True
    for name, probe in probes.items():
        outcome = _outcome(made, name, probe) if is_possible else not_tried(name, "failed")
        is_possible &= outcome.state == "PASS" or name not in _NEEDED
        yield outcome


def _outcome(made: CheckContext, name: str, probe: Callable[[CheckContext], str]) -> Outcome:
    begun = time.monotonic()
    try:
        made.require_time()
        finding = probe(made)
    except NotTriedError as error:
        return not_tried(name, error.reason, error.detail)
    except Exception as error:  # noqa: BLE001 - whatever a platform answers, the other checks are made
        return failed(name, error, time.monotonic() - begun)
    return Outcome(check=name, state="PASS", finding=finding, seconds=time.monotonic() - begun)


def removed(made: CheckContext, jobs: JobChecks) -> Outcome:
    """Stop what is going on, and remove the folder of the check; it never raises an `Exception`."""
    begun, left = time.monotonic(), jobs.close()
    try:
        _empty(made)
        if made.store.exists(made.root):
            left.append(f"{made.root} is still there. {by_hand(made.root)}")
    except Exception as error:  # noqa: BLE001 - whatever the store answers is what is left
        left.append(f"{made.root} can't be removed: {error}. {by_hand(made.root)}")
    seconds = time.monotonic() - begun
    if left:
        return failed("cleanup", FoundError("; ".join(left)), seconds)
    return Outcome(check="cleanup", state="PASS", finding="everything is removed", seconds=seconds)


def _empty(made: CheckContext) -> None:
    if not made.on_s3:
        shutil.rmtree(made.root, ignore_errors=not Path(made.root).exists())
        made.store.prune(made.root, made.loaded.roots.lake)
        return
    made.store.delete(*(found.path for found in made.store.list(made.root)))


def by_hand(root: str) -> str:
    """The command that removes a folder of a check, and nothing else where its path holds blanks."""
    if root.startswith("s3://"):
        return f"Remove it with `aws s3 rm --recursive {shlex.quote(f'{root}/')}`"
    return f"Remove it with `rm -r {shlex.quote(root)}`"
