"""What a batch does to the columns of a table, and how the columns of each group of its files reach them.

`plan_schema` decides before anything is written. It never narrows a type, never drops, moves or renames a column of
the table, and planned again against its own target it changes nothing, so that a batch repeated after a crash does the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from airflow_gddl.contract.codes import (
    ADDED_COLUMN_DEFAULT,
    COLUMN_TYPE_UNSUPPORTED,
    DEFAULT_OR_NULL,
    KEY_COLUMN_MISSING,
    LAYOUT_COLUMN_MISSING,
    SCHEMA_INCOMPATIBLE,
    SCHEMA_REFUSED,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import VOID, ScalarType, SqlType, quote, unsupported_part, without_void
from airflow_gddl.contract.table_spec import SchemaEvolution, SchemaGate
from spark_jobs.plan.table_schema import Column, LandedColumn, LandedGroup, Schema
from spark_jobs.plan.types import (
    NOTHING,
    Addition,
    Allowed,
    Path,
    Widening,
    convertible,
    dotted,
    extra_fields,
    merge,
    widenings,
)

_SHOWN = 5


@dataclass(frozen=True)
class ColumnDefault:
    """The default of a column in one file.

    Attributes:
        text: the default as JSON.
        alike: rows that have this value in a nullable column; `nulls`: rows that have null there.
    """

    column: str
    text: str
    alike: int = 0
    nulls: int = 0


def of_replaced_nulls(spec: TableSpec, defaults: Iterable[ColumnDefault]) -> Warnings:
    """Values that are the default of a nullable column, where no file shows whether the converter writes it for null.

    The engine that jobs run themselves keeps nulls.
    """
    if spec.options.get("replace_null_with_default") is not None or reads_of(spec) == "log":
        return ()
    defaults = tuple(defaults)
    proven = {one.column for one in defaults if one.nulls}
    doubtful = [one for one in defaults if one.alike and one.column not in proven]
    if not doubtful:
        return ()
    message = (
        "values equal the default of their column, which a converter of Kafka Connect writes for null, too, unless "
        "replace.null.with.default is false; set it to false in the connector (for Avro ignore.default.for.nullables "
        "to true), and name it in the metadata row, options.replace_null_with_default: false; true where "
        "nulls of these columns "
        "may be lost"
    )
    names = tuple(dict.fromkeys(one.column for one in doubtful))
    count = sum(one.alike for one in doubtful)
    return (RunWarning(code=DEFAULT_OR_NULL, message=message, count=count, sample=names[:_SHOWN]),)


def of_added_columns(spec: TableSpec, added: Sequence[str], defaults: Iterable[ColumnDefault]) -> Warnings:
    """Columns that a batch adds to a table, with a default that rows from before may have at the source.

    A log that jobs read themselves has its own checks of changes to the source's table.
    """
    if reads_of(spec) == "log":
        return ()
    by_column = {landed_name(renamed(one.column, spec)).lower(): one for one in defaults if one.text != "null"}
    found = [by_column[name.lower()] for name in added if name.lower() in by_column]
    if not found:
        return ()
    message = (
        "columns were added whose default rows from before may have at the source, while they have null here; take a "
        "new snapshot of the table, or compare it with the source and run "
        f"`gddl resync --differences --table {spec.table}`"
    )
    sample = tuple(f"{one.column} default {one.text}" for one in found)
    return (RunWarning(code=ADDED_COLUMN_DEFAULT, message=message, count=len(found), sample=sample[:_SHOWN]),)


STRING = ScalarType("string")


def evolve(
    table: Schema | None,
    groups: tuple[LandedGroup, ...],
    policy: SchemaEvolution,
    texts: Collection[str] = (),
    fixed: Collection[str] = (),
    live: Schema | None = None,
) -> Schema:
    """The target, which a policy of `fail` leaves unchanged; `refuse` checks the remaining differences.

    Args:
        texts: columns, in lower case, that the row declares to be text: they become it whatever the policy.
        fixed: columns, in lower case, that never become text: those that the replica is partitioned by.
        live: the columns that the table is to replace, with which policies compare what comes; None: there are none.
    """
    target = {column.name.lower(): column for column in table.columns} if table else {}
    old, replaced = frozenset(target), live or Schema(())
    for column in (column for group in groups for column in group.columns):
        name, known = column.name.lower(), replaced.column(column.name)
        if name in target:
            stored = target[name]
            # What a column of the live table holds is no change of the source.
            is_held = known is not None and merge(known.type, column.type, NOTHING) is not None
            new = name not in old or is_held
            widen = new or policy.type_change in ("widen", "text")
            merged = merge(stored.type, column.type, Allowed(add=new or policy.new_column == "add", widen=widen))
            is_text = policy.type_change == "text" or name in texts or (known is not None and known.type == STRING)
            # Text holds all values of both types; bytes are no text.
            if (
                merged is None
                and is_text
                and name not in fixed
                and all(str(kind) != "binary" and convertible(kind, STRING) for kind in (stored.type, column.type))
            ):
                merged = STRING
            target[name] = Column(stored.name, merged or stored.type)
        elif _is_taken(table, column, policy, live):
            kind = without_void(column.type)
            target |= {name: Column(column.name, kind)} if kind is not None else {}
    return Schema(tuple(target.values()))


def _is_taken(table: Schema | None, column: LandedColumn, policy: SchemaEvolution, live: Schema | None) -> bool:
    if live is not None:
        return live.column(column.name) is not None or policy.new_column == "add"
    if table is None and unsupported_part(column.type) is not None:
        return policy.new_column in ("add", "fail")
    return table is None or policy.new_column == "add"


def added(table: Schema, target: Schema) -> list[Addition]:
    """Columns and nested fields that the target has beyond the table, in the target's order."""
    additions: list[Addition] = []
    for column in target.columns:
        before = table.column(column.name)
        if before is None:
            additions.append(Addition((column.name,), column.type))
        else:
            additions += extra_fields(before.type, column.type, (column.name,))
    return additions


