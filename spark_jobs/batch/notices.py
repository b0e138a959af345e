"""Warnings of a run, and what it refuses: by its discovery, its files and its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from airflow_gddl.contract.codes import (
    BATCH_LATE,
    BATCH_UNFINISHED,
    CSV_EMPTY_FIELDS,
    CSV_NOT_SUPPLIED,
    ERASED_SKIPPED,
    EXPECTATION_FAILED,
    FILE_REWRITTEN,
    FILE_UNREADABLE,
    FILE_VANISHED,
    FILES_DISMISSED,
    FILES_IGNORED,
    FILES_REFUSED,
    FILES_TOUCHED,
    FILES_UNSETTLED,
    FIRST_LOAD_UNREADABLE,
    FOLDER_LARGE,
    FOLDER_MISSING,
    GENERATIONS_INFERRED,
    GENERATIONS_UNKNOWN,
    KEYS_SHARED,
    LANDING_MISSING,
    LANDING_MOVED,
    LEDGER_MISSING,
    LOAD_AFTER_CHANGES,
    LOAD_INCOMPLETE,
    LOAD_UNREADABLE,
    LOG_BEGAN_LATE,
    MOVED_ROW_INCOMPLETE,
    QUARANTINE_RATE,
    SHARD_REMOVED,
    SNAPSHOT_INCOMPLETE,
    SWEEP_HELD,
    SWEEP_PENDING,
    TABLE_NOT_LOADED,
    TABLE_WITHOUT_KEYS,
    TABLES_MISSING,
    TARGET_CHANGED,
    TIMES_REDUCED,
    TRUNCATE_APPLIED,
    TRUNCATE_HELD,
    TRUNCATE_IGNORED,
    VALUES_RESCUED,
)
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.file_names import LARGE_FOLDER
from airflow_gddl.contract.layout import below, landing_root
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.generations import Inference
from spark_jobs.plan.planned_batch import BatchPlan, HeldSweep, PlannedFile, TableState, Truncate
from spark_jobs.plan.sharding import rebuild_of, refreshed
from spark_jobs.plan.sweeps import SweepState, is_due_by_time, snapshot_of
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.evaluate import Tally
from spark_jobs.rules.figures import DecodedBatch, Figures
from spark_jobs.rules.truncates import are_applied, unknown_truncates

SAMPLE = 5
_EXPORT = re.compile(r"/[^/]*\.(parquet|csv)(\.gz)?$", re.IGNORECASE)
"""A file in a folder below the table's."""


def of_discovery(run: TableRun, discovery: Discovery) -> Warnings:
    """Warnings about a missing or large folder, ignored or rewritten files, and times of full loads.

    A missing folder is none where the row says what it means, and the landing root is there.
    """
    ignored = f"files with names that {run.dialect.title} doesn't give were left alone"
    if run.spec.dialect == "dms" and any(_EXPORT.search(path) for path in discovery.ignored_sample):
        ignored += "; if each folder is an export of the whole table, write mode: snapshots"
    refused = "files that must not be read were left alone: links that leave the landing root, names not in UTF-8"
    large = (
        "a listing has this many objects; set landing_retention, so that old files are removed, and a shorter "
        "options.lookback if runs list as many each time"
    )
    noted = (
        (FILES_IGNORED, ignored, discovery.ignored, discovery.ignored_sample),
        (FILES_REFUSED, refused, discovery.refused, discovery.refused_sample),
        (FOLDER_LARGE, large, discovery.listed if discovery.listed >= LARGE_FOLDER else 0, ()),
    )
    rewritten = "change files were written again: their later version counts, and rows that are missing from it stay"
    return (
        *_of_missing(run, discovery),
        *(RunWarning(code=code, message=text, count=count, sample=some) for code, text, count, some in noted if count),
        *of_names(FILE_REWRITTEN, rewritten, [file.path for file in discovery.waiting if file.corrects]),
        *of_generations(discovery.inference),
        *_of_later_loads(discovery, run.spec.table),
        *_of_touched(discovery, run.spec.table),
    )


def _of_missing(run: TableRun, discovery: Discovery) -> Warnings:
    landing = run.layout.landing
    if discovery.root_missing:
        message = f"the landing root {landing_root(landing)} is missing; nothing was changed"
        return (RunWarning(code=FOLDER_MISSING, message=message),)
    if discovery.folder_missing and run.dialect.options.missing_folder == "report":
        return (of_missing_folder(landing, discovery.folders_there),)
    return ()


