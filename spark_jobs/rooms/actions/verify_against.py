"""`gddl verify --against`: the replica compared by key with another Delta table, of any writer.

A row that differs is no fault of either table where the other one is as the replica was earlier (it is behind), or
where landed files that are not loaded have changes of its key (it may be ahead).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import AGAINST_DIFFERENT, AGAINST_REFUSED, AGAINST_UNSETTLED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import first_batch
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.plan.types import lossless
from spark_jobs.rooms.actions.landed_changes import LandedChanges, vanished
from spark_jobs.rules.arrays import DeltaSchema, schema_of
from spark_jobs.rules.other_table import DifferentRow, OtherTableRule
from spark_jobs.tables.replayed_log import DamagedLogError, replayed

_SHOWN = 20
_NAMED = 5


def verify_against(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare the replica with the table that `Verify.against` names; writes nothing.

    `details["verdict"]` is `equal`, `behind`, `ahead` or `different`, and `details["against"]` has the counts. The
    result has failed with `AGAINST_DIFFERENT` where rows differ.

    Raises:
        FatalError: `AGAINST_REFUSED`: the tables can't be compared; `BATCH_UNFINISHED`.
        RetriableError: `TABLE_BUSY`; `FILES_CHANGED`: files of the other table have vanished meanwhile.
    """
    _require_keys(run)
    path = path_of(run)
    with run.claim():  # neither the replica nor what the ledger knows of files changes meanwhile
        ledger = run.ledger()
        if ledger.state.keys is None:
            totals.warn([notices.not_loaded(run.spec.table)])
            return run.result(totals)
        notices.require_finished(run, ledger, then="verify --against")
        try:
            found, rows = _compared(run, path, ledger)
        except FileNotFoundError as error:
            raise vanished(run, path, error) from error
    behind, ahead, different = found["behind"], found["ahead"], found["different"]
    if behind or ahead:
        message = (
            f"{behind} rows of the other table are as the replica's were earlier, and {ahead} have changes in files "
            "that are not loaded; compare again when both have loaded the same files"
        )
        totals.warn([RunWarning(code=AGAINST_UNSETTLED, message=message, count=behind + ahead)])
    verdict = "different" if different else "ahead" if ahead else "behind" if behind else "equal"
    details = {"verdict": verdict, "compared": [path], "against": found}
    return run.answer(totals, details, _difference(run, different, rows) if different else None)


def path_of(run: TableRun) -> str:
    """Path of the other table: `schema.name` is one of the lake."""
    against = run.job.options.asked(Verify).against
    if "/" in against:
        return against.rstrip("/")
    schema, dot, name = against.partition(".")
    if not (schema and dot and name):
        remedy = "name a table of the lake as schema.name, or the path of a Delta table"
        raise _refused(run, f"no table and no path: {against!r}", against, remedy)
    return join(run.job.roots.lake, schema, name)


def _require_keys(run: TableRun) -> None:
    if run.spec.shards:
        remedy = "compare the tables with a query"
        raise _refused(run, "rows of several sources share a table", run.layout.replica, remedy)
    if not run.spec.keys:
        raise _refused(run, "rows without keys can't be matched", run.layout.replica, "compare the tables with a query")


def _opened(run: TableRun, path: str) -> tuple[int, DeltaSchema]:
    """Version and columns of the other table."""
    try:
        log = replayed(run.runtime.storage, path)
    except DamagedLogError as error:
        raise _refused(run, str(error), path, "name a Delta table that can be read") from error
    if log is None:
        raise _refused(run, "there is no Delta table", path, "name a table of the lake, or the path of a Delta table")
    try:
        return log.version, schema_of(log.schema)
    except (TypeError, ValueError, KeyError) as error:
        why = f"a column has a type that is not known here: {error}"
        raise _refused(run, why, path, "compare the tables with a query") from error


def _refused(run: TableRun, why: str, where: str, remedy: str) -> FatalError:
    return FatalError(AGAINST_REFUSED, f"{run.spec.table} can't be compared: {why}", where=where, remedy=remedy)