def widened(table: Schema, target: Schema) -> list[Widening]:
    """Columns and nested parts of the table that have another type in the target, in the table's order."""
    pairs = zip(table.columns, target.columns, strict=False)  # the target begins with the table's columns
    return [grown for before, after in pairs for grown in widenings(before.type, after.type, (before.name,))]


Policy = Literal["new_column", "type_change", "dropped_column", "require", "compatible"]
_REMEDIES: dict[Policy, str] = {
    "new_column": "add, rescue or ignore",
    "type_change": "widen or rescue",
    "dropped_column": "keep or null",
}


@dataclass(frozen=True)
class FieldDifference:
    """A field that a policy of `fail`, or the schema gate, refuses.

    Attributes:
        policy: the field of `schema_evolution` or `schema` that refuses it.
        table: type in the table, or of a new column by another file of the batch; null when the table lacks the field.
        incoming: type in the file; null when the file lacks it.
    """

    policy: Policy
    group: LandedGroup
    path: Path
    table: SqlType | None
    incoming: SqlType | None

    def __str__(self) -> str:
        table, incoming = self.table or "missing", self.incoming or "missing"
        rule = f"{self.policy}: fail" if self.policy in _REMEDIES else f"schema.{self.policy}"
        return f"{dotted(self.path)}: table {table}, file {incoming} ({rule})"


def refusal(table: Schema | None, differences: tuple[FieldDifference, ...]) -> FatalError:
    """`SCHEMA_REFUSED` for one or more differences; `table` is the schema before the batch, null when there is none."""
    groups, policies = list(dict.fromkeys(d.group for d in differences)), {d.policy for d in differences}
    of_groups = [(group.label, _lines(d for d in differences if d.group == group)) for group in groups]
    # What differs first: a short form of the message cuts the listings of all columns.
    blocks = [f"differing fields of {label}:\n{lines}" for label, lines in of_groups]
    blocks.append(_block("schema of the table", table.columns if table else None))
    blocks += [_block(f"schema of {group.label}", tuple(c.source for c in group.columns)) for group in groups]
    settings = [f"set schema_evolution.{name} to {way}" for name, way in _REMEDIES.items() if name in policies]
    code, what = SCHEMA_REFUSED, "the schema of the files is not the table's"
    remedy = f"{'; '.join(settings)}; or correct the source"
    if not settings:
        code, what = SCHEMA_INCOMPATIBLE, "the schema of the files would break consumers of the table"
        remedy = (
            "correct the source, and deliver the files again; or, once consumers are ready, change `schema` in the "
            "metadata row"
        )
    where = ", ".join(group.label for group in groups)
    return FatalError(code, "\n".join((what, *blocks, "nothing was written")), where=where, remedy=remedy)


def _block(title: str, columns: tuple[Column, ...] | None) -> str:
    return f"{title}:\n" + (_lines(columns) if columns else "  (no table yet)" if columns is None else "  (no columns)")


def _lines(items: Iterable[object]) -> str:
    return "\n".join(f"  {item}" for item in items)


PARTITION_TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "date", "string")
"""Types of partition columns. Readers disagree on how folders spell times and fractions."""