def _of_later_loads(discovery: Discovery, table: str) -> Warnings:
    """Warnings about load files that came after changes: those that open a generation, and those that may have to."""
    begun = (
        "load files came after all files of the table were removed, and were taken as a new full load: rows that are "
        "missing from it are removed; if the files continue the earlier load, write `generations: one`"
    )
    late = (
        "new load files came after changes, and count as a part of the load: rows that are missing from them stay; if "
        f"the source was loaded again, write `generations: by_time` and `gddl reload --from-files --table {table}`"
    )
    return (
        *of_names(GENERATIONS_INFERRED, begun, discovery.begun_loads),
        *of_names(LOAD_AFTER_CHANGES, late, discovery.late_loads),
    )


def _of_touched(discovery: Discovery, table: str) -> Warnings:
    """Warnings about files with another tag or time, said once: the ledger has the tag then."""
    same = "files have another time or tag, and the content that they had; nothing of them was loaded again"
    taken = (
        "load files have another tag and the size that they had, and nothing tells whether their bytes are others; "
        f"they were taken as copies; if the source was loaded again, run `gddl reload --from-files --table {table}`"
    )
    proven = [path for path in discovery.touched if path not in discovery.taken_as_touched]
    return (
        *of_names(FILES_TOUCHED, same, proven),
        *of_names(GENERATIONS_INFERRED, taken, discovery.taken_as_touched),
    )


def of_names(code: str, message: str, names: Sequence[str]) -> Warnings:
    """Warning about files, or what is in them; none where there are none."""
    return (RunWarning(code=code, message=message, count=len(names), sample=tuple(names[:SAMPLE])),) if names else ()


def _of_count(code: str, message: str, count: int) -> Warnings:
    """Warning about so many rows; none where there are none."""
    return (RunWarning(code=code, message=message, count=count),) if count > 0 else ()


def missing_root(table: str, landing: str) -> RetriableError:
    """`LANDING_MISSING`: what has landed can't be seen, as where a file system is not mounted."""
    what = f"{table}: the landing root {landing_root(landing)} is missing; nothing was changed"
    return RetriableError(LANDING_MISSING, what, remedy="mount or create it, or correct `landing`; then run again")


def of_missing_folder(landing: str, there: Sequence[str]) -> RunWarning:
    """`FOLDER_MISSING`: one text for all tables without files, so that it is reported once."""
    message = f"there are no landing folders below {landing_root(landing)} yet; nothing was changed"
    if there:
        message = f"there is no landing folder {landing}; nothing was changed; folders there: {', '.join(there)}"
    return RunWarning(code=FOLDER_MISSING, message=message)


def of_unsettled(paths: Sequence[str]) -> Warnings:
    """Files that may still be written, before they were read or meanwhile."""
    message = (
        "files that may still be written were not loaded; a later run loads them when they no longer change (`settle`)"
    )
    return of_names(FILES_UNSETTLED, message, paths)


def of_misplaced(spec: TableSpec, state: TableState) -> Warnings:
    """Warning about changes that were ingested before the row said that their log had been reset."""
    message = (
        "files with changes from after a moment of options.log_began were ingested before the metadata "
        "row named it: these "
        f"changes come before newer ones of the former log; {refreshed(spec, 'a rebuild puts them in order')}"
    )
    return of_names(LOG_BEGAN_LATE, message, state.misplaced)


def of_generations(inference: Inference) -> Warnings:
    """Warning about change files older than the full load, whose generation is inferred from times."""
    if inference.certainty != "inferred":
        return ()
    what = "of the load before it" if inference.openings else "made during the load"
    message = f"change files are older than the full load, and were taken as {what}; set generations if that is wrong"
    return (RunWarning(code=GENERATIONS_INFERRED, message=message, count=inference.older, sample=inference.sample),)


def require_known_generations(inference: Inference, table: str) -> None:
    """Refuse a first load if file times don't say which changes belong to which full load.

    Raises:
        FatalError: `GENERATIONS_UNKNOWN`.
    """
    if inference.certainty == "unknown":
        change, load = inference.sample
        raise FatalError(
            GENERATIONS_UNKNOWN,
            f"{table}: {inference.older} change files are older than a load file, e.g. {change} than {load}: they were "
            "made during the load, or the load was written again after them",
            where=table,
            remedy="write `generations: one` into the metadata row if all belong to one load, as in a folder "
            "that was copied; "
            "`generations: by_time` if later load files were written again",
        )


