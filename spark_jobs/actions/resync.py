"""What a reload or a resync replaces: compares the new table with the live one, and a resync's with the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from airflow_gddl.contract.errors import FatalError
from spark_jobs.engines.port import RebuildRequest
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.files import FileEntry
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.figures import Replaced
from spark_jobs.table.run import TableRun
from spark_jobs.verification.source_columns import distance
from spark_jobs.verification.source_database import opened, url_of

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
    connection = run.job.options.source_connection or run.dialect.options.verify_connection or ""
    if not connection:
        remedy = "name it by --source-connection, or use `gddl reload --from-files`, which needs none"
        raise FatalError(
            "RESYNC_REFUSED", f"{run.spec.table}: a resync needs a connection to the source", remedy=remedy
        )
    url_of(connection, run.runtime.environ)  # a table that can't be compared must not hide a wrong name
    return connection


def check(run: TableRun, plan: BatchPlan, order: RebuildRequest, files: Mapping[str, FileEntry]) -> Replacement:
    """
    Args:
        files: files as read for the new table.

    Raises:
        FatalError: `RESYNC_REFUSED`: a file could not be read, or the new table differs from the source in more keys.
            `RELOAD_UNCONFIRMED`: rows, columns or changes would go, and nobody has said that they may. As `url_of`.
    """
    unread = sorted(path for path, entry in files.items() if entry.state == "unreadable")
    if unread and plan.resync:
        raise _refused(run, f"{len(unread)} files can't be read, e.g. {unread[0]}", "deliver them again")
    engine, layout = order.live.engine, order.live.layout
    table_schema = _common(order) if engine.exists(layout.replica) else None
    found = _compared(order, table_schema, len(files) - len(unread))
    if plan.resync:
        return (
            found if table_schema is None else _against_source(run, order, table_schema, found, plan.source_connection)
        )
    losses = [*found.losses, *([f"{len(unread)} files that can't be read, e.g. {unread[0]}"] if unread else [])]
    if losses and not plan.confirmed:
        raise FatalError(
            "RELOAD_UNCONFIRMED",
            f"{run.spec.table}: the {found.files} files that are there hold {found.rows} rows; the table would lose "
            f"{'; '.join(losses)}",
            where=layout.landing,
            remedy=f"if that is right, `gddl reload --from-files --yes --table {run.spec.table}`: the change table "
            "keeps the changes as archived ones; the tables are unchanged",
        )
    return found


def _compared(order: RebuildRequest, table_schema: TableSchema | None, files: int) -> Replacement:
    engine, layout = order.live.engine, order.live.layout
    work, columns = engine.rebuild(order), None
    gone: tuple[str, ...] = ()
    if table_schema is not None:
        kept = {column.lower() for column in order.table_schema.columns}
        gone = tuple(c.name for c in engine.columns(layout.replica) if c.name.lower() not in kept)
        columns = (*table_schema.keys, *(c.name for c in table_schema.data if c.name not in table_schema.keys))
    return Replacement(files=files, columns=gone, archived=work.archived(), **asdict(work.compared(columns)))


def _common(order: RebuildRequest) -> TableSchema | None:
    """The schema with the columns of both replicas; null where they don't share their keys."""
    stored = {column.name for column in order.live.engine.columns(order.live.layout.replica)}
    data = tuple(c for c in order.table_schema.data if c.name in stored)
    return replace(order.table_schema, data=data) if stored.issuperset(order.table_schema.keys) else None


def _against_source(
    run: TableRun, order: RebuildRequest, table_schema: TableSchema, found: Replacement, connection: str
) -> Replacement:
    engine, spec = order.live.engine, run.spec
    with opened(url_of(connection, run.runtime.environ), *spec.name_in_source.split(".", 1)) as table:
        before = distance(table, table_schema, lambda names: engine.live_rows(order.live, names))
        after = distance(table, table_schema, lambda names: engine.rebuild(order).rows(names))
    if after > before:
        what = f"{after} keys of the new table differ from the source, of the live one {before}"
        raise _refused(run, what, "its files lack changes: let the CDC service reload the table, then run it")
    return replace(found, far_before=before, far_after=after)


def still_different(run: TableRun, found: Replacement) -> FatalError:
    """The failure of a resync whose tables are replaced, and still are not what the source has."""
    what = f"{run.spec.table}: {found.far_after} keys of the new table differ from the source, "
    what += f"of the table before it {found.far_before}"
    remedy = "changes on their way count too: `gddl verify` tells them apart; what stays different was lost before it "
    remedy += "landed: let the CDC service reload the table, then run it"
    return FatalError("RESYNC_DIFFERENT", what, remedy=remedy)


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(
        "RESYNC_REFUSED", f"{run.spec.table}: {what}", remedy=f"{remedy}; readers still have the old table"
    )
