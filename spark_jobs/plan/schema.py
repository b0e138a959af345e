"""What a batch does to the columns of a table, and how the columns of each group of its files reach them.

`plan_schema` decides before anything is written. It never narrows a type, never drops, moves or renames a column of
the table, and planned again against its own target it changes nothing, so that a batch repeated after a crash does the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.sql_types import VOID, SqlType, without_void
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.columns import Column, IncomingSchema, LandedGroup, Schema, land, landed_name
from spark_jobs.plan.conversion import convertible
from spark_jobs.plan.enforcement import refuse, require_clusters, require_keys, require_partitions, require_supported
from spark_jobs.plan.evolution import added, evolve, widened
from spark_jobs.plan.merging import NOTHING, Addition, Widening, extra_fields, merge

LATER = "dropped_column=null"
"""Stands in the columns that a change carries for those that its table got later: `dropped_column` was `null`."""
How = Literal["same", "cast", "fit", "missing_keep", "missing_null"]
Misfit = Literal["rescue", "quarantine"]


@dataclass(frozen=True, kw_only=True)
class SchemaRules:
    """The schema settings of the table's metadata.

    Attributes:
        required: key columns, as the source names them: every group must have them.
        partitions, clusters: columns to partition by and to order rows by, as the source names them: the table must
            have them.
        texts: columns that the row declares to be text, as the source names them.
        live: columns of the table that the files load again, with which policies compare; null: those of the table.
    """

    evolution: SchemaEvolution
    required: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    live: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnAction:
    """How one column of the target gets its values from one group of files.

    Attributes:
        target: the column after evolution.
        source: name in the file, in its own case; null when the file lacks the column.
        source_type: type in the file, with the file's own field names; null when the file lacks the column.
        how: `same`: as it is. `cast`: always without loss; structs by field name (case-insensitive, characters
            replaced as `clean_name` does), never by position, absent nested fields null. `fit`: value by value, what
            doesn't convert and come back equal is a misfit. `missing_keep`: not carried. `missing_null`: carried as
            null.
        misfit: where rows (quarantine) or values (rescue) go that don't fit; matters only for `fit`.
        convertible: false for a `fit` where every value but null is a misfit, without trying: complex types, or
            unrelated ones such as numbers and dates.
        keep_original: the value holds nested fields that the table doesn't take: besides the `cast`, the whole original
            value goes to the rescued column.
    """

    target: Column
    source: str | None
    source_type: SqlType | None
    how: How
    misfit: Misfit
    convertible: bool = True
    keep_original: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """Plan of the columns of one group of files: each is the source of an action, or rescued, or ignored.

    Attributes:
        actions: one per column of the target, in its order.
        rescued: columns of the file, by its names, that go wholly to the rescued column.
        ignored: columns of the file, by its names, that go nowhere: as the policy says, or nothing but nulls (void).
        void: those of them with nothing but nulls, by their landed names: should the table get such a column, what came
            before it did is known to be null there.
        empties: a change carries columns that it lacks as null, also those that the table gets later.
    """

    actions: tuple[ColumnAction, ...]
    rescued: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    void: tuple[str, ...] = ()
    empties: bool = False

    @property
    def schema(self) -> dict[str, str]:
        """Columns that a change of this group carries (semantics, section 5), with their types in the files."""
        kept = {a.target.name: str(a.source_type or VOID) for a in self.actions if a.how != "missing_keep"}
        later = (LATER,) if self.empties else ()
        return kept | dict.fromkeys((*self.void, *later), str(VOID))


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """The decision for one batch.

    Attributes:
        target: the delivered columns of the table after evolution: its own in their order, then new ones as they came.
        additions, widenings: what must change in the table; empty when it is created by this batch.
        groups: by `schema_id`.
    """

    target: Schema
    additions: tuple[Addition, ...]
    widenings: tuple[Widening, ...]
    groups: Mapping[int, GroupPlan]

    @property
    def changes(self) -> tuple[str, ...]:
        """The same for people: `added column tail_no string`, `widened seats int -> bigint`."""
        added = (f"added column {a.name} {a.type}" for a in self.additions)
        return (*added, *(f"widened {w.name} {w.before} -> {w.after}" for w in self.widenings))


def plan_schema(table: Schema | None, incoming: tuple[IncomingSchema, ...], rules: SchemaRules) -> SchemaPlan:
    """Decide by policy what the groups of a batch, in the order of their files, do to a table.

    Args:
        table: its delivered columns now (without `_gddl` and `_rescued_data`); null when it doesn't exist. Then it is
            created with the columns of all groups, regardless of `new_column` unless `rules.live` says what is new.
        incoming: one for each distinct schema of the batch.

    A new column whose type differs between groups gets the type that holds all of them, where Delta's list leads to
    one, else that of the first group. A column of a complex type fits wholly or not at all.

    Raises:
        FatalError: `SCHEMA_REFUSED` where a policy is `fail`; `KEY_COLUMN_MISSING`; `PARTITION_COLUMN_MISSING`;
            `CLUSTER_COLUMN_MISSING`; `PARTITION_TYPE_UNSUPPORTED`; `COLUMN_NAMES_COLLIDE`;
            `COLUMN_NAME_RESERVED`; `COLUMN_TYPE_UNSUPPORTED` for a column to be added whose type no table can hold.
    """
    groups = tuple(land(group) for group in incoming)
    keys = {landed_name(key).lower(): key for key in rules.required}
    fixed, texts = ({landed_name(name).lower() for name in names} for names in (rules.partitions, rules.texts))
    target = evolve(table, groups, rules.evolution, texts, fixed, rules.live)
    require_keys(target, groups, keys)
    require_partitions(target, rules.partitions)
    require_clusters(target, rules.clusters)
    refuse(table, target, groups, rules.evolution)
    require_supported(table, target, groups)
    return SchemaPlan(
        target=target,
        additions=() if table is None else tuple(added(table, target)),
        widenings=() if table is None else tuple(widened(table, target)),
        groups={g.incoming.schema_id: _plan_group(g, target, rules.evolution, set(keys)) for g in groups},
    )


def _plan_group(group: LandedGroup, target: Schema, policy: SchemaEvolution, keys: set[str]) -> GroupPlan:
    actions = tuple(_action(group, column, policy, column.name.lower() in keys) for column in target.columns)
    unused = [column for column in group.columns if target.column(column.name) is None]
    rescued = [c for c in unused if policy.new_column == "rescue" and without_void(c.type) is not None]
    return GroupPlan(
        actions=actions,
        rescued=tuple(column.source.name for column in rescued),
        ignored=tuple(column.source.name for column in unused if column not in rescued),
        void=tuple(column.name for column in unused if column.type == VOID),
        empties=_empties(group, policy),
    )


def _empties(group: LandedGroup, policy: SchemaEvolution) -> bool:
    """Whether columns that a group lacks are null in its changes; else updates keep what is stored."""
    return policy.dropped_column == "null" and not group.incoming.only_deletes


def _action(group: LandedGroup, target: Column, policy: SchemaEvolution, is_key: bool) -> ColumnAction:
    misfit: Misfit = "rescue" if policy.type_change == "rescue" and not is_key else "quarantine"
    column = group.column(target.name)
    if column is None:
        how: How = "missing_null" if _empties(group, policy) else "missing_keep"
        return ColumnAction(target=target, source=None, source_type=None, how=how, misfit=misfit)
    kind, keep = column.source.type, False
    if kind == target.type:
        how = "same"
    elif merge(target.type, column.type, NOTHING) is None:
        how = "fit"
    else:
        how = "cast"
        keep = policy.new_column == "rescue" and any(extra_fields(target.type, column.type, (target.name,)))
    return ColumnAction(
        target=target,
        source=column.source.name,
        source_type=kind,
        how=how,
        misfit=misfit,
        convertible=how != "fit" or convertible(kind, target.type),
        keep_original=keep,
    )
