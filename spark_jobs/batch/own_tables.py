"""Whether ledger and tables belong together, commits of other writers, and what runs remember of the tables' logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.codes import (
    BASELINE_LOST,
    FOREIGN_COMMIT,
    FOREIGN_ROWS,
    LEDGER_BEHIND,
    TABLE_NOT_OURS,
    TABLES_MISSING,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import titled
from spark_jobs.batch.damaged_tables import require_known_version
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.baseline import BASELINE
from spark_jobs.plan.planned_batch import BatchPlan, ForeignCommit, TableState
from spark_jobs.plan.sharding import rebuild_command, rebuild_of
from spark_jobs.tables.delta_log import APPEND, MERGE, DeltaCommit, DeltaCommits, is_later, version_of
from spark_jobs.tables.replayed_log import ReplayedLog

if TYPE_CHECKING:
    from spark_jobs.tables.engine import Engine
    from spark_jobs.tables.table_context import TableLogs

REPLACED = "REPLACED"
"""In place of an operation, where the log does not reach back to the version that the ledger knows."""


_KEPT = 20


_SAMPLE = 5


_TABLES = ("changes", "replica", "history", "tombstones")


def versions_of(context: Engine, before: TableState | None = None) -> dict[str, int]:
    """What `TableState.delta_versions` holds after a batch.

    Args:
        before: before a batch, which may not have read the log of the quarantine; None: all tables were made again.
    """
    tables, layout = context.tables, context.layout
    versions = {name: tables.version(getattr(layout, name)) for name in _TABLES}
    if before is None:
        versions["errors"] = tables.version(layout.errors)
    else:
        log = tables.known_log(layout.errors)
        versions["errors"] = before.delta_versions.get("errors") if log is None else log.version
    return {name: version for name, version in versions.items() if version is not None}


def remember(context: Engine, ledger: Ledger, plan: BatchPlan) -> None:
    """Keep what the run of a batch knows of the tables' logs for the next one, see `recall`.

    Not of a table with several sources, of which an erasure would have to forget what each knows.
    """
    if context.spec.shard:
        return
    known: dict[str, Any] = {}
    for name in _TABLES:
        log = context.tables.known_log(getattr(context.layout, name))
        if log is not None and (stored := log.to_json()) is not None:
            known[name] = stored
    if known and not context.tables.exists(context.layout.errors):
        known["errors"] = None
    ledger.write_delta_logs(plan, known)


def recall(context: Engine, ledger: Ledger) -> None:
    """Let the engine know what the last batch knew of the tables' logs."""
    versions = ledger.state.delta_versions
    if context.spec.shard or not versions or ledger.plan() is not None:
        return
    logs = ledger.delta_logs()
    for name in (*_TABLES, "errors"):
        if name not in versions and (name != "errors" or (name in logs and logs[name] is None)):
            context.tables.recall(getattr(context.layout, name), None)
    for name, stored in logs.items():
        with suppress(KeyError, TypeError, AttributeError):  # a copy of another release
            log = ReplayedLog.of_json(stored)
            if log.version == versions.get(name):
                context.tables.recall(getattr(context.layout, name), log)


def foreign_commits(
    run: TableRun, ledger: Ledger, tables: TableLogs | None = None, names: Collection[str] = (*_TABLES, "errors"),
) -> tuple[ForeignCommit, ...]:  # fmt: skip
    """Commits of others that changed data: those that the ledger knows, and new ones.

    Args:
        tables: that are worked on with the logs as they are read here.
        names: of the tables whose logs are read for new ones; of the quarantine, in which anybody may delete rows, it
            only has to have the version that the ledger knows.

    Raises:
        FatalError: `TABLES_MISSING`; `LEDGER_BEHIND`; as `require_known_version`.
    """
    spec, state, log = run.spec, ledger.state, DeltaCommits(run.runtime.storage)
    foreign, known = list(state.foreign), _newest_plan(ledger)
    for name, version in state.delta_versions.items():
        if name not in names:
            continue
        path = getattr(run.layout, name)
        commits = log.since(path, version) if tables is None else tables.commits_since(path, version)
        if commits is None:
            if name != "errors" and not log.exists(path):
                raise _missing_table(spec, name, path)
            require_known_version(run, name, path, version)
        if name == "errors":
            continue
        if commits is None:
            now = log.version(path)
            foreign += [] if now is None else [ForeignCommit(table=name, version=now, operation=REPLACED)]
            continue
        if any(is_later(commit.transactions, spec.shard or "", known) for commit in commits):
            raise _behind(spec, name, path, run.layout.state)
        foreign += [
            ForeignCommit(table=name, version=commit.version, operation=commit.operation)
            for commit in commits
            if commit.changes_data and not commit.ours
        ]
    return tuple(dict.fromkeys(foreign))[-_KEPT:]


