"""Does the replica hold what its change table folds to? Compared value by value (docs/semantics.md, section 14).

Needs all rows and events of a key together; holds for any partition of the keys, or of whole rows without keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import change_schema
from spark_jobs.rules.codes import row_codes, table_codes
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.measure import BUCKETS, Verdict
from spark_jobs.rules.order import events, gddl_fields
from spark_jobs.rules.redelivery import keys_json
from spark_jobs.rules.sweep import of_shard, unmarked


def expected_state(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Rows that the replica should have: each key's fold in its highest generation, deleted ones left out.

    Args:
        happened: see `order.events`; all events of each key. Of a table without keys, its changes.
        swept: rows of generations before this one have vanished.
    """
    if not schema.keys:
        return happened.filter(pc.greater_equal(gddl_fields(happened)["generation"], swept)).select(schema.columns)
    rows = newest_state(happened, schema, swept)
    return rows.filter(pc.not_equal(gddl_fields(rows)["op"], "D")).select(schema.columns)


def live_rows(replica: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows that are not marked deleted. Marks are as of the last batch, regardless of the current row.

    Args:
        replica: `_gddl` may be left out where it has no marks. Columns that it lacks are left out.
    """
    there = set(replica.column_names)
    return unmarked(replica).select([name for name in schema.columns if name in there])


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Of some keys; see `Verdict`.

    Attributes:
        buckets: those, by the key's hash, that hold keys that differ.
    """

    rows: int
    expected_rows: int
    buckets: frozenset[int]
    keys: tuple[dict[str, str], ...]


MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"


def differing_keys(
    live: pa.Table, expected: pa.Table, columns: Sequence[str], by: Sequence[str]
) -> tuple[pa.Table, np.ndarray]:
    """A row of each key whose rows differ in some of the columns, and `MISSING`, `EXTRA` or `DIFFERENT` of each.

    Args:
        by: columns of the key.
    """
    live = by_name(live, expected.schema)
    mine, theirs = table_codes((live, expected), columns)
    size = max(int(mine.max(initial=0)), int(theirs.max(initial=0))) + 1
    odd = np.bincount(mine, minlength=size) != np.bincount(theirs, minlength=size)
    rows = pa.concat_tables([live.filter(pa.array(odd[mine])), expected.filter(pa.array(odd[theirs]))])
    here = np.concatenate([np.ones(int(odd[mine].sum()), bool), np.zeros(int(odd[theirs].sum()), bool)])
    key = row_codes([rows.column(c) for c in by], rows.num_rows)
    first = np.unique(key, return_index=True)[1]
    has, wants = np.bincount(key, weights=here), np.bincount(key, weights=~here)
    states = np.where(has == 0, MISSING, np.where(wants == 0, EXTRA, DIFFERENT))
    return rows.take(pa.array(first)), states[key[first]]


def compare(live: pa.Table, expected: pa.Table, schema: TableSchema, limit: int) -> Comparison:
    """What differs."""
    samples, states = differing_keys(live, expected, schema.columns, schema.keys or schema.columns)
    keyed = bool(schema.keys)
    texts = keys_json(samples, schema) if keyed else [repr(row) for row in samples.to_pylist()]
    buckets = frozenset(zlib.crc32(text.encode("utf-8", "surrogatepass")) % BUCKETS for text in texts)
    named = sorted(zip(texts, states.tolist(), strict=True))[:limit] if keyed else []
    return Comparison(rows=live.num_rows, expected_rows=expected.num_rows, buckets=buckets,
                      keys=tuple({"key": text, "state": state} for text, state in named))  # fmt: skip


def verdict(replica: pa.Table, changes: pa.Table, schema: TableSchema, *, swept: int, limit: int) -> Verdict:
    """The verdict on a whole table; `swept`: rows of generations before this one have vanished."""
    replica = of_shard(replica, schema.spec.shard)
    changes = of_shard(by_name(changes, change_schema(schema)), schema.spec.shard)
    expected = expected_state(events(changes, schema) if schema.keys else changes, schema, swept)
    return verdict_of([compare(live_rows(replica, schema), expected, schema, limit)], limit)


def verdict_of(comparisons: Iterable[Comparison], limit: int) -> Verdict:
    """The verdict on a whole table, from comparisons of all its keys."""
    found = list(comparisons)
    keys = sorted((key for one in found for key in one.keys), key=lambda key: key["key"])[:limit]
    return Verdict(
        rows=sum(v.rows for v in found),
        expected_rows=sum(v.expected_rows for v in found),
        buckets_different=len(frozenset[int]().union(*(v.buckets for v in found))),
        keys=tuple(keys),
    )
