"""The check of a reload or resync before it swaps: what the table would lose, and how far it is from its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.errors import FatalError
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchPlan, FileEntry
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.step_results import Archived, Replaced
from spark_jobs.source_tables import opened, url_of
from spark_jobs.tables.damage import Damage
from spark_jobs.tables.engine import RebuildRequest
from spark_jobs.verification import distance

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Replacement(Replaced):
    """What the swap changes; keys are not compared in tables without keys, and where there was no replica.

    Attributes:
        files: that were read.
        columns: of the live replica that the new one lacks.
        archived: changes that no file holds.
        far_before, far_after: keys that differ from the source; null without a connection to it.
    """

    files: int
    columns: tuple[str, ...] = ()
    archived: int = 0
    far_before: int | None = None
    far_after: int | None = None

    @property
    def losses(self) -> list[str]:
        """What would go, for a message; empty: nothing."""
        fewer = max(0, (self.rows_before or 0) - self.rows)
        rows = fewer if self.vanish is None else self.vanish
        shown = ", ".join(self.columns[:_SHOWN])
        return [
            *([f"{rows} of {self.rows_before} rows"] if rows else []),
            *([f"{len(self.columns)} columns ({shown})"] if self.columns else []),
            *([f"{self.archived} changes that no file holds"] if self.archived else []),
        ]


def require_connection(run: TableRun) -> str:
    """The connection to the source: the job's, else the row's.

    Raises:
        FatalError: `RESYNC_REFUSED`: none is named. As `url_of`.
    """
    connection = run.source_connection
    if not connection:
        reload = f"`gddl reload --from-files --table {run.spec.table}`"
        remedy = f"name it by --source-connection, or use {reload}, which needs none"
        raise FatalError(
            "RESYNC_REFUSED", f"{run.spec.table}: a resync needs a connection to the source", remedy=remedy
        )
    url_of(connection, run.runtime.environ)  # a table that can't be compared must not hide a wrong name
    return connection


def check(
    run: TableRun, plan: BatchPlan, request: RebuildRequest, files: Mapping[str, FileEntry], archived: Archived, *,
    compares: bool = True,
) -> Replacement:  # fmt: skip
    """Compare the new table with the live one before it replaces it.

    Args:
        files: files as read for the new table.
        compares: the live replica's rows can be read.

    Raises:
        FatalError: `RESYNC_REFUSED`: a file could not be read, or the new table differs from the source in more keys.
            `RELOAD_UNCONFIRMED`: rows, columns or changes would go, and nobody has said that they may. As `url_of`.
    """
    unread = sorted(path for path, entry in files.items() if entry.state == "unreadable")
    if unread and plan.resync:
        raise _refused(run, f"{len(unread)} files can't be read, e.g. {unread[0]}", "deliver them again")
    engine, layout = request.live.engine, request.live.layout
    table_schema = _common(request) if compares and engine.tables.exists(layout.replica) else None
    replacement = _compared(request, table_schema, len(files) - len(unread), archived)
    if plan.resync:
        return (
            replacement
            if table_schema is None
            else _against_source(run, request, table_schema, replacement, plan.source_connection)
        )
    losses = [*replacement.losses, *([f"{len(unread)} files that can't be read, e.g. {unread[0]}"] if unread else [])]
    if losses and not plan.confirmed:
        files_there = f"the {replacement.files} files that are there hold {replacement.rows} rows"
        raise FatalError(
            "RELOAD_UNCONFIRMED",
            f"{run.spec.table}: {files_there}; the table would lose {'; '.join(losses)}",
            where=layout.landing,
            remedy=f"if that is right, `gddl reload --from-files --yes --table {run.spec.table}`: the "
            "change table keeps the changes as archived ones; the tables are unchanged",
        )
    return replacement


def require_landed(run: TableRun, ledger: Ledger, found: Mapping[str, Damage]) -> None:
    """Of damaged tables that only landed files make again: require that all of these are there, or a user's word.

    Raises:
        FatalError: `RELOAD_UNCONFIRMED`.
    """
    load, known = run.job.options.load, ledger.all_entries()
    if isinstance(load, Reload) and load.confirmed:
        return
    there = {file.path for file in run.runtime.storage.list(run.place.root, "", run.place.bounds)}
    gone = sorted(path for path, row in known.items() if row.state == "committed" and path not in there)
    if known and not gone:
        return
    files = f"{len(gone)} of its landed files are gone, e.g. {gone[0]}" if gone else "no ledger knows its landed files"
    damage = "; ".join(map(str, found.values()))
    what = f"{run.spec.table}: {files}; what these held and only damaged files of the lake have would go: {damage}"
    command = f"gddl reload --from-files --yes --table {run.spec.table}"
    remedy = f"restore one or the other; or, if that is right, `{command}`; the tables are unchanged"
    raise FatalError("RELOAD_UNCONFIRMED", what, where=run.layout.landing, remedy=remedy)


def _compared(request: RebuildRequest, table_schema: TableSchema | None, files: int, archived: Archived) -> Replacement:
    engine, layout = request.live.engine, request.live.layout
    work, columns = engine.rebuild(request), None
    dropped: tuple[str, ...] = ()
    if table_schema is not None:
        kept = {column.lower() for column in request.table_schema.columns}
        dropped = tuple(c.name for c in engine.tables.data_columns(layout.replica) if c.name.lower() not in kept)
        columns = (*table_schema.keys, *(c.name for c in table_schema.data if c.name not in table_schema.keys))
    return Replacement(
        files=files, columns=dropped, archived=sum(archived.by_file.values()),
        **asdict(work.compared(columns)),
    )  # fmt: skip


def _common(request: RebuildRequest) -> TableSchema | None:
    """The schema with the columns of both replicas; null where they don't share their keys."""
    stored = {column.name for column in request.live.engine.tables.data_columns(request.live.layout.replica)}
    data = tuple(c for c in request.table_schema.data if c.name in stored)
    return replace(request.table_schema, data=data) if stored.issuperset(request.table_schema.keys) else None


def _against_source(
    run: TableRun, request: RebuildRequest, table_schema: TableSchema, replacement: Replacement, connection: str
) -> Replacement:
    engine, spec = request.live.engine, run.spec
    with opened(url_of(connection, run.runtime.environ), *spec.name_in_source.split(".", 1)) as table:
        before = distance(table, table_schema, lambda names: engine.contents(request.live).live_rows(names))
        after = distance(table, table_schema, lambda names: engine.rebuild(request).rows(names))
    if after > before:
        what = f"{after} keys of the new table differ from the source, of the live one {before}"
        raise _refused(run, what, f"its files lack changes: {_from_source(run)}")
    return replace(replacement, far_before=before, far_after=after)


def still_different(run: TableRun, replacement: Replacement) -> FatalError:
    """The failure of a resync whose tables are replaced, and still are not what the source has."""
    what = f"{run.spec.table}: {replacement.far_after} keys of the new table differ from the source, "
    what += f"of the table before it {replacement.far_before}"
    remedy = "changes on their way count too: `gddl verify` tells them apart; what stays different was lost before it "
    remedy += f"landed: {_from_source(run)}"
    return FatalError("RESYNC_DIFFERENT", what, remedy=remedy)


def _from_source(run: TableRun) -> str:
    """How to bring what no file has."""
    table = run.spec.table
    return f"`gddl verify --table {table}`, `gddl resync --differences --table {table}`, or have the table loaded again"


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(
        "RESYNC_REFUSED", f"{run.spec.table}: {what}", remedy=f"{remedy}; readers still have the old table"
    )
