"""Damaged Delta tables of a table: how a run that can't use them says it, and which command makes them again."""

from __future__ import annotations

from datetime import datetime

from airflow_gddl.contract.codes import TABLE_DAMAGED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.tidying import TABLES
from spark_jobs.plan.sharding import rebuild_command, refreshed
from spark_jobs.tables.damage import Damage, damage_of, mend
from spark_jobs.tables.table_context import TableContext

_OF_FILES = ("changes", "errors")
"""Tables that nothing in the lake can make again: landed files do."""


def damages(run: TableRun, *, opens: bool = False) -> dict[str, Damage]:
    """What is wrong with the tables, by their names; see `damage_of`.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    states = [ledger.state for ledger in run.ledgers()]
    found = {}
    for name in TABLES:
        known = max((state.delta_versions.get(name, -1) for state in states), default=-1)
        found[name] = damage_of(run.runtime.storage, getattr(run.layout, name), known=known, opens=opens)
    return {name: damage for name, damage in found.items() if damage is not None}


def require_known_version(run: TableRun, name: str, path: str, known: int) -> None:
    """Refuse a table whose log ends before a version that the ledger knows.

    Raises:
        FatalError: `TABLE_DAMAGED`.
    """
    damage = damage_of(run.runtime.storage, path, known=known)
    if damage is not None and (fault := damaged(run.spec, {name: damage})):
        raise fault


def of_files(found: dict[str, Damage]) -> dict[str, Damage]:
    """Damaged tables that only a reload makes again."""
    return {name: damage for name, damage in found.items() if name in _OF_FILES}


def require_undamaged(run: TableRun) -> None:
    """Refuse damaged tables.

    Raises:
        FatalError: `TABLE_DAMAGED`.
    """
    if fault := damaged(run.spec, damages(run)):
        raise fault


def explained(run: TableRun) -> FatalError | None:
    """The damage that explains a failure which nothing else does; None: there is none."""
    return damaged(run.spec, damages(run, opens=True))


def mend_logs(run: TableRun, found: dict[str, Damage]) -> dict[str, Damage]:
    """Remove logs that can't be read, so that their tables are missing; returns the other damage."""
    unreadable = {name: damage for name, damage in found.items() if damage.log is None}
    mend(run.runtime.storage, list(unreadable.values()), 0)
    return {name: damage for name, damage in found.items() if name not in unreadable}


def mend_files(context: TableContext, found: dict[str, Damage], now: datetime) -> None:
    """Take damaged files out of tables that are about to be made again."""
    if found:
        mend(context.storage, list(found.values()), int(now.timestamp() * 1000))
        context.tables.forget_all()


def damaged(spec: TableSpec, found: dict[str, Damage]) -> FatalError | None:
    """The error of damaged tables, with the one command that makes all of them again; None: there are none."""
    if not found:
        return None
    parts = [f"the {'change table' if name == 'changes' else name}: {damage}" for name, damage in found.items()]
    by = rebuild_command(spec)
    if of_files(found):
        by = f"load the table again from its landed files with `gddl reload --from-files --table {spec.table}`"
    what = f"{spec.table}: files of the lake are damaged; nothing was written: {'; '.join(parts)}"
    remedy = f"restore the files from a backup, or {refreshed(spec, by)}"
    return FatalError(TABLE_DAMAGED, what, where=next(iter(found.values())).path, remedy=remedy)
