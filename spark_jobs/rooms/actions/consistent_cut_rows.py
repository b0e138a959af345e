"""The rows of a table as of the moment of a cut: a rebuild from the changes before its bound, written as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.consistent_cut import CutKind, Moment, time_place
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.file_names import is_resynced
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import SqlType, parse_type
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import iso
from spark_jobs.plan.planned_batch import TableState, Truncate
from spark_jobs.plan.source_snapshots import text_of
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.plan.types import NOTHING, merge, widens
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.fold import rebuilt_rows
from spark_jobs.rules.order import ARCHIVED, as_events, for_both_keys, gddl_fields, ordered
from spark_jobs.rules.stored_columns import change_schema, key_schema
from spark_jobs.rules.truncates import MOST_KEPT
from spark_jobs.tables import table_definition
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.file_rules import Output, output_of, written
from spark_jobs.tables.table_rows import FileRule, Source, by_file, by_key, without_places

CHANGES = "changes"
_APP = "as-of"
VOID = "void"
"""Type of a column that files have nothing but nulls in."""


def as_of(schema: TableSchema, moment: Moment) -> TableSchema:
    """The schema with the truncates of the source that the cut has."""

    def is_in(one: Truncate) -> bool:
        place = _place_of(one, moment.kind)
        return place is not None and place < moment.bound

    return replace(schema, truncates=tuple(one for one in schema.truncates if is_in(one)))


def _place_of(truncate: Truncate, kind: CutKind) -> str | None:
    """None: it has none in the order of transactions."""
    if kind == "log":
        return text_of(truncate.sequence)
    return None if truncate.commit_ts is None else time_place(moment_of(truncate.commit_ts))


def unplaced_truncates(state: TableState, kind: CutKind) -> int:
    """How many truncates have no place: nothing tells whether the cut has them."""
    return sum(_place_of(one, kind) is None for one in state.truncates)


@dataclass(frozen=True, kw_only=True)
class CutRule:
    """Which changes a cut has, and the rows that follow from them; sent to tasks.

    Attributes:
        schema: with the truncates of the cut alone.
        generation: that the cut begins with; `least`: when its full load was read; see `CutFacts`.
    """

    schema: TableSchema
    kind: CutKind
    bound: str
    generation: int
    least: str = ""

    def lacks_archived(self, gddl: Mapping[str, pa.Array]) -> pa.Array:
        """Mask of changes that a reload has archived, and that the cut may need; by commit time, nothing tells which of
        them the full load has read."""
        archived, of_load = pc.equal(gddl["generation"], ARCHIVED), pc.equal(gddl["op"], "R")
        needed = pc.fill_null(self.before(gddl), True)
        archived = pc.and_(archived, pc.invert(of_load))
        if self.kind == "log":
            needed = pc.and_(needed, pc.fill_null(pc.greater_equal(gddl["sequence"], self.least), True))
        return pc.and_(archived, needed)

    def before(self, gddl: Mapping[str, pa.Array]) -> pa.Array:
        """Mask of changes whose places are before the bound; of changes without a place, null."""
        if self.kind == "log":
            return pc.less(gddl["sequence"], self.bound)
        if not self.bound:
            return pc.and_(pc.is_valid(gddl["commit_ts"]), False)
        return pc.less(gddl["commit_ts"], pa.scalar(datetime.fromisoformat(self.bound), gddl["commit_ts"].type))

    def has(self, gddl: Mapping[str, pa.Array]) -> pa.Array:
        """Mask of the changes of the cut, and of the rows of its full loads."""
        known = pc.and_(pc.greater(gddl["generation"], ARCHIVED), pc.less_equal(gddl["generation"], self.generation))
        mine = pc.or_(_are_loaded(gddl), pc.fill_null(self.before(gddl), False))
        return pc.and_(known, pc.fill_null(mine, False))

    def changes(self, rows: pa.Table) -> pa.Table:
        """The changes of the cut, at their keys."""
        return self._of_keys(rows.filter(self.has(gddl_fields(rows))))

    def of_generation(self, rows: pa.Table) -> pa.Table:
        """The changes of the newest generation, whether the cut has them or not, at their keys."""
        return self._of_keys(rows.filter(pc.equal(gddl_fields(rows)["generation"], self.generation)))

    def _of_keys(self, kept: pa.Table) -> pa.Table:
        return for_both_keys(by_name(kept, change_schema(self.schema)), self.schema)

    # Rules of tasks

    def overtaken(self, _storage: Storage, rows: Mapping[str, pa.Table]) -> int:
        """Of how many keys the cut has a change that follows one that it lacks, in the order of the source's log.

        Args:
            rows: see `of_generation`; all changes of each key.
        """
        schema = replace(self.schema, truncates=())
        events = ordered(as_events(rows[CHANGES], schema), schema)
        lacks = np.asarray(pc.invert(self.has(gddl_fields(events.rows))), dtype=bool)[events.at]
        key = np.cumsum(events.begins)
        before = np.cumsum(lacks)
        first = np.concatenate([[0], before[:-1]])[events.starts][key - 1] if len(key) else before
        return len(np.unique(key[~lacks & (before > first)]))

    def made(self, output: Output, storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
        """Write rows of the replica that changes give, of which there are all of each key; see `Output.report`."""
        rebuilt = rebuilt_rows(as_events(rows[CHANGES], self.schema), self.schema, self.generation)
        return output.report(storage, rebuilt)

    def scan(self, _storage: Storage, rows: pa.Table) -> dict[str, Any]:
        """See `Included`."""
        gddl = gddl_fields(rows)
        archived, counts = _count(self.lacks_archived(gddl)), pc.greater(gddl["generation"], ARCHIVED)
        gddl = {name: part.filter(counts) for name, part in gddl.items()}
        has, before = self.has(gddl), self.before(gddl)
        mine = {name: part.filter(has) for name, part in gddl.items()}
        files = pc.unique(mine["source_file"].filter(pc.equal(mine["generation"], self.generation))).to_pylist()
        again = [path for path in files if path is not None and is_resynced(path)]
        highest, lowest = self._around(gddl, has)
        return {
            "changes": len(mine["op"]), "archived": archived,
            "commit_ts": _iso(pc.max(mine["commit_ts"])),
            "schemas": [one for one in pc.unique(mine["schema"]).to_pylist() if one is not None],
            "unplaced": _count(pc.and_(pc.is_null(before), pc.invert(_are_loaded(gddl)))),
            "resynced": _count(pc.is_in(mine["source_file"], value_set=pa.array(again, pa.string()))),
            "oldest": _iso(pc.min(gddl["applied_at"].filter(pc.invert(has)))), "highest": highest, "lowest": lowest,
        }  # fmt: skip

    def _around(self, gddl: Mapping[str, pa.Array], has: pa.Array) -> tuple[str | None, str | None]:
        """`Included.highest` and `lowest` of a file."""
        if not pt.is_string(gddl["sequence"].type):
            return None, None
        here = pc.equal(gddl["generation"], self.generation)
        mine, others = (gddl["sequence"].filter(pc.and_(here, mask)) for mask in (has, pc.invert(has)))
        return pc.max(mine).as_py(), pc.min(others).as_py()


@dataclass(frozen=True, kw_only=True)
class Included:
    """What a look at `_gddl` of all changes says of those that a cut has.

    Attributes:
        rule: by which they were chosen.
        changes: their number; `commit_ts`: the newest of them, ISO 8601 UTC; None: none.
        schemas: column sets that they came with, see `TableState.schemas`.
        unplaced: changes without a place; `resynced`: those in files that a job has read from the source again;
            `archived`: see `CutRule`.
        highest, lowest: of texts that order the changes of the newest generation, the last of the cut's, and the first
            of the others; None: none, or they are no texts.
        oldest_excluded: when the first change was applied that the cut lacks, ISO 8601 UTC; None: it lacks none.
    """

    rule: CutRule
    changes: int = 0
    commit_ts: str | None = None
    schemas: frozenset[int] = frozenset()
    unplaced: int = 0
    resynced: int = 0
    archived: int = 0
    highest: str | None = None
    lowest: str | None = None
    oldest_excluded: str | None = None

    @property
    def are_mixed(self) -> bool:
        """Whether the order of the source's log is another one than that of commit times, around the bound."""
        is_by_log = self.rule.kind == "time" and not self.rule.schema.spec.sequence_by
        return is_by_log and None not in (self.highest, self.lowest) and str(self.highest) > str(self.lowest)

    def truncates_gone(self, state: TableState) -> int | None:
        """How many truncates the ledger keeps, where it may have forgotten one that the cut needs; None: it has not."""
        known = len(state.truncates)
        return known if known >= MOST_KEPT and not self.rule.schema.truncates else None


