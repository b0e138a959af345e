"""Owners and tags of a pipeline's DAG: those of its rows, bounded where it holds many. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from airflow_gddl.contract.spec import Priority, TableSpec

NO_OWNER = "gddl"
_LONGEST_TAG = 100
_MOST_OWNERS, _MOST_OWNER_TAGS, _MOST_LABELS = 5, 10, 20
"""Of a pack: Airflow shows all owners and tags of a DAG in one cell."""


def owner_of(tables: Sequence[TableSpec]) -> str:
    """The owners of the rows as Airflow separates them; `gddl` when there are none, or more than fit."""
    owners = sorted({table.owner for table in tables if table.owner})
    return ", ".join(owners) if 0 < len(owners) <= _MOST_OWNERS else NO_OWNER


def tags_of(tables: Sequence[TableSpec], tier: str, priority: Priority) -> tuple[str, ...]:
    """Source, tier and priority, `owner:<owner>` and the labels of the rows, sorted; of a pack the most frequent ones.

    Args:
        tables: of one source; never empty.
        priority: the highest of them.
    """
    alone = len(tables) == 1
    owners = [f"owner:{table.owner}" for table in tables if table.owner]
    labels = [f"{key}:{value}" if value else key for table in tables for key, value in table.tags.items()]
    own = ("gddl", tables[0].source, tier, f"priority:{priority}")
    chosen = (*own, *_most(owners, _MOST_OWNER_TAGS), *(labels if alone else _most(labels, _MOST_LABELS)))
    return tuple(sorted({tag[:_LONGEST_TAG] for tag in chosen}))


def _most(tags: Iterable[str], limit: int) -> list[str]:
    """The most frequent ones, by name where as many rows have them: independent of the order of rows."""
    return [tag for tag, _ in Counter(sorted(tags)).most_common(limit)]