def require_generations(discovery: Discovery, table: str) -> None:
    """Refuse files if it is unknown which changes belong to which full load, on a first load or later.

    Raises:
        FatalError: `GENERATIONS_UNKNOWN`; as `require_known_generations`.
    """
    require_known_generations(discovery.inference, table)
    reload = f"run `gddl reload --from-files --table {table}`"
    if discovery.unplaced_loads:
        what = (
            f"the files of its full load are gone, and {discovery.unplaced_loads[0]} has come: without keys nothing "
            "tells whether it is the rest of that load or a new one"
        )
        remedy = (
            f"if the source was loaded again, {reload}, which makes the table of the files that are there; else write "
            "`generations: one` into the metadata row"
        )
    elif (late := discovery.overtaken) is not None:
        what = (
            f"{late.changes} change files that were ingested before a load file came are newer than it, "
            f"e.g. {late.change} than {late.load}: the load would undo them"
        )
        remedy = (
            f"{reload}, which puts all files in order; or write `generations: one` into the metadata row if the load "
            "has these changes"
        )
    else:
        return
    raise FatalError(GENERATIONS_UNKNOWN, f"{table}: {what}; nothing was written", where=table, remedy=remedy)


def require_same_landing(spec: TableSpec, waiting: Iterable[PlannedFile], ledger: Ledger, landing: str) -> None:
    """Refuse files of a table without keys that were ingested from another landing folder, as after a failover.

    Rows without a key can't be compared with stored ones: those of a full load would come twice. Rows with a key can.

    Args:
        landing: the table's landing folder now.

    Raises:
        FatalError: `LANDING_MOVED`.
    """
    if spec.keys:
        return
    names = {below(landing, file.path) for file in waiting}
    parts = {name.count("/") + 1 for name in names}
    elsewhere = (path for path in ledger.entries() if below(landing, path) == path)
    ends = ((path, "/".join(path.split("/")[-count:])) for path in elsewhere for count in parts)
    again = next(((path, name) for path, name in ends if name in names), None)
    if again is None:
        return
    path, name = again
    raise FatalError(
        LANDING_MOVED,
        f"{spec.table} has no keys, and its landing folder was another one: {name} was ingested as {path}, and its "
        "rows would come twice; nothing was written",
        where=landing,
        remedy=f"name the landing folder as it was; or, if all of the files are in the new one, run `gddl reload "
        f"--from-files --table {spec.table}`, which makes the table of them",
    )


def lacking(held: HeldSweep) -> str:
    """What a reload lacks whose sweep is held."""
    return f"the reload lacks {held.rows} of {held.live} rows, more than sweep_limit allows"


def release(table: str) -> str:
    """The ways out of a sweep that is held."""
    return (
        f"if the rows are gone at the source, `gddl release sweep --table {table}` removes them; else let the CDC "
        "service load the table again"
    )


def of_sweep(table: str, standing: SweepState, state: TableState, discovery: Discovery) -> Warnings:
    """Warning about rows of an older full load in the replica in addition to those of the newest."""
    if standing == "held" and state.held is not None:
        message = f"{lacking(state.held)}; they stay until `gddl release sweep --table {table}`"
        return (RunWarning(code=SWEEP_HELD, message=message, count=state.held.rows),)
    if standing != "pending":
        return ()
    run = snapshot_of(state)
    if run is not None and is_due_by_time(state) and not discovery.unreadable_changes:
        message = (
            f"the snapshot at {run.position} of the source's log has ended, but rows of it in other partitions of the "
            "topic may follow: rows from before it stay until sweep_after has passed"
        )
        return (RunWarning(code=SWEEP_PENDING, message=message),)
    if run is not None:
        message = (
            f"not all rows of the snapshot at {run.position} of the source's log have come: rows from before it stay "
            "until they have. If it was broken off, let the connector take a new one; if all of it is there, "
            f"`gddl release sweep --table {table}` removes the rows that it lacks"
        )
        return (RunWarning(code=SNAPSHOT_INCOMPLETE, message=message, sample=discovery.unreadable_changes[:SAMPLE]),)
    message = "load files were not written again with the others; their rows stay until they are, or sweep_after passed"
    older = discovery.older_loads or discovery.unreadable_loads or discovery.unsettled
    return (RunWarning(code=SWEEP_PENDING, message=message, count=len(older), sample=tuple(older[:SAMPLE])),)