def columns_of(included: Included, state: TableState, schema: TableSchema) -> tuple[Column, ...]:
    """Columns of the made table: of those of the replica the ones that its changes had, in their types."""
    came: dict[str, list[SqlType]] = {}
    for number in sorted(included.schemas):
        for name, kind in state.schemas[number].items():
            came.setdefault(name.lower(), []).append(parse_type(kind))
    tracked = {name.lower() for one in state.schemas for name in one}
    kept = []
    for column in table_definition.replica_columns(schema):
        name = column.name.lower()
        if name in came and column.name not in schema.keys:
            kept.append(Column(column.name, _of_then(column.type, came[name])))
        elif name not in tracked or column.name in schema.keys:
            kept.append(column)
    return tuple(kept)


def _of_then(now: SqlType, kinds: Sequence[SqlType]) -> SqlType:
    """The type that held the values of these, where it has only grown since."""
    then = reduce(lambda one, other: (merge(one, other, NOTHING) or now) if one != other else one, kinds)
    return then if str(then) != VOID and widens(then, now) else now


def most(reports: Iterable[Mapping[str, Any]], name: str) -> Any:
    """The greatest value of a field in some reports; None: it is null in all."""
    return max((one[name] for one in reports if one[name] is not None), default=None)


def least(reports: Iterable[Mapping[str, Any]], name: str) -> Any:
    """The least one; see `most`."""
    return min((one[name] for one in reports if one[name] is not None), default=None)


