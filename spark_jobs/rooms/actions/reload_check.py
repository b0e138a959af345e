"""The check of a reload before it swaps: what the table would lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.codes import RELOAD_UNCONFIRMED
from airflow_gddl.contract.errors import FatalError
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchPlan, FileEntry
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.tables.damage import Damage
from spark_jobs.tables.swap import Replaced, Swap

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Replacement(Replaced):
    """What the swap changes; keys are not compared in tables without keys, and where there was no replica.

    Attributes:
        files: that were read.
        columns: of the live replica that the new one lacks.
        archived: changes that no file holds.
    """

    files: int
    columns: tuple[str, ...] = ()
    archived: int = 0

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


def check(
    run: TableRun, plan: BatchPlan, swap: Swap, files: Mapping[str, FileEntry], found: Mapping[str, Damage]
) -> Replacement:
    """Compare the new table with the live one before it replaces it.

    Args:
        files: files as read for the new table.
        found: damage of the live tables, by their names: what can't be read is not compared.

    Raises:
        FatalError: `RELOAD_UNCONFIRMED`: rows, columns or changes would go, and nobody has said that they may.
    """
    unread = sorted(path for path, entry in files.items() if entry.state == "unreadable")
    live, layout = swap.live, swap.live.layout
    dropped, columns = tuple[str, ...](), None
    archived = 0 if "changes" in found else swap.archived()
    common = _common(swap) if "replica" not in found and live.tables.exists(layout.replica) else None
    if common is not None:
        kept = {column.lower() for column in swap.table_schema.columns}
        dropped = tuple(c.name for c in live.tables.data_columns(layout.replica) if c.name.lower() not in kept)
        columns = (*common.keys, *(c.name for c in common.data if c.name not in common.keys))
    replacement = Replacement(
        files=len(files) - len(unread), columns=dropped, archived=archived,
        **asdict(swap.compared(columns)),
    )  # fmt: skip
    losses = [*replacement.losses, *([f"{len(unread)} files that can't be read, e.g. {unread[0]}"] if unread else [])]
    if losses and not plan.confirmed:
        files_there = f"the {replacement.files} files that are there hold {replacement.rows} rows"
        raise FatalError(
            RELOAD_UNCONFIRMED,
            f"{run.spec.table}: {files_there}; the table would lose {'; '.join(losses)}",
            where=layout.landing,
            remedy=f"if that is right, `gddl reload --from-files --yes --table {run.spec.table}`: the "
            "change table keeps the changes as archived ones; the tables are unchanged",
        )
    run.report("checked", plan.number)
    return replacement


def require_landed(run: TableRun, ledger: Ledger, found: Mapping[str, Damage]) -> None:
    """Of damaged tables that only landed files make again: require that all of these are there, or a user's word.

    Raises:
        FatalError: `RELOAD_UNCONFIRMED`.
    """
    load, known = run.job.options.load, ledger.all_entries()
    if isinstance(load, Reload) and load.confirmed:
        return
    there = {file.path for file in run.runtime.storage.list(run.layout.landing, "", run.place.bounds)}
    gone = sorted(path for path, row in known.items() if row.state == "committed" and path not in there)
    if known and not gone:
        return
    files = f"{len(gone)} of its landed files are gone, e.g. {gone[0]}" if gone else "no ledger knows its landed files"
    damage = "; ".join(map(str, found.values()))
    what = f"{run.spec.table}: {files}; what these held and only damaged files of the lake have would go: {damage}"
    command = f"gddl reload --from-files --yes --table {run.spec.table}"
    remedy = f"restore one or the other; or, if that is right, `{command}`; the tables are unchanged"
    raise FatalError(RELOAD_UNCONFIRMED, what, where=run.layout.landing, remedy=remedy)


def _common(swap: Swap) -> TableSchema | None:
    """The schema with the columns of both replicas; null where they don't share their keys."""
    schema, live = swap.table_schema, swap.live
    stored = {column.name for column in live.tables.data_columns(live.layout.replica)}
    data = tuple(c for c in schema.data if c.name in stored)
    return replace(schema, data=data) if stored.issuperset(schema.keys) else None
