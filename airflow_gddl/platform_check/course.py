"""The order of the checks, and what is done when one fails, time is over or the command is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from airflow_gddl.contract.extensions import ProbeSkippedError
from airflow_gddl.platform_check import catalog_checks, job_checks, storage_checks
from airflow_gddl.platform_check.catalog_entries import remove_entries
from airflow_gddl.platform_check.checks import CHECKS, FoundError, NotTriedError, Outcome, failed, not_tried
from airflow_gddl.platform_check.job_checks import JobChecks
from airflow_gddl.platform_check.place import CheckContext, Probe, remove
from airflow_gddl.runners.child import Stopped, nothing, unstoppable

AIRFLOW = ("airflow.triggerer", "airflow.dag_processor")
_FIRST = {"storage.": "storage.write", "job.": "job.load", "tables.": "job.load", "catalog.register": "job.load"}
"""The check of a group without which the others of it say nothing."""
Taken = Callable[[Outcome], None]


def everything(
    context: CheckContext,
    take: Taken,
    wanted: Collection[str] | None = None,
    on_stop: Callable[[], None] = nothing,
) -> None:
    """Make the checks one after the other, and hand each outcome to `take`; nothing is removed.

    Args:
        wanted: only these; None: all.
        on_stop: called at a signal, before what is going on is stopped, which may take minutes.

    Raises:
        Stopped: a signal came; outcomes so far were taken.
    """
    jobs = JobChecks(context)
    probes = {
        **storage_checks.PROBES,
        "catalog.answer": catalog_checks.answer,
        **job_checks.probes(jobs),
    }
    chosen = {name: probe for name, probe in probes.items() if wanted is None or name in wanted}
    try:
        for outcome in _made(context, chosen):
            take(outcome)
    except Stopped:
        on_stop()
        raise
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        with unstoppable() if is_main else nullcontext():
            for left in jobs.close():
                take(failed("cleanup", FoundError(left), origin=context.origin, seconds=0.0))


def of_storage(context: CheckContext) -> list[Outcome]:
    """The checks of storage alone, as a triggerer and a DAG processor make them."""
    return list(_made(context, storage_checks.PROBES))


def _made(context: CheckContext, probes: Mapping[str, Probe]) -> Iterator[Outcome]:
    passed: set[str] = set()
    for name, probe in probes.items():
        first = next((first for group, first in _FIRST.items() if name.startswith(group)), name)
        if first not in (name, *passed) and first in probes:
            outcome = not_tried(name, "failed", context.origin)
        else:
            outcome = made(context, name, probe)
        passed |= {name} if outcome.state == "PASS" else set()
        yield outcome


def made(context: CheckContext, name: str, probe: Probe) -> Outcome:
    """Make one check."""
    begun, origin = context.clock(), context.origin
    try:
        context.require_time()
        finding = probe(context)
    except NotTriedError as error:
        return replace(not_tried(name, error.reason, origin), finding=error.detail)
    except ProbeSkippedError as error:
        return replace(not_tried(name, "not-from-here", origin), finding=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a platform answers, the other checks are made
        return failed(name, error, origin=origin, seconds=context.clock() - begun)
    seconds = context.clock() - begun
    return Outcome(check=name, state="PASS", origin=origin, finding=str(finding), seconds=seconds)


def removed(context: CheckContext, *, made_folders: Sequence[Path] = ()) -> Outcome:
    """Remove what the checks made; it never raises an `Exception`.

    Args:
        made_folders: local folders that were not there before, the deepest first; those with files stay.
    """
    unlimited = replace(context, bounds=replace(context.bounds, minutes=float("inf")))
    outcome = made(unlimited, "cleanup", _remove_all)
    for folder in made_folders:
        with suppress(OSError):
            folder.rmdir()
    return outcome


def _remove_all(context: CheckContext) -> str:
    """Entries first: they are found by notes in the folder."""
    left = remove_entries(context)
    try:
        remove(context)
    except FoundError as error:
        left.append(str(error))
    if left:
        raise FoundError("; ".join(one.rstrip(".") for one in left))
    return "removed"


def left_out(outcomes: list[Outcome], reason: str = "stopped") -> list[Outcome]:
    """Outcomes of checks that have none."""
    there = {outcome.check for outcome in outcomes}
    why = {name: "no-airflow" if name in AIRFLOW else reason for name in CHECKS if name != "cleanup"}
    return [not_tried(name, reason) for name, reason in why.items() if name not in there]


def in_order(outcomes: list[Outcome]) -> list[Outcome]:
    """In the order of `CHECKS`; those of one check by where they were made."""
    names = list(CHECKS)
    origins = ("here", "worker", "triggerer", "dag processor")
    return sorted(outcomes, key=lambda one: (names.index(one.check), origins.index(one.origin)))