def scanned(tables: Tables, path: str, rule: CutRule) -> Included:
    """Look at `_gddl` of all changes of a table."""
    parts = reports(tables, path, rule.scan)

    def total(name: str) -> int:
        return sum(part[name] for part in parts)

    return Included(
        rule=rule, changes=total("changes"), commit_ts=most(parts, "commit_ts"),
        schemas=frozenset(number for part in parts for number in part["schemas"]), unplaced=total("unplaced"),
        resynced=total("resynced"), archived=total("archived"), highest=most(parts, "highest"),
        lowest=least(parts, "lowest"), oldest_excluded=least(parts, "oldest"),
    )  # fmt: skip


def reports(tables: Tables, path: str, rule: FileRule) -> list[dict[str, Any]]:
    """What a rule reports of `_gddl` of each file of a table."""
    source = Source.of(tables.existing(path), without_places, [GDDL])
    return by_file(tables, source, rule)


def overtaken(tables: Tables, path: str, rule: CutRule) -> int:
    """See `CutRule.overtaken`, of all keys of a table."""
    source = Source.of(tables.existing(path), rule.of_generation)
    return sum(by_key(tables, {CHANGES: source}, key_schema(rule.schema), rule.overtaken))


def _are_loaded(gddl: Mapping[str, pa.Array]) -> pa.Array:
    """Mask of rows of a full load, which have no place; those of a snapshot have one."""
    return pc.and_(pc.equal(gddl["op"], "R"), pc.is_null(gddl["sequence"]))


def _count(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _iso(moment: pa.Scalar) -> str | None:
    value = moment.as_py()
    return None if value is None else iso(value)


def make(
    tables: Tables, changes: str, path: str, rule: CutRule, columns: Sequence[Column], tier: TierSpec
) -> int:  # fmt: skip
    """Write the table of a cut in one commit; returns its number of rows.

    Args:
        changes, path: of the change table, and of the new table.
        columns: of the new table.
    """
    names = {column.name for column in columns}
    usual = table_definition.replica(rule.schema, path, tier)
    definition = replace(
        usual, columns=tuple(columns), partition_by=tuple(name for name in usual.partition_by if name in names),
        cluster_by=tuple(name for name in usual.cluster_by if name in names), properties={},
    )  # fmt: skip
    tables.create(definition)
    output = replace(output_of(tables, path, rule.schema.keys, tables.moment * 1000), keys=None)
    source = Source.of(tables.existing(changes), rule.changes)
    files, rows = written(by_key(tables, {CHANGES: source}, key_schema(rule.schema), partial(rule.made, output)))
    tables.commit(path, Write(app=_APP, version=1, written=files, metrics={"numOutputRows": rows}))
    return rows
