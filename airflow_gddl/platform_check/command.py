"""`gddl check --platform`: the checks from this machine, what they show, and the file of their results."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from airflow_gddl.cli import context
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import counted
from airflow_gddl.contract.errors import MetadataError, documented
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.catalog_entries import by_hand_in, noted, to_register
from airflow_gddl.platform_check.checks import Outcome
from airflow_gddl.platform_check.dag_file import DAG_ID, write_dag
from airflow_gddl.platform_check.databricks_sql import WAREHOUSE, is_workspace_known
from airflow_gddl.platform_check.job_checks import OF_DATABRICKS, OF_GLUE, JobChecks
from airflow_gddl.platform_check.place import Bounds, CheckContext, by_hand, context_of, dollars, of_earlier_checks
from airflow_gddl.platform_check.report import is_report, report, show, summary, text
from airflow_gddl.runners.child import Stopped, handling, unstoppable
from airflow_gddl.runners.descriptor import RUNNERS

REPORT = "it-runs-on.json"


@dataclass(frozen=True, kw_only=True)
class PlatformOptions:
    """The command line as typed.

    Attributes:
        minutes: the time limit; None: that of `Bounds`.
        report: file of the results, to be published; empty: `REPORT`.
        dag: file of a DAG to write instead; empty: the checks are made.
    """

    minutes: float | None = None
    report: str = ""
    dag: str = ""
    as_json: bool = False


def check_platform(cli: CliContext, metadata: str, options: PlatformOptions) -> int:
    """Make the checks, or write the DAG that does; return the exit status.

    Raises:
        GddlError: the metadata can't be read, or an option is wrong; nothing was made.
    """
    _require_fitting(options)
    if options.dag:
        write_dag(Path(options.dag))
        cli.screen.say(
            f"wrote {options.dag}; unpause and trigger its DAG, {DAG_ID}, then remove the file. It reads the metadata"
            " that Airflow is configured with"
        )
        return context.OK
    loaded = metadata_folder.read(cli, metadata)
    path = Path(options.report or REPORT)
    _require_report(path)
    made = context_of(cli, loaded, Bounds(minutes=options.minutes or Bounds.minutes))
    say = cli.screen.warn if options.as_json else cli.screen.say
    for line in announcement(made):
        say(line, "")
    outcomes: list[Outcome] = []
    stopped = _course(made, lambda one: _take(cli, outcomes, one, as_json=options.as_json))
    with unstoppable():
        ordered = course.in_order(outcomes)
        content = text(report(made, ordered))
        error = _write(path, content)  # before the table, whose reader may be gone
        if not options.as_json:
            show(cli.screen, ordered)
        cli.screen.warn(summary(outcomes), "bold")
        _say_where(cli, path, content, error)
    return 128 + stopped if stopped is not None else status_of(outcomes) if not error else context.FAILED


def _require_fitting(options: PlatformOptions) -> None:
    """
    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    minutes, logs = options.minutes, "leave it out: the task `results` of the DAG logs the results"
    for name, given, remedy in (
        ("--report", options.report, logs),
        ("--json", options.as_json, logs),
        ("--minutes", minutes, "set it in the file: platform_check(minutes=20)"),
    ):
        if options.dag and given:
            raise MetadataError("OPTION_INVALID", f"{name} with --dag", remedy=remedy)
    if minutes is not None and not math.isfinite(minutes):
        raise MetadataError("OPTION_INVALID", f"--minutes {minutes}", remedy="write a number of minutes, such as 30")


def _require_report(path: Path) -> None:
    """Look before checks that take minutes whether their results can be written, and replace no file but a report.

    Raises:
        MetadataError: `PATH_UNUSABLE`.
    """
    remedy = "name another file with --report"
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise MetadataError("PATH_UNUSABLE", f"{path} can't be written", remedy=remedy)
    if path.exists() and not is_report(path.read_bytes()):
        raise MetadataError("PATH_UNUSABLE", f"{path} is there, and no report of a check", remedy=remedy)


class _Stop:
    """Raises `Stopped` at the first signal while the checks are made; later signals are ignored."""

    is_over = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if not self.is_over:
            self.is_over = True
            raise Stopped(number)


def _course(made: CheckContext, take: course.Taken) -> int | None:
    """Make the checks, and remove what they made whatever happens; the number of the signal that stopped them.

    Outcomes are handed to `take`, those of what was not tried too.
    """
    stop, number, taken = _Stop(), None, list[Outcome]()
    made_folders = _missing(made)

    def keep(one: Outcome) -> None:
        taken.append(one)
        take(one)

    def say() -> None:
        made.cli.screen.warn(f"stopping; {made.place.root} is being removed, which may take some minutes")

    with handling(stop):
        try:
            course.everything(made, keep, on_stop=say)
            stop.is_over = True
        except Stopped as stopped:
            number = stopped.number
        finally:  # also where the terminal or the pipe that is written to is gone
            stop.is_over = True
            removal = course.removed(made, made_folders=made_folders)
        for one in (removal, *course.left_out(taken)):
            take(one)
    return number