def of_held_truncate(discovery: Discovery, spec: TableSpec) -> Warnings:
    """Warning about files that wait for a user, since the first of them has a truncate; or for the table to be made."""
    path, table = discovery.held[0].path, spec.table
    message = (
        f"{path} has a truncate of the source's table; it and all files after it wait: `gddl release "
        f"truncate --table {table}` deletes the rows before the truncate, `truncate: report` in the "
        "metadata row keeps them"
    )
    if spec.truncate != "hold":
        message = f"{path} has a truncate and no row: it waits for a file with rows, of which the table is made"
    return of_names(TRUNCATE_HELD, message, [file.path for file in discovery.held])


def of_truncates(spec: TableSpec, plan: BatchPlan, truncates: Sequence[Truncate], state: TableState) -> Warnings:
    """Warning about truncates of a batch: rows before them are deleted, or stay under `report`."""
    code, message = TRUNCATE_APPLIED, "the source's table was truncated: rows before the truncate were deleted"
    if not are_applied(spec, released=plan.releases):
        code = TRUNCATE_IGNORED
        message = (
            "the source's table was truncated, and the metadata row says truncate: report: rows from before it stay, "
            "until a reload from files removes them"
        )
    unknown = unknown_truncates(state.truncates, truncates)
    return of_names(code, message, [f"{one.sequence} in {one.source_file}" for one in unknown])


def of_former_target(before: str, target: str) -> Warnings:
    """Warning of the first run into another target.

    Args:
        before: the target until now; empty: the row has had no other.
    """
    message = (
        f"the metadata row's target was {before}: the table is loaded into {target} from the files that are there; "
        f"{before} stays as it is and is no longer written: remove it when readers use the new table, "
        f"or set the target back to {before}"
    )
    return (RunWarning(code=TARGET_CHANGED, message=message),) if before else ()


def of_former_shards(rows: Mapping[str, int], what: str) -> Warnings:
    """Warning about rows of sources that the row no longer names; none where there are no rows.

    Args:
        rows: number of rows by source.
        what: was not done with them, and the remedy.
    """
    named = ", ".join(f"{count} of {shard}" for shard, count in rows.items() if count)
    message = f"rows of sources that are not in `shards` any more {what}: {named}"
    return (RunWarning(code=SHARD_REMOVED, message=message),) if named else ()


def of_late_batch(late: int) -> Warnings:
    """Warning about a batch of which every change precedes changes of earlier batches.

    Args:
        late: see `Applied.late`.
    """
    message = (
        "all changes of a batch are older than changes that were ingested earlier; they were applied only in columns "
        "that no newer change of their key carries. This is right for files that were delivered late, and wrong if the "
        "source's log started again"
    )
    return _of_count(BATCH_LATE, message, late)


def of_expectations(spec: TableSpec, tallies: Mapping[str, Tally]) -> Warnings:
    """Rows that fail expectations and are loaded all the same; those in quarantine are counted there."""
    failed = {name: rows for name, (_, rows) in tallies.items() if rows and spec.expect[name].on != "quarantine"}
    if not failed:
        return ()
    message = "rows fail expectations of the metadata and are loaded; `expectations` of the result counts them by rule"
    sample = tuple(failed)[:SAMPLE]
    return (RunWarning(code=EXPECTATION_FAILED, message=message, count=sum(failed.values()), sample=sample),)


_MOVED = (
    "updates that changed a key, or inserts after such a change, carry a part of the row and no before images of the "
    "rest, so these rows may lack values; have the source send whole before images, or reload the table"
)