def has_all_changes(run: TableRun, ledger: Ledger) -> bool:
    """Whether the change table has what the ledger knows, and no table has a batch that the ledger lacks.

    As far as their logs reach back; False where the change table is lost, or is or was replaced by an older copy.
    """
    if any((commit.table, commit.operation) == ("changes", REPLACED) for commit in ledger.state.foreign):
        return False
    log, known = DeltaCommits(run.runtime.storage), _newest_plan(ledger)
    for name, version in ledger.state.delta_versions.items():
        commits = log.since(getattr(run.layout, name), version)
        if commits is None and name == "changes":
            return False
        if any(is_later(commit.transactions, run.spec.shard or "", known) for commit in commits or ()):
            return False
    return log.exists(run.layout.changes)


def has_foreign_changes(run: TableRun, ledger: Ledger) -> bool:
    """Whether another writer has changed data of the change table since it was last made from all files.

    Raises:
        FatalError: as `foreign_commits`, of the change table alone: a rebuild makes the others anew, or needs them no
            more.
    """
    commits = foreign_commits(run, ledger, names=("changes",))
    return ledger.state.foreign_changes or has_of_changes(commits)


def has_of_changes(commits: Iterable[ForeignCommit]) -> bool:
    """Whether one of these commits is to the change table."""
    return any(commit.table == "changes" for commit in commits)


def require_newest_of_shard(context: Engine, ledger: Ledger) -> None:
    """Refuse the ledger of a shard that lacks a batch of the tables.

    By the tables' transactions: versions that other shards left hide the shard's own commits.

    Raises:
        FatalError: `LEDGER_BEHIND`.
    """
    known, layout = _newest_plan(ledger), context.layout
    for name, step in (("changes", APPEND), ("replica", MERGE)):
        path = getattr(layout, name)
        if context.tables.last_transaction(path, step) > known:
            raise _behind(context.spec, name, path, layout.state)


def _newest_plan(ledger: Ledger) -> int:
    """Transaction version of the ledger's newest batch, committed or started; -1 without any."""
    last, pending = ledger.last_commit(), ledger.plan()
    plans = (None if last is None else last.plan, pending)
    return max((version_of(plan) for plan in plans if plan is not None), default=-1)


def require_loaded_tables(context: Engine, state: TableState) -> None:
    """Refuse a ledger of a loaded table whose replica or change table is missing, also one that knows no versions yet.

    Raises:
        FatalError: `TABLES_MISSING`.
    """
    for name in ("changes", "replica"):
        path = getattr(context.layout, name)
        if state.keys is not None and not context.tables.exists(path):
            raise _missing_table(context.spec, name, path)


def require_no_other_table(context: Engine, ledger: Ledger) -> None:
    """Refuse to make a table where another job has one; also where a ledger knows batches that no change table has.

    Raises:
        FatalError: `TABLE_NOT_OURS`.
    """
    tables, path = context.tables, context.layout.replica
    is_known = ledger.state.batch or ledger.plan() is not None
    if (is_known and tables.exists(context.layout.changes)) or not tables.exists(path):
        return
    if not context.stored.is_ours(path):
        table = context.spec.table
        what = "there is a Delta table that another job has made"
        remedy = f"`gddl adopt --table {table}` takes it over as it is; or move it away, or name another `target`"
        if is_known:
            what = "the Delta table is of another job, and the ledger of another table"
            remedy = f"restore our tables; or delete {context.layout.state}, then `gddl adopt --table {table}`"
        raise FatalError(TABLE_NOT_OURS, f"{table}: {what}; nothing was written", where=path, remedy=remedy)


def require_own_tables(run: TableRun, context: Engine, ledger: Ledger) -> tuple[ForeignCommit, ...]:
    """Foreign commits to the tables that don't prevent a batch.

    Raises:
        FatalError: `TABLES_MISSING`; `LEDGER_BEHIND`: the tables have batches that the ledger lacks, whose files it
            would take again; `FOREIGN_ROWS`: rows that another writer inserted, without `_gddl`, can't be compared with
            changes; `BASELINE_LOST`.
    """
    state = ledger.state
    commits = foreign_commits(run, ledger, context.tables)
    require_loaded_tables(context, state)
    if context.spec.shard:
        require_newest_of_shard(context, ledger)
    for name in dict.fromkeys(commit.table for commit in commits if commit not in state.foreign):
        _require_own_rows(context, state, name)
    _require_baseline(context, state)
    return commits