def _missing(made: CheckContext) -> list[Path]:
    """Local folders from the lake upwards that are not there yet."""
    lake = Path(made.place.lake)
    return [] if made.on_s3 else [folder for folder in (lake, *lake.parents) if not folder.exists()]


def status_of(outcomes: list[Outcome]) -> int:
    return context.FAILED if any(one.state == "FAIL" for one in outcomes) else context.OK


def announcement(made: CheckContext, *, processes: int = 1) -> list[str]:
    """Where the check works, and the most that it takes; folders of other checks.

    Args:
        processes: those that try the storage.
    """
    bounds, loaded = made.bounds, made.loaded
    checks = JobChecks(made)
    size, tier = checks.size, loaded.tiers[checks.size]
    amount = bounds.all_requests(processes)
    requests = f"{amount:,} requests ({dollars(amount):.2f} USD at list prices), " if made.on_s3 else ""
    machines = f"{counted(tier.workers, 'worker')}, {tier.cores} cores, {tier.memory}"
    extra = ", whose machines cost extra" if RUNNERS.get(loaded.runner).remote else ""
    number = bounds.jobs + max(0, len(to_register(loaded.catalogs)) - 1)
    jobs = f"{counted(number, 'job')} of the runner {loaded.runner} and the tier {size} ({machines}){extra}"
    limit = f"at most: {bounds.minutes:g} minutes until no check begins and a job is stopped"
    lines = [
        f"making the checks in {made.place.root}, and removing it",
        f"{limit}, {requests}{processes * bounds.objects:,} objects, {jobs}",
        *_engines(made),
    ]
    try:
        others = of_earlier_checks(made.store, made.place)
    except Exception:  # noqa: BLE001 - the checks themselves say what is wrong
        others = []
    return [*lines, *(_left(made, root) for root in others)]


def _engines(made: CheckContext) -> list[str]:
    """What engines of the platform read and cost, beside jobs."""
    specs, environ = made.loaded.catalogs.values(), made.cli.environ
    lines = []
    if made.on_s3 and any(spec.kind in OF_GLUE and spec.catalog_id is None for spec in specs):
        lines.append("at most: a query of some kilobytes by Athena for each kind of catalog in Glue, charged as 10 MB")
    runner = made.loaded.runner
    if any(spec.kind == OF_DATABRICKS and is_workspace_known(runner, spec.url, environ) for spec in specs):
        named = environ.get(WAREHOUSE, "").strip()
        which = (
            f"the SQL warehouse {named}, which is started where it is stopped, and charged until it stops by itself"
            if named
            else "a SQL warehouse that runs already, which is charged as long as it runs; none is started"
        )
        lines.append(f"at most: one statement in {which}")
    return lines


def _left(made: CheckContext, root: str) -> str:
    """What a check may have left that was killed, and the commands that remove it."""
    is_remote = RUNNERS.get(made.loaded.runner).remote
    runs = "If it was killed, end its runs on the platform first. " if is_remote else ""
    return f"another check left, or works in, {root}. {runs}{_left_entries(made, root)}{by_hand(root)}"


def _left_entries(made: CheckContext, root: str) -> str:
    """How to remove the databases that the check in a folder made in catalogs; the notes of them go with the folder."""
    try:
        other = replace(made, place=replace(made.place, name=root.rpartition("/")[2]))
        hands = [by_hand_in(other, name) for name in noted(made.store, root)]
    except Exception:  # noqa: BLE001 - the checks themselves say what is wrong
        return ""
    return f"First remove its database {', and '.join(hands)}. " if hands else ""


def _take(cli: CliContext, outcomes: list[Outcome], one: Outcome, *, as_json: bool) -> None:
    outcomes.append(one)
    if as_json:
        cli.screen.record(_plain(one))
    elif one.state != "NOT TRIED":
        cli.screen.warn(f"{one.state} {one.check}: {one.finding}", "dim" if one.state == "PASS" else "red")


def _plain(one: Outcome) -> dict[str, object]:
    return {**vars(one), "code": one.code}


def _write(path: Path, content: str) -> str:
    """Write the file; return why it can't be written, empty where it was."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _say_where(cli: CliContext, path: Path, content: str, error: str) -> None:
    """Name the file, or show what it would hold."""
    if error:
        cli.screen.warn(f"[PATH_UNUSABLE] {path}: {error}. Remedy: copy what follows.", "red")
        cli.screen.warn(content)
        return
    page = documented("platforms/check.md")
    cli.screen.warn(f"wrote {path}, without names, ids and addresses: publish it as {page} says")