def of_rows(spec: TableSpec, plan: BatchPlan, decoded: DecodedBatch) -> Warnings:
    """Warnings about what is in the rows of a batch, each with the number of rows, values or fields."""
    figures, options = decoded.figures, spec.options.keys()
    is_mostly_bad = plan.mode == "initial" and 2 * figures.quarantined > figures.rows
    rounded = "rounded" if spec.sub_microseconds == "round" else "cut"
    is_named, null = "csv_no_sup" in options or "csv_added" in options, DmsOptions.csv_null
    noted = (
        (ERASED_SKIPPED, figures.erased, "rows of erased keys were skipped"),
        (
            QUARANTINE_RATE,
            figures.quarantined if is_mostly_bad else 0,
            (
                f"rows of the first load are in quarantine, more than in the table, e.g. {figures.first_bad}; correct "
                "the metadata row and run `gddl errors replay`"
            ),
        ),
        (
            TIMES_REDUCED,
            figures.reduced,
            f"times with digits past the microsecond were {rounded}; set sub_microseconds to choose otherwise",
        ),
        (
            VALUES_RESCUED,
            figures.rescued,
            "rows have values in _rescued_data, since the table has no column of that name or type",
        ),
        (MOVED_ROW_INCOMPLETE, figures.incomplete, _MOVED),
        (
            CSV_NOT_SUPPLIED,
            0 if is_named else figures.partial,
            (
                f"updates have {DmsOptions.csv_no_sup} in a column and keep its value; set options.csv_no_sup to this "
                "word, or to null if it is a value"
            ),
        ),
        (
            CSV_EMPTY_FIELDS,
            0 if "csv_null" in options else figures.empty_texts,
            (
                f"empty fields of CSV are read as empty texts, since {null} stands for null by default, and no "
                "field of their files has it; set options.csv_null to CsvNullValue of the endpoint: '' where they are "
                f"null (then run `gddl reload --from-files --table {spec.table}`), else {null}"
            ),
        ),
    )
    return tuple(RunWarning(code=code, message=message, count=count) for code, count, message in noted if count)


def of_new_keys(spec: TableSpec, before: TableState, rows: int) -> Warnings:
    """Warning about other keys than before, by which a rebuild leaves fewer rows.

    Args:
        rows: that the rebuilt replica has.
    """
    if lowered(spec.keys) == lowered(before.keys or ()) or rows >= before.rows:
        return ()
    message = (
        f"by the keys [{', '.join(spec.keys)}] the replica has {rows} rows, by [{', '.join(before.keys or ())}] it had "
        f"{before.rows}: rows that share a key are one row now, the last; where that is not meant, restore keys and "
        "rebuild again, which loses nothing"
    )
    return _of_count(KEYS_SHARED, message, before.rows - rows)


def of_shared_keys(spec: TableSpec, figures: Figures, written: int) -> Warnings:
    """Warning about rows of a full load that share their key: a source holds each key once, so it may be no key.

    Args:
        figures: of a batch; nothing is said of one with changes, whose rows share keys.
        written: its rows without re-deliveries.
    """
    is_load = spec.mode == "changes" and figures.keys and figures.loads == figures.good
    if not is_load:
        return ()
    message = (
        f"{written} rows of the full load have {figures.keys} keys [{', '.join(spec.keys)}], and one row of each key "
        "remains, the last: where the source holds all of them, correct keys and rebuild, which loses nothing"
    )
    return _of_count(KEYS_SHARED, message, written - figures.keys)


def of_files(bad: Sequence[Unreadable]) -> Warnings:
    """Warnings about unreadable files, and files removed between listing and reading."""
    vanished = [u.file.path for u in bad if u.code == FILE_VANISHED]
    unreadable = [u.file.path for u in bad if u.code != FILE_VANISHED]
    codes = ", ".join(sorted({u.code for u in bad} - {FILE_UNREADABLE, FILE_VANISHED}))
    kept = "files could not be read" + (f" ({codes})" if codes else "")
    kept += "; they are in quarantine, and are read again when they change, or by a replay"
    removal_message = "files were removed after the listing; they are loaded if they are re-delivered"
    return (*of_names(FILE_UNREADABLE, kept, unreadable), *of_names(FILE_VANISHED, removal_message, vanished))


def of_unread_loads(table: str, discovery: Discovery) -> Warnings:
    """Warning about load files that a replay of the quarantine leaves."""
    reload = f"`gddl reload --from-files --table {table}`"
    what = f"load files that could not be read begin a full load, which only {reload} carries out"
    return of_names(FILE_UNREADABLE, what, discovery.unreadable_loads)


def of_given_up(table: str, ledger: Ledger) -> Warnings:
    """Warnings about files that a user has dismissed, for as long as what they hold is missing."""
    load = (
        "files of the full load could not be read and were dismissed: what they hold is missing, though `gddl verify` "
        f"finds the table equal to its changes; deliver them again, or load {table} again from its source"
    )
    changes = (
        "change files could not be read and were dismissed: what they hold is missing until they are re-delivered, "
        "or a newer full load comes"
    )
    return (
        *of_names(LOAD_INCOMPLETE, load, ledger.given_up("load")),
        *of_names(FILES_DISMISSED, changes, ledger.given_up("change")),
    )