def _require_own_rows(context: Engine, state: TableState, name: str) -> None:
    path = getattr(context.layout, name)
    if not context.stored.is_ours(path):
        what = f"the {name} has no column _gddl: another writer has replaced its columns, or restored an old version"
        remedy = f"restore its newest version of ours, or {rebuild_of(context.spec)}"
        raise FatalError(FOREIGN_ROWS, what, where=path, remedy=remedy)
    since = _since_adoption(context, state, name)
    added = None if since is None else frozenset(file for commit in since if not commit.ours for file in commit.added)
    count = context.stored.foreign_rows(path, added)
    if count or _moves_foreign_rows(since or ()):
        raise _foreign_rows(context, state, name, count)


def _foreign_rows(context: Engine, state: TableState, name: str, count: int) -> FatalError:
    rebuild = rebuild_of(context.spec)
    what = f"{count} rows of the {name} have no _gddl: another writer inserted them"
    remedy = f"delete them (DELETE ... WHERE _gddl IS NULL), or {rebuild}"
    if name == "replica" and state.baseline is not None:  # rows from before the adoption have none either
        rest = f"{count} rows of it have no _gddl" if count else "these rows are in other files by now"
        what = f"another writer has inserted or changed rows of the adopted replica; {rest}"
        remedy = f"stop that writer; then {rebuild}, which undoes what it did"
    return FatalError(FOREIGN_ROWS, what, where=getattr(context.layout, name), remedy=remedy)


def _since_adoption(context: Engine, state: TableState, name: str) -> Sequence[DeltaCommit] | None:
    """Commits to an adopted replica since the last batch; None: its rows without `_gddl` all count as those of others.

    Its first files hold rows without `_gddl`, so that only the files of others tell theirs.
    """
    if name != "replica" or state.baseline is None:
        return None
    return context.tables.commits_since(context.layout.replica, state.delta_versions[name])


def _moves_foreign_rows(commits: Iterable[DeltaCommit]) -> bool:
    """Whether rows that others have put in are in files that don't tell it: compacted, or written again by us.

    Args:
        commits: oldest first.
    """
    theirs: set[str] = set()
    for commit in commits:
        if (commit.ours or not commit.changes_data) and not theirs.isdisjoint(commit.removed):
            return True
        if not commit.ours:
            theirs = theirs.difference(commit.removed).union(commit.added)
    return False


def _require_baseline(context: Engine, state: TableState) -> None:
    """Require that the property of an adopted replica says what the ledger says of rows without `_gddl`.

    Raises:
        FatalError: `BASELINE_LOST`: rows without `_gddl` would be read as none of ours.
    """
    if state.baseline is None or context.baseline.baseline() == state.baseline:
        return
    raise FatalError(
        BASELINE_LOST,
        f"{context.spec.table}: the property {BASELINE} of the replica is not as the ledger has it: what rows without "
        "_gddl stand for is not known; nothing was written",
        where=context.layout.replica,
        remedy=f"set the property as it was, or {rebuild_of(context.spec)}",
    )


def warnings_of(commits: tuple[ForeignCommit, ...]) -> Warnings:
    """Reported by each run until a rebuild."""
    if not commits:
        return ()
    message = (
        "another writer changed the table's data, so it may not be what its changes give; `gddl verify` compares them; "
        "where they differ, a rebuild makes the table again"
    )
    if any(commit.operation == REPLACED and commit.table == "changes" for commit in commits):
        message = (
            "the change table was replaced by an older copy, so that it lacks changes which the ledger takes for "
            "ingested, and a comparison with it does not show them; `gddl reload --from-files --table T` makes the "
            "table of the landed files again"
        )
    sample = tuple(str(commit) for commit in commits[-_SAMPLE:])
    return (RunWarning(code=FOREIGN_COMMIT, message=message, count=len(commits), sample=sample),)


def _missing_table(spec: TableSpec, name: str, path: str) -> FatalError:
    return FatalError(
        TABLES_MISSING,
        f"a table that the ledger knows no longer exists: the {name}",
        where=path,
        remedy=f"restore the table, or {rebuild_of(spec) if name == 'changes' else rebuild_command(spec)}",
    )


def _behind(spec: TableSpec, name: str, path: str, state: str) -> FatalError:
    return FatalError(
        LEDGER_BEHIND,
        f"{titled(spec.table, spec.shard)}: a table holds a batch that the ledger does not know (the {name}, {path}): "
        "the ledger is an older copy, or has lost a commit, and would take that batch's files again; nothing was "
        "written",
        where=state,
        remedy=f"restore the newest copy of the ledger, or {rebuild_of(spec)}",
    )
