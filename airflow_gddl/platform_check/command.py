"""`gddl check --platform`: the checks from this machine, what they show, and the file of their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_gddl.cli import context
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import counted
from airflow_gddl.contract.errors import documented
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.checks import Outcome
from airflow_gddl.platform_check.dag_file import write_dag
from airflow_gddl.platform_check.job_checks import JobChecks
from airflow_gddl.platform_check.place import Bounds, CheckContext, by_hand, context_of, of_earlier_checks
from airflow_gddl.platform_check.report import report, show, summary, text
from airflow_gddl.runners.child import Stopped, stoppable, unstoppable
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
        GddlError: the metadata can't be read; nothing was made.
    """
    if options.dag:
        write_dag(Path(options.dag))
        cli.screen.say(f"wrote {options.dag}; unpause and trigger its DAG, gddl_platform_check, then remove the file")
        return context.OK
    loaded = metadata_folder.read(cli, metadata)
    made = context_of(cli, loaded, Bounds(minutes=options.minutes or Bounds.minutes))
    made_lake = not made.on_s3 and not Path(made.place.lake).exists()
    say = cli.screen.warn if options.as_json else cli.screen.say
    for line in announcement(made):
        say(line, "")
    outcomes: list[Outcome] = []
    stopped: int | None = None
    try:
        with stoppable():
            course.everything(made, lambda one: _take(cli, outcomes, one, as_json=options.as_json))
    except Stopped as signal:
        stopped = signal.number
    with unstoppable():
        rest = [course.removed(made, made_lake=made_lake), *course.left_out(outcomes)]
        for one in rest:
            _take(cli, outcomes, one, as_json=options.as_json)
        ordered = course.in_order(outcomes)
        if not options.as_json:
            show(cli.screen, ordered)
        _write(cli, made, ordered, options.report or REPORT)
    return 128 + stopped if stopped is not None else status_of(outcomes)


def status_of(outcomes: list[Outcome]) -> int:
    return context.FAILED if any(one.state == "FAIL" for one in outcomes) else context.OK


def announcement(made: CheckContext) -> list[str]:
    """Where the check works, and the most that it takes; folders of other checks."""
    bounds, loaded = made.bounds, made.loaded
    size = JobChecks(made).size
    tier = loaded.tiers[size]
    price = f", below {bounds.dollars:.2f} USD at list prices" if made.on_s3 else ""
    requests = f"{bounds.requests + bounds.job_requests:,} requests{price}, " if made.on_s3 else ""
    machines = f"{counted(tier.workers, 'worker')}, {tier.cores} cores, {tier.memory}"
    extra = ", whose machines cost extra" if RUNNERS.get(loaded.runner).remote else ""
    jobs = f"{counted(bounds.jobs, 'job')} of the runner {loaded.runner} and the tier {size} ({machines}){extra}"
    lines = [
        f"making the checks in {made.place.root}, and removing it",
        f"at most: {bounds.minutes:g} minutes, {requests}{bounds.objects:,} objects, {jobs}",
    ]
    try:
        others = of_earlier_checks(made.store, made.place)
    except Exception:  # noqa: BLE001 - the checks themselves say what is wrong
        others = []
    return [*lines, *(f"another check left, or works in, {root}. {by_hand(root)}" for root in others)]


def _take(cli: CliContext, outcomes: list[Outcome], one: Outcome, *, as_json: bool) -> None:
    outcomes.append(one)
    if as_json:
        cli.screen.record(_plain(one))
    elif one.state != "NOT TRIED":
        cli.screen.warn(f"{one.state} {one.check}: {one.finding}", "dim" if one.state == "PASS" else "red")


def _plain(one: Outcome) -> dict[str, object]:
    return {**vars(one), "code": one.code}


def _write(cli: CliContext, made: CheckContext, outcomes: list[Outcome], path: str) -> None:
    cli.screen.warn(summary(outcomes), "bold")
    Path(path).write_text(text(report(made, outcomes)), encoding="utf-8")
    page = documented("platforms/check.md")
    cli.screen.warn(f"wrote {path}, without names, ids and addresses: publish it as {page} says")
