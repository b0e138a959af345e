"""Whether a replica is what its change table gives, or equals another table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.layout import Layout
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import DeltaSchema, by_name
from spark_jobs.rules.order import as_events, for_both_keys
from spark_jobs.rules.other_table import CHANGES, OURS, THEIRS, OtherTableFindings, OtherTableRule, findings_of
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stored_columns import change_schema, key_schema
from spark_jobs.rules.verify import Comparison, Verdict, compare, expected_state, live_rows, verdict_of
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.table_rows import Source, by_key

_REPLICA, _CHANGES = "replica", "changes"


@dataclass(frozen=True, kw_only=True)
class _Comparing:
    """Rules of a comparison; sent to tasks."""

    schema: TableSchema
    swept: int
    limit: int

    @property
    def keys(self) -> pa.Schema:
        """Columns by which rows of the two tables belong together: without a key, those whose values have an order."""
        kinds = DeltaSchema(self.schema.data).arrow
        names = self.schema.keys or [field.name for field in kinds if not pt.is_nested(field.type)]
        return pa.schema([kinds.field(name) for name in names])

    def changes(self, rows: pa.Table) -> pa.Table:
        shard_rows = of_shard(by_name(rows, change_schema(self.schema)), self.schema.spec.shard)
        return for_both_keys(shard_rows, self.schema)

    def replica(self, rows: pa.Table) -> pa.Table:
        return live_rows(of_shard(rows, self.schema.spec.shard), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        happened = as_events(rows[_CHANGES], self.schema) if self.schema.keys else rows[_CHANGES]
        comparison = compare(rows[_REPLICA], expected_state(happened, self.schema, self.swept), self.schema, self.limit)
        return json.dumps(
            [comparison.rows, comparison.expected_rows, sorted(comparison.buckets), comparison.keys]
        ).encode()


def verify(tables: Tables, layout: Layout, schema: TableSchema, *, swept: int, limit: int) -> Verdict:
    """See `StoredRows.verify`."""
    rule, replica = _Comparing(schema=schema, swept=swept, limit=limit), tables.existing(layout.replica)
    ours = {*schema.columns, GDDL}
    columns = [name for name in replica.schema.names if name in ours]
    sources = {
        _REPLICA: Source.of(replica, rule.replica, columns),
        _CHANGES: Source.of(tables.existing(layout.changes), rule.changes),
    }
    return verdict_of((_comparison(report) for report in by_key(tables, sources, rule.keys, rule)), limit)


def _comparison(report: bytes) -> Comparison:
    rows, expected_rows, buckets, keys = json.loads(report)
    return Comparison(rows=rows, expected_rows=expected_rows, buckets=frozenset(buckets), keys=tuple(keys))


def compared_with(tables: Tables, layout: Layout, path: str, rule: OtherTableRule) -> OtherTableFindings:
    """See `StoredRows.compared_with`."""
    sources = {
        THEIRS: Source.of(tables.existing(path), rule.theirs, rule.read),
        OURS: Source.of(tables.existing(layout.replica), rule.ours, [*rule.columns, GDDL]),
        CHANGES: Source.of(tables.existing(layout.changes), rule.changes),
    }
    return findings_of(by_key(tables, sources, key_schema(rule.schema), rule), rule.shown)