def _columns(
    run: TableRun, schema: TableSchema, theirs: DeltaSchema, delivered: frozenset[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Columns that are compared, as the other table spells them, and those that are not, and why.

    Args:
        delivered: columns of files that were loaded, in lower case; None: all columns of the replica.

    Raises:
        FatalError: `AGAINST_REFUSED`: a key column can't be compared.
    """
    by_lower, masked = {name.lower(): name for name in theirs.names}, lowered(run.spec.mask)
    spelled: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for column in schema.data:
        lower = column.name.lower()
        if lower not in by_lower:
            left_out[column.name] = "the other table lacks it"
        elif not lossless(theirs.types[by_lower[lower]], column.type):
            left_out[column.name] = f"it is {theirs.types[by_lower[lower]]} there, and {column.type} here"
        elif lower in masked:
            left_out[column.name] = "the metadata row masks it"
        elif delivered is not None and lower not in delivered:
            left_out[column.name] = "files lack it"
        else:
            spelled[column.name] = by_lower[lower]
    if lacking := [key for key in schema.keys if key not in spelled]:
        why = f"key column {lacking[0]}: {left_out[lacking[0]]}"
        raise _refused(run, why, run.layout.replica, "name a table that has the keys of the metadata row")
    ours = {*lowered(column.name for column in schema.data), GDDL}
    left_out |= {name: "the replica lacks it" for name in theirs.names if name.lower() not in ours}
    return spelled, left_out


def _compared(run: TableRun, path: str, ledger: Ledger) -> tuple[dict[str, Any], list[DifferentRow]]:
    """What the comparison has found, as a result shows it, and rows that no file which waits explains."""
    (version, theirs), context = _opened(run, path), run.context()
    schema = context.stored_schema(ledger.state)
    spelled, left_out = _columns(run, schema, theirs, _delivered(ledger) if ledger.state.adopted else None)
    first = first_batch(iso(run.runtime.clock()))
    rule = OtherTableRule(
        schema=schema, columns=tuple(spelled), spelled=spelled, first=first.batch_id, shown=_NAMED,
        marks=GDDL in theirs.names,
    )  # fmt: skip
    found = context.stored.compared_with(path, rule)
    # Listed after the other table was read: it has no change of a file that is not among them.
    waiting = run.discover(ledger, wait="idle").waiting if found.different else ()
    wanted = {row.key for row in found.listed}
    keys = LandedChanges(run, context, ledger.state).keys(waiting)
    in_files = {file: wanted & held for file, held in keys.items()}
    changed = frozenset[str]().union(*in_files.values())
    different = [row for row in found.listed if row.key not in changed]
    return {
        "version": version, "rows": found.rows, "their_rows": found.their_rows, "equal": found.equal,
        "behind": found.behind, "behind_keys": list(found.behind_keys), "ahead": len(changed),
        "in_files": {file: len(held) for file, held in in_files.items() if held}, "waiting": len(waiting),
        "different": found.different - len(changed),
        "rows_different": [{"key": row.key, "ours": row.ours, "theirs": row.theirs} for row in different[:_SHOWN]],
        "not_compared": left_out,
    }, different  # fmt: skip


def _difference(run: TableRun, count: int, rows: Sequence[DifferentRow]) -> FatalError:
    shown = ", ".join(row.key for row in rows[:_NAMED])
    what = f"{run.spec.table}: {count} rows of both tables differ, e.g. {shown}"
    explain = f"`gddl explain --table {run.spec.table} --key COLUMN=VALUE`"
    remedy = f"`details.against.rows_different` has both rows; {explain} shows what the replica's row is made of"
    return FatalError(AGAINST_DIFFERENT, what, where=run.spec.table, remedy=remedy)


def _delivered(ledger: Ledger) -> frozenset[str] | None:
    """Columns of the files that were loaded after the adoption, in lower case; None: none was."""
    loaded = {entry.schema for entry in ledger.entries().values() if entry.batch > 1 and entry.schema is not None}
    schemas = [ledger.state.schemas[number] for number in loaded]
    return frozenset(landed_name(name).lower() for one in schemas for name in one) if schemas else None
