"""Tables of several sources (shards): what a shard's state takes from the others, which share its tables; pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from airflow_gddl.contract.codes import SHARD_ORDER_DIFFERS, SHARDS_CHANGED
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.types import NOTHING, merge

LOAD_AGAIN = (
    f"load the table again: give the row a new target ({documented('sources.md', 'load-a-sharded-table-again')})"
)
"""What takes the place of a rebuild."""


def refreshed(spec: TableSpec, otherwise: str) -> str:
    """The part of a remedy that names a rebuild, or what takes its place for a table of several sources."""
    return LOAD_AGAIN if spec.shards else otherwise


def rebuild_command(spec: TableSpec) -> str:
    """What makes replica and history again, as every remedy says it."""
    return f"rebuild the table with `gddl rebuild --table {spec.table}`"


def rebuild_of(spec: TableSpec) -> str:
    """`rebuild_command`, or what takes its place for a table of several sources."""
    return refreshed(spec, rebuild_command(spec))


def reload_of(spec: TableSpec) -> str:
    """What reads the files again that are there, or what takes its place for a table of several sources."""
    return refreshed(spec, f"load the files that are there with `gddl reload --from-files --table {spec.table}`")


def beside_others(state: TableState, others: Sequence[TableState]) -> TableState:
    """The state of a shard with what is known of the shared tables.

    Versions are the newest that any shard left, so that commits of shards are not taken for those of other writers.
    While a shard has had no change, its sequences have the type that the changes of another have.
    """
    foreign = tuple(dict.fromkeys(commit for one in (state, *others) for commit in one.foreign))
    state = replace(state, delta_versions=_newest([state, *others]), foreign=foreign)
    ordered = _ordered(others)
    if ordered is None:
        return state
    widest = _widest([state, *others])
    if state.max_sequence is not None:
        return replace(state, sequence_type=widest)
    return replace(state, sequence_by=ordered.sequence_by, sequence_type=widest, keeps_order=True)


def _widest(states: Sequence[TableState]) -> str | None:
    """The type that sequences of all shards with changes have in the tables: one may have come with wider numbers."""
    types = [one.sequence_type for one in states if one.max_sequence is not None and one.sequence_type is not None]
    return functools.reduce(lambda kind, other: other if holds(other, kind) else kind, types) if types else None


def holds(kind: str, other: str) -> bool:
    """Whether a type of `_gddl.sequence` is another one, or wider."""
    return merge(parse_type(kind), parse_type(other), NOTHING) == parse_type(kind)


def _ordered(states: Sequence[TableState]) -> TableState | None:
    """The first with changes, whose order the other shards follow; None: none has any."""
    return next((one for one in states if one.max_sequence is not None), None)


def _newest(states: Sequence[TableState]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for state in states:
        for name, version in state.delta_versions.items():
            versions[name] = max(version, versions.get(name, version))
    return versions


def require_same_order(
    table: str, shard: str, ordered_by: tuple[Sequence[str], str], others: Sequence[TableState]
) -> None:
    """Require that a source orders its changes as the other sources of the table do.

    Args:
        ordered_by: columns that order the shard's changes, and the SQL type of `_gddl.sequence`.

    Raises:
        FatalError: `SHARD_ORDER_DIFFERS`: the changes of another shard are ordered by others, or by another type.
    """
    columns, kind = ordered_by
    known = _ordered(others)
    if known is None or known.sequence_type is None or holds(kind, known.sequence_type):
        return
    stored, was = known.sequence_type, ", ".join(known.sequence_by or ())
    types = f"options: {{types: {{{was}: {stored}}}}}" if len(columns) == 1 else "the types of the others"
    raise FatalError(
        SHARD_ORDER_DIFFERS,
        f"{table}: changes of {shard} are ordered by {', '.join(columns)} ({kind}), those of other sources by {was} "
        f"({stored}); nothing of {shard} was written",
        remedy=f"declare what is stored: {types}; or declare another type, or name other columns in sequence_by, and "
        f"{LOAD_AGAIN}",
    )


def require_same_kind(spec: TableSpec, state: TableState, *, has_shards: bool) -> None:
    """Refuse a change between a table of one source and a table of several.

    Args:
        state: of the table's own ledger, in addition to those of its shards.

    Raises:
        FatalError: `SHARDS_CHANGED`: the table was loaded from one source and the row names several, or the reverse.
    """
    if has_shards and not spec.shards:
        what = f"{spec.table} was loaded from several sources, and the metadata names no shards"
    elif state.keys is not None and spec.shards:
        what = f"{spec.table} was loaded from one source, and the metadata names shards: {', '.join(spec.shards)}"
    else:
        return
    remedy = (
        "give the row a new target, into which it is loaded; or restore it, or remove the table with its folders in "
        "_gddl/ledger and _gddl/tombstones"
    )
    raise FatalError(SHARDS_CHANGED, what, where=spec.table, remedy=remedy)