def require_keys(target: Schema, groups: tuple[LandedGroup, ...], keys: Mapping[str, str]) -> None:
    """Every group has every key, and the target knows its type.

    Args:
        keys: landed names in lower case to the names that the metadata uses.

    Raises:
        FatalError: `KEY_COLUMN_MISSING`.
    """
    for name, key in keys.items():
        lacking = [group for group in groups if group.column(name) is None or target.column(name) is None]
        if lacking:
            has = ", ".join(quote(column.source.name) for column in lacking[0].columns) or "none"
            raise FatalError(
                KEY_COLUMN_MISSING,
                f"key column {key!r} is missing, or holds nothing but nulls; columns of the file: {has}",
                where=", ".join(group.label for group in lacking),
                remedy="correct keys of the table (rename counts), or have the files re-delivered with the column; "
                "files that are none of the table's are taken out of the landing folder",
            )


def require_supported(table: Schema | None, target: Schema, groups: tuple[LandedGroup, ...]) -> None:
    """What the batch adds is of types that a table can hold; what the table has already is its own affair.

    Raises:
        FatalError: `COLUMN_TYPE_UNSUPPORTED`.
    """
    for column in target.columns:
        known = table.column(column.name) if table else None
        part = unsupported_part(column.type)
        if part is not None and known != column:
            labels = [g.label for g in groups if (c := g.column(column.name)) and unsupported_part(c.type)]
            raise FatalError(
                COLUMN_TYPE_UNSUPPORTED,
                f"column {column} cannot be added: no table holds the type {part}",
                where=", ".join(labels),
                remedy="put it into exclude_columns, or set schema_evolution.new_column to rescue or ignore",
            )


def require_layout(target: Schema, partitions: tuple[str, ...], clusters: tuple[str, ...]) -> None:
    """Rows are ordered and partitioned by columns of the table; by partitions of types whose values every reader finds
    in folders' names.

    Raises:
        FatalError: `LAYOUT_COLUMN_MISSING`, `COLUMN_TYPE_UNSUPPORTED`.
    """
    for setting, name in (*(("partition_by", n) for n in partitions), *(("cluster_by", n) for n in clusters)):
        column = target.column(landed_name(name))
        if column is None:
            raise FatalError(
                LAYOUT_COLUMN_MISSING,
                f"{setting} names {name!r}, which is not among the table's columns: {', '.join(target.names)}",
                remedy=f"correct {setting}, or load files that have the column first",
            )
        if setting == "partition_by" and str(column.type) not in PARTITION_TYPES:
            raise FatalError(
                COLUMN_TYPE_UNSUPPORTED,
                f"partition column {column} is none of {', '.join(PARTITION_TYPES)}",
                remedy="partition by a column of such a type, e.g. a date, or use cluster_by",
            )


def refuse(table: Schema | None, target: Schema, groups: tuple[LandedGroup, ...], policy: SchemaEvolution) -> None:
    """Find everything that policies of `fail` refuse, against the target that `evolve` made under the same policies.

    Raises:
        FatalError: `SCHEMA_REFUSED`, with every difference of the batch.
    """
    differences: list[FieldDifference] = []
    for group in groups:
        if policy.new_column == "fail":
            differences += _new_fields(target, group)
        if policy.type_change == "fail":
            differences += _misfits(target, group, "type_change", NOTHING)
    if policy.dropped_column == "fail":
        differences += _dropped(target, groups, "dropped_column")
    if differences:
        raise refusal(table, tuple(differences))


def require_compatible(table: Schema | None, groups: tuple[LandedGroup, ...], gate: SchemaGate) -> None:
    """Refuse what the schema gate does not let through, whatever policies say.

    Args:
        table: before the batch, or the live one that a reload replaces; None: there is none.

    Raises:
        FatalError: `SCHEMA_INCOMPATIBLE`, with every difference of the batch.
    """
    differences: list[FieldDifference] = []
    for group in groups:
        if not group.only_deletes:
            lacking = [name for name in gate.require if _lacks(group, name)]
            for name in lacking:
                known = None if table is None else table.column(landed_name(name))
                kind = None if known is None else known.type
                differences.append(FieldDifference("require", group, (name,), kind, None))
        if gate.compatible == "backward" and table is not None:
            differences += _misfits(table, group, "compatible", Allowed(add=True, widen=False))
    if gate.compatible == "backward" and table is not None:
        differences += _dropped(table, groups, "compatible")
    if differences:
        raise refusal(table, tuple(differences))


def _lacks(group: LandedGroup, name: str) -> bool:
    """Whether a group has no such column, or nothing but nulls in it; values that updates did not send are no nulls."""
    column = group.column(landed_name(name))
    return column is None or (column.type == VOID and column.source.name not in group.unavailable)


