"""Warnings about files and folders, in words."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import SubMicrosecondPolicy
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import TableState
from spark_jobs.plan.discover import Discovery

_SAMPLE = 5


def of_discovery(found: Discovery, landing: str, writer: str) -> tuple[RunWarning, ...]:
    """A vanished folder, and files whose names no rule knows."""
    warnings = []
    if found.folder_missing:
        warnings.append(
            RunWarning(code="FOLDER_MISSING", message=f"there is no landing folder {landing}; nothing was changed")
        )
    if found.ignored:
        message = f"files with names that {writer} doesn't give were left alone"
        warnings.append(
            RunWarning(code="FILES_IGNORED", message=message, count=found.ignored, sample=found.ignored_sample)
        )
    if found.refused:
        message = "files that must not be read were left alone: links that leave the landing root, names not in UTF-8"
        warnings.append(
            RunWarning(code="FILES_REFUSED", message=message, count=found.refused, sample=found.refused_sample)
        )
    return tuple(warnings)


def of_fallback(engine: str, reason: str) -> RunWarning:
    """A table or batch that its tier's engine can't take."""
    return RunWarning(code="ENGINE_FALLBACK", message=f"engine {engine} can't take it, engine spark has to: {reason}")


def of_late_batch(late: int) -> tuple[RunWarning, ...]:
    """A batch of which every change comes before changes of earlier batches.

    Args:
        late: see `Applied.late`.
    """
    message = (
        "all changes of a batch come before changes that were ingested earlier, and these were not applied: what is "
        "stored of their keys is newer. This is right for files that were delivered late; it is wrong where the "
        "source's log has begun anew"
    )
    return (RunWarning(code="BATCH_LATE", message=message, count=late),) if late else ()


def of_erased(rows: int) -> tuple[RunWarning, ...]:
    """Rows of keys that were erased for good."""
    message = "rows of erased keys were passed over"
    return (RunWarning(code="ERASED_SKIPPED", message=message, count=rows),) if rows else ()


def of_times(count: int, policy: SubMicrosecondPolicy) -> tuple[RunWarning, ...]:
    """Times that lost their digits past the microsecond."""
    done = "rounded" if policy == "round" else "cut"
    message = f"times with digits past the microsecond were {done}; set sub_microseconds to choose otherwise"
    return (RunWarning(code="TIMES_REDUCED", message=message, count=count),) if count else ()


def of_files(bad: Sequence[Unreadable]) -> tuple[RunWarning, ...]:
    """Files that could not be read, and files that vanished between listing and reading."""
    vanished = [u for u in bad if u.code == "FILE_VANISHED"]
    unreadable = [u for u in bad if u.code != "FILE_VANISHED"]
    warnings = []
    if unreadable:
        message = "files could not be read; they are in the quarantine and are tried again when they change"
        warnings.append(
            RunWarning(code="FILE_UNREADABLE", message=message, count=len(unreadable), sample=_paths(unreadable))
        )
    if vanished:
        message = "files vanished after they were listed; they are taken when they come back"
        warnings.append(RunWarning(code="FILE_VANISHED", message=message, count=len(vanished), sample=_paths(vanished)))
    return tuple(warnings)


def _paths(files: Sequence[Unreadable]) -> tuple[str, ...]:
    return tuple(u.file.path for u in files[:_SAMPLE])


def require_first_load(table: str, ledger: Ledger) -> None:
    """Refuse to be green where files came and none could be read, so that there is no table.

    Raises:
        FatalError: `FIRST_LOAD_UNREADABLE`.
    """
    if ledger.state.keys is not None or not ledger.state.batch:
        return
    bad = sorted(path for path, entry in ledger.entries().items() if entry.state == "unreadable")
    if bad:
        raise FatalError(
            "FIRST_LOAD_UNREADABLE",
            f"{table}: there is no table yet, and no file to make it of: {len(bad)} could not be read",
            where=", ".join(bad[:_SAMPLE]),
            remedy="see the reasons with gddl errors list, and have the files written again",
        )


def require_tables(table: str, state: TableState, changes_exist: bool, state_path: str) -> None:
    """Refuse to run where ledger and tables don't belong together: the one would make the other skip or repeat.

    Raises:
        FatalError: `LEDGER_MISSING`, `TABLES_MISSING`.
    """
    if changes_exist and state.batch == 0 and state.schemas == ():
        raise FatalError(
            "LEDGER_MISSING",
            f"{table}: its Delta tables exist, but its ledger has no commit",
            where=state_path,
            remedy="restore the ledger, or rebuild both with --full-refresh",
        )
    if not changes_exist and state.keys is not None:
        raise FatalError(
            "TABLES_MISSING",
            f"{table}: the ledger knows {state.batch} batches, but the change table is gone",
            where=state_path,
            remedy="restore the tables, or rebuild them with --full-refresh",
        )