def of_tried_loads(ledger: Ledger) -> Warnings:
    """Warning of a plan about load files that a run would read again, as it could not before."""
    what = "load files could not be read by the last run: unless they or the row were corrected, the next one fails"
    return of_names(FILE_UNREADABLE, what, sorted(ledger.unread_loads))


def require_first_load(table: str, ledger: Ledger) -> None:
    """Fail where there is no table, since no file of which it would be made can be read.

    Raises:
        FatalError: `FIRST_LOAD_UNREADABLE`.
    """
    if bad := unread_first_load(ledger):
        what = f"{table}: there is no table yet: {_files(len(bad))} of which it is made can't be read"
        raise FatalError(FIRST_LOAD_UNREADABLE, what, where=", ".join(bad[:SAMPLE]), remedy=_remedy_of_load(table))


def unread_first_load(ledger: Ledger) -> list[str]:
    """Files that could not be read, of a table that is not there for that reason."""
    if ledger.state.keys is not None or not ledger.state.batch:
        return []
    return sorted(ledger.unread_loads) or sorted(p for p, e in ledger.entries().items() if e.state == "unreadable")


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def require_whole_load(table: str, ledger: Ledger, unread: Sequence[str]) -> None:
    """As `require_first_load`, and fail if a file of a full load could not be read.

    Args:
        unread: load files that could not be read.

    Raises:
        FatalError: `FIRST_LOAD_UNREADABLE`, `LOAD_UNREADABLE`.
    """
    require_first_load(table, ledger)
    if unread:
        raise unread_load(table, unread)


def unread_load(table: str, paths: Sequence[str]) -> FatalError:
    """`LOAD_UNREADABLE`: load files that can't be read."""
    what = f"{table}: {_files(len(paths))} of a full load can't be read; it is not applied, and newer files wait"
    return FatalError(LOAD_UNREADABLE, what, where=", ".join(paths[:SAMPLE]), remedy=_remedy_of_load(table))


def _remedy_of_load(table: str) -> str:
    return (
        f"deliver the files again, or correct the metadata row: `gddl errors list --table {table}` has the "
        "reasons; or go on "
        f"without them: `gddl errors dismiss --table {table} --code FILE_UNREADABLE --reason TEXT`"
    )


def not_loaded(table: str) -> RunWarning:
    """A table of which nothing can be compared."""
    what = f"{table} has nothing to compare yet: load it first, by `gddl run --table {table}`"
    return RunWarning(code=TABLE_NOT_LOADED, message=what)


def require_keyed(spec: TableSpec, state: TableState) -> None:
    """Refuse to look for a key in a table without keys, or one that was never loaded.

    Raises:
        FatalError: `TABLE_WITHOUT_KEYS`.
    """
    if state.keys is None or not spec.keys:
        what = f"{spec.table} has no keys, or was never loaded"
        remedy = "load the table first; rows of a table without keys can't be distinguished"
        raise FatalError(TABLE_WITHOUT_KEYS, what, remedy=remedy)


def require_finished(run: TableRun, ledger: Ledger, *, then: str) -> None:
    """Refuse to work on a table, or on one of its sources, with a batch that is not finished.

    Args:
        then: what to do again after a run.

    Raises:
        FatalError: `BATCH_UNFINISHED`.
    """
    if ledger.plan() is not None:
        what, remedy = f"{run.title} has a batch that is not finished", f"run the table first, then {then}"
        raise FatalError(BATCH_UNFINISHED, what, where=run.layout.state, remedy=remedy)


def require_tables(run: TableRun, state: TableState, *, changes_exist: bool) -> None:
    """Refuse to run where ledger and tables don't belong together: the one would make the other skip or repeat.

    Raises:
        FatalError: `LEDGER_MISSING`, `TABLES_MISSING`.
    """
    if changes_exist and state.batch == 0 and state.schemas == ():
        code, what, lost = LEDGER_MISSING, "its Delta tables exist, but its ledger has no commit", "ledger"
    elif not changes_exist and state.keys is not None:
        what = f"the ledger knows {state.batch} batches, but the change table is missing"
        code, lost = TABLES_MISSING, "tables"
    else:
        return
    remedy = f"restore the {lost}, or {rebuild_of(run.spec)}"
    raise FatalError(code, f"{run.spec.table}: {what}", where=run.layout.state, remedy=remedy)
