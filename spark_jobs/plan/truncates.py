"""Truncates of a source's table: which take effect, and which wait for a user; pure.

A truncate deletes every row of the table that precedes it in the order of changes. It names no keys, so that it is kept
as a tombstone of the whole table, in the ledger (docs/semantics.md, section 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.sequence import sort_key

MOST_KEPT = 100
"""Truncates that the ledger keeps of a table without a history, which only the newest concerns."""


Place = tuple[int, tuple[tuple[int, Any], ...]]
"""Sorts truncates as the order of changes does."""


def place_of(truncate: Truncate) -> Place:
    """Generation and sequence."""
    return truncate.generation, sort_key(truncate.sequence)


def truncates_after(
    known: Sequence[Truncate], found: Iterable[Truncate], *, history: bool = True
) -> tuple[Truncate, ...]:
    """Truncates of a table after a batch, in the order of changes; of deliveries of one the first is kept."""
    every = {(one.generation, one.sequence): one for one in (*reversed(list(found)), *known)}
    in_order = tuple(sorted(every.values(), key=place_of))
    return in_order if history else in_order[-MOST_KEPT:]


def unknown_truncates(known: Sequence[Truncate], found: Iterable[Truncate]) -> tuple[Truncate, ...]:
    """Truncates that delete more than the known ones do, in the order of changes."""
    latest = place_of(known[-1]) if known else None
    return tuple(sorted((one for one in found if latest is None or place_of(one) > latest), key=place_of))


def are_applied(spec: TableSpec, *, released: bool) -> bool:
    """Whether the truncates of a batch take effect.

    Args:
        released: a user has released them.
    """
    return spec.truncate == "apply" or (spec.truncate == "hold" and released)
