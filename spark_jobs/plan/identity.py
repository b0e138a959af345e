"""Rule 14: what a table is keyed and ordered by changes only with a full refresh."""

from __future__ import annotations

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.batch import TableState


def require_same_identity(spec: TableSpec, state: TableState) -> None:
    """Refuse a row whose keys or explicit sequence differ from those the tables were built with.

    Raises:
        FatalError: `KEYS_CHANGED`, `SEQUENCE_CHANGED`.
    """
    if state.keys is not None and _folded(spec.keys) != _folded(state.keys):
        raise _refused("KEYS_CHANGED", "keys", spec.table, state.keys, spec.keys)
    ordered = tuple(c.lower() for c in spec.sequence_by)
    if state.sequence_by and ordered and ordered != tuple(c.lower() for c in state.sequence_by):
        raise _refused("SEQUENCE_CHANGED", "sequence_by", spec.table, state.sequence_by, spec.sequence_by)


def has_same_identity(spec: TableSpec, state: TableState) -> bool:
    """Whether the row still describes the tables as they were built."""
    try:
        require_same_identity(spec, state)
    except FatalError:
        return False
    return True


def _folded(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(n.lower() for n in names)


def _refused(code: str, field: str, table: str, was: tuple[str, ...], now: tuple[str, ...]) -> FatalError:
    return FatalError(
        code,
        f"{table}: the tables were built with {field} [{', '.join(was)}], the metadata says [{', '.join(now)}]",
        remedy=f"restore {field}, or rebuild the table with `gddl run --table {table} --full-refresh`",
    )