def _new_fields(target: Schema, group: LandedGroup) -> list[FieldDifference]:
    differences: list[FieldDifference] = []
    for column in group.columns:
        known = target.column(column.name)
        kind = without_void(column.type)
        if known is None and kind is not None:
            differences.append(FieldDifference("new_column", group, (column.name,), None, kind))
        elif known is not None:
            extras = extra_fields(known.type, column.type, (known.name,))
            differences += [FieldDifference("new_column", group, extra.path, None, extra.type) for extra in extras]
    return differences


def _misfits(table: Schema, group: LandedGroup, policy: Policy, allowed: Allowed) -> list[FieldDifference]:
    """Columns whose values the table's type does not hold, changed as far as allowed."""
    pairs = [(known, column) for column in group.columns if (known := table.column(column.name)) is not None]
    return [
        FieldDifference(policy, group, (known.name,), known.type, column.type)
        for known, column in pairs
        if merge(known.type, column.type, allowed) is None
    ]


def _dropped(target: Schema, groups: tuple[LandedGroup, ...], policy: Policy) -> list[FieldDifference]:
    """Fields that a group lacks and no later group brings.

    A file from before a column was added lacks it too; looking at the batch from its end, rather than at the table as
    it was, gives the same answer when the batch is repeated after the column was added.
    """
    differences: list[FieldDifference] = []
    missing_paths: list[set[Path]] = []
    for group in reversed([group for group in groups if not group.only_deletes]):
        missing = _missing(target, group)
        missing_paths.append({_folded(path) for path in missing})
        lost = [path for path in missing if all(_covers(later, _folded(path)) for later in missing_paths)]
        differences[:0] = [FieldDifference(policy, group, path, missing[path], None) for path in lost]
    return differences


def _missing(target: Schema, group: LandedGroup) -> dict[Path, SqlType]:
    """Columns and nested fields of the target that a group lacks, outermost only, with their types in the table."""
    missing: dict[Path, SqlType] = {}
    for column in target.columns:
        delivered = group.column(column.name)
        if delivered is None:
            missing[(column.name,)] = column.type
        else:
            missing |= {m.path: m.type for m in extra_fields(delivered.type, column.type, (column.name,))}
    return missing


def _folded(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _covers(missing: set[Path], path: Path) -> bool:
    return any(path[:length] in missing for length in range(1, len(path) + 1))


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
        live: columns of the table that the files load again, with which policies compare; None: those of the table.
        gate: what files must have, whatever policies say.
    """

    evolution: SchemaEvolution
    required: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    live: Schema | None = None
    gate: SchemaGate = field(default_factory=SchemaGate)


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
        groups: in the order given.
    """

    target: Schema
    additions: tuple[Addition, ...]
    widenings: tuple[Widening, ...]
    groups: tuple[GroupPlan, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """Schema changes as text for people: `added column tail_no string`, `widened seats int -> bigint`."""
        added = (f"added column {a.name} {a.type}" for a in self.additions)
        return (*added, *(f"widened {w.name} {w.before} -> {w.after}" for w in self.widenings))


def plan_schema(table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules) -> SchemaPlan:
    """Decide by policy what the groups of a batch, in the order of their files, do to a table.

    Args:
        table: its delivered columns now (without `_gddl` and `_rescued_data`); null when it doesn't exist. Then it is
            created with the columns of all groups, regardless of `new_column` unless `live` of the rules says
            what is new.
        groups: one for each distinct schema of the batch.

    A new column whose type differs between groups gets the type that holds all of them, where Delta's list leads to
    one, else that of the first group. A column of a complex type fits wholly or not at all.

    Raises:
        FatalError: `SCHEMA_REFUSED` where a policy is `fail`; `KEY_COLUMN_MISSING`; `LAYOUT_COLUMN_MISSING`;
            `SCHEMA_INCOMPATIBLE`; `COLUMN_TYPE_UNSUPPORTED` for
            a column to be added whose type no table can hold.
    """
    keys = {landed_name(key).lower(): key for key in rules.required}
    fixed, texts = ({landed_name(name).lower() for name in names} for names in (rules.partitions, rules.texts))
    target = evolve(table, groups, rules.evolution, texts, fixed, rules.live)
    require_keys(target, groups, keys)
    require_layout(target, rules.partitions, rules.clusters)
    require_compatible(rules.live or table, groups, rules.gate)
    refuse(table, target, groups, rules.evolution)
    require_supported(table, target, groups)
    return SchemaPlan(
        target=target,
        additions=() if table is None else tuple(added(table, target)),
        widenings=() if table is None else tuple(widened(table, target)),
        groups=tuple(_plan_group(g, target, rules.evolution, set(keys)) for g in groups),
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
    return policy.dropped_column == "null" and not group.only_deletes


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
