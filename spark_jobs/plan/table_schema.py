"""Columns as files deliver them and as they land, and the planned schema of a table, for all engines; without pyspark.

The rule of names is in `contract.names`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from airflow_gddl.contract.codes import (
    COLUMN_NAME_RESERVED,
    COLUMN_NAMES_COLLIDE,
    COLUMN_NOT_FOUND,
    CONTROL_COLUMN_MISSING,
    KEY_MASKED,
    PROTECTED_COLUMN_MISSING,
)
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.file_names import timed_order
from airflow_gddl.contract.names import (
    SOURCE_SUFFIX,
    aliases,
    clean_name,
    delivered_name,
    is_kept,
    landed_name,
    mask_method,
    rows_for,
)
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.spec import MaskMethod, TableSpec
from airflow_gddl.contract.sql_types import (
    ArrayType,
    MapType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    parse_type,
    quote,
)
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.plan.applied_settings import ChangeSettings, change_settings, columns_of
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.source_snapshots import SnapshotRun

_REMEDY = "put one of them into exclude_columns, or rename it at the source"


@dataclass(frozen=True)
class Column:
    name: str
    type: SqlType

    def __str__(self) -> str:
        return f"{quote(self.name)} {self.type}"


@dataclass(frozen=True)
class Schema:
    """Columns in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """The column of that name, case-insensitive; null when there is none."""
        return self._by_name.get(name.lower())

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}


@dataclass(frozen=True)
class LandedColumn:
    """A file's column and what it lands as; `name` and the names inside `type` follow the rule."""

    source: Column
    name: str
    type: SqlType


@dataclass(frozen=True)
class LandedGroup:
    """Delivered columns of one group of files under landed names, in the files' order: its data columns, or its images.

    Attributes:
        label: path of one of its files, for messages.
        only_deletes: its rows carry nothing but keys, so a column that it lacks is no schema change.
        unavailable: names in the files of columns without a value, since updates did not send theirs.
    """

    label: str
    columns: tuple[LandedColumn, ...]
    only_deletes: bool = False
    unavailable: tuple[str, ...] = ()

    def column(self, name: str) -> LandedColumn | None:
        """The column that lands under that name, case-insensitive; null when there is none."""
        return self._by_name.get(name.lower())

    @cached_property
    def _by_name(self) -> dict[str, LandedColumn]:
        return {column.name.lower(): column for column in self.columns}


def land(
    label: str, columns: Iterable[Column], *, only_deletes: bool = False, unavailable: tuple[str, ...] = ()
) -> LandedGroup:
    """Apply the rule of names to the columns of one group of files; see `LandedGroup`.

    Raises:
        FatalError: `COLUMN_NAMES_COLLIDE`; `COLUMN_NAME_RESERVED` when that comes from step 2.
    """
    landed = tuple(LandedColumn(c, landed_name(c.name), clean_type(c.type, label)) for c in columns)
    require_distinct([(c.source.name, c.name) for c in landed], label)
    return LandedGroup(label, landed, only_deletes, unavailable)


def clean_type(kind: SqlType, label: str) -> SqlType:
    """The type with the names that fields inside it land under.

    Raises:
        FatalError: `COLUMN_NAMES_COLLIDE`.
    """
    if isinstance(kind, ArrayType):
        return ArrayType(clean_type(kind.element, label))
    if isinstance(kind, MapType):
        return MapType(clean_type(kind.key, label), clean_type(kind.value, label))
    if isinstance(kind, StructType):
        require_distinct([(f.name, clean_name(f.name)) for f in kind.fields], f"{label}, inside {kind}")
        return StructType(tuple(StructField(clean_name(f.name), clean_type(f.type, label)) for f in kind.fields))
    return kind


def require_distinct(pairs: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse columns, each with its name in the table, of which two would be one.

    Raises:
        FatalError: as `land`.
    """
    seen: dict[str, str] = {}
    for source, landed in pairs:
        if landed.lower() in seen:
            raise _collision(seen[landed.lower()], source, landed, where)
        seen[landed.lower()] = source


def _collision(first: str, second: str, landed: str, where: str) -> FatalError:
    if clean_name(first).lower() != clean_name(second).lower():
        both = f"columns {first!r} and {second!r} would both land as {landed!r}"
        what = f"{both}: reserved names get {SOURCE_SUFFIX!r} appended"
        return FatalError(COLUMN_NAME_RESERVED, what, where=where, remedy=_REMEDY)
    what = f"columns {first!r} and {second!r} differ only by case or by characters that Delta refuses ({landed!r})"
    one = second or first
    remedy = f"give one of them another name, `rename: {{{one}: …}}`, or leave it out, `exclude_columns: [{one}]`"
    return FatalError(COLUMN_NAMES_COLLIDE, what, where=where, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class ColumnSelection:
    """The columns of one group of files, by the files' names, in their order.

    Attributes:
        masks: for kept columns only.
    """

    kept: tuple[str, ...]
    masks: Mapping[str, MaskMethod]


def select_columns(names: Iterable[str], spec: TableSpec, *, stored: bool = False) -> ColumnSelection:
    """Decide for the delivered columns of a group of files, technical ones taken out.

    Keys and their before images are always kept. `exclude_columns` beats `columns`.

    Args:
        stored: the names are those of tables: a row that names `__v` means the column `__v_source`.

    Raises:
        MetadataError: `KEY_MASKED` where a key would be emptied; hashing a key is fine, equal keys stay equal.
    """
    emptied = [key for key in spec.keys if spec.mask and mask_method(key, spec) == "null"]
    if emptied:
        raise MetadataError(
            KEY_MASKED,
            f"key column {emptied[0]!r} is masked with 'null', which leaves no row a key",
            where="mask",
            remedy="mask it with 'hmac' or 'hash', or choose other keys",
        )
    if not withholds(spec):
        return ColumnSelection(kept=tuple(dict.fromkeys(names)), masks={})
    pairs = [(name, delivered_name(name) if stored else name) for name in names]
    rows = rows_for([delivered for _, delivered in pairs], spec)
    kept = [(name, delivered) for name, delivered in pairs if is_kept(delivered, rows[delivered])]
    masks = {name: mask_method(delivered, rows[delivered]) for name, delivered in kept}
    return ColumnSelection(
        kept=tuple(masks), masks={name: method for name, method in masks.items() if method is not None}
    )


def withholds(spec: TableSpec) -> bool:
    """Whether some values must not be stored as they came: then none may be whose column is unknown."""
    return bool(spec.mask or spec.exclude_columns or spec.columns is not None)


def unknown_columns(groups: Iterable[Iterable[str]], spec: TableSpec) -> Warnings:
    """Names in `columns` that no file of the batch has, not even as a before image: a warning (`COLUMN_NOT_FOUND`)."""
    if spec.columns is None:
        return ()
    known = {alias for names in groups for name in names for alias in aliases(name, spec)}
    unknown = _beyond(spec.columns, known)
    return _not_found("columns", unknown, "no file of this batch has")


def protected_columns(spec: TableSpec) -> dict[str, tuple[str, ...]]:
    """Fields of the row that keep values out of the lake, to the columns that they name."""
    return {"exclude_columns": spec.exclude_columns, "mask": tuple(spec.mask)}


def found_columns(
    groups: Iterable[Iterable[str]], spec: TableSpec, schemas: Iterable[Iterable[str]] = (), found: Iterable[str] = ()
) -> tuple[str, ...]:
    """Columns of files that no schema has: left out, rescued or ignored. Cleaned, in lower case, in order.

    Args:
        groups: columns of files.
        schemas: see `missing_protected`.
        found: those of earlier files.
    """
    stored = lowered(name for names in schemas for name in names)
    each = [aliases(name, spec) for names in groups for name in names if name.lower() not in stored]
    return tuple(sorted({*found, *(alias for known in each if stored.isdisjoint(known) for alias in known)}))


def missing_protected(
    spec: TableSpec, found: Iterable[str], schemas: Iterable[Iterable[str]] = ()
) -> dict[str, tuple[str, ...]]:
    """By field, names in `mask` and `exclude_columns` that nothing has or had, but those of `absent_columns`.

    Args:
        found: see `found_columns`.
        schemas: columns that reached the tables, by their names there.
    """
    if not (spec.exclude_columns or spec.mask):
        return {}
    stored = (form for names in schemas for name in names for form in (name, delivered_name(name)))
    elsewhere = (*spec.keys, *spec.sequence_by, *spec.derive)  # refused by other codes where nothing has them
    known = {*found, *(clean_name(name).lower() for name in (*stored, *elsewhere, *spec.absent_columns))}
    return beyond(protected_columns(spec), known)


def beyond(listed: Mapping[str, Sequence[str]], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """By field, the names that are not among known ones, see `found_columns`; fields without any are left out."""
    missing = {field: tuple(_beyond(names, known)) for field, names in listed.items()}
    return {field: names for field, names in missing.items() if names}


def protected_missing(table: str, missing: Mapping[str, Sequence[str]], known: Collection[str]) -> FatalError:
    """`PROTECTED_COLUMN_MISSING`: what a misspelt exclusion or mask means would be stored as it comes.

    Args:
        missing: see `missing_protected`; not empty.
        known: columns of the source, for a hint.
    """
    named = [f"{field} names {', '.join(map(_with_near(known), names))}" for field, names in missing.items()]
    what = f"{table}: {'; '.join(named)}, which no file has, and none had before; nothing was written"
    remedy = (
        "correct the name; where the source need not have the column, such as one that comes later, name it in "
        "absent_columns of the row, too"
    )
    return FatalError(PROTECTED_COLUMN_MISSING, what, remedy=remedy)


def _with_near(known: Collection[str]) -> Callable[[str], str]:
    spelled = {name.lower(): name for name in known}

    def shown(name: str) -> str:
        near = difflib.get_close_matches(name.lower(), spelled, n=1)
        return f"{name!r} (near: {spelled[near[0]]!r})" if near else repr(name)

    return shown


_LACKING = {
    "columns_to_update": "updates of these carry all columns",
    "force_update": "changes of these are not forced",
}


def controls_of(spec: TableSpec, dialect_list: str | None) -> dict[str, str]:
    """Fields of the row that say how changes are applied, to the columns of change files that they name.

    Args:
        dialect_list: the list that the dialect itself makes.
    """
    named = {field: getattr(spec, field) for field in _LACKING}
    return {field: name for field, name in named.items() if name not in (None, dialect_list)}


def lacks(names: Iterable[str], column: str) -> bool:
    """Whether columns, by their names in files or in the table, are all others."""
    wanted = landed_name(column).lower()
    return all(landed_name(name).lower() != wanted for name in names)


def without_controls(
    spec: TableSpec, controls: Mapping[str, str], changes: Sequence[tuple[str, Sequence[str]]], stored: Collection[str]
) -> Warnings:
    """Warnings (`COLUMN_NOT_FOUND`) of change files without a column that says how their changes are applied.

    Args:
        controls: see `controls_of`.
        changes: path and columns of change files; `stored`: columns of the table.

    Raises:
        FatalError: `CONTROL_COLUMN_MISSING`: neither the table nor any of these files has it, so that the row means
            another one.
    """
    run_warnings = []
    for setting, column in controls.items():
        lacking = [path for path, names in changes if lacks(names, column)]
        if not lacking:
            continue
        if len(lacking) == len(changes) and lacks(stored, column):
            what = f"{spec.table}: {setting} names the column {column!r}, which no change file has; nothing was written"
            remedy = (
                f"correct {setting} in the metadata row (`rename` counts), or leave it out until files have the column"
            )
            raise FatalError(CONTROL_COLUMN_MISSING, what, where=lacking[0], remedy=remedy)
        message = (
            f"{setting} names the column {column!r}, which change files lack, e.g. {lacking[0]}: {_LACKING[setting]}"
        )
        run_warnings.append(RunWarning(code=COLUMN_NOT_FOUND, message=message, count=1, sample=(column,)))
    return tuple(run_warnings)


def _beyond(listed: Iterable[str], known: Collection[str]) -> list[str]:
    return [name for name in listed if clean_name(name).lower() not in known]


def unknown_described(columns: Iterable[str], descriptions: Iterable[str]) -> Warnings:
    """Names in `column_descriptions` that the table does not have: a warning (`COLUMN_NOT_FOUND`)."""
    known = {clean_name(name).lower() for name in columns}
    return _not_found("column_descriptions", _beyond(descriptions, known), "the table does not have")


def _not_found(setting: str, names: Sequence[str], where: str) -> Warnings:
    if not names:
        return ()
    message = f"{setting} names columns that {where}: {', '.join(map(repr, names))}"
    return (RunWarning(code=COLUMN_NOT_FOUND, message=message, count=len(names), sample=tuple(names)),)


RESCUED = "_rescued_data"
GDDL = "_gddl"
ROW_ID, ROW_VERSION = f"{GDDL}__row_id", f"{GDDL}__row_version"
"""Columns of rows that are read to be written again, of a table with row ids: the id, and the version of the last
change. Rows that a commit adds have neither, and changed ones no version."""
EVENT_FIELDS = (("source_type", "string"), ("region", "string"), ("columns", "array<string>"))
"""Fields of `_gddl`, with their SQL types, that only the change table has: facts of an event that decide nothing."""
_STRING = ScalarType("string")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Names as spelled in the tables.

    Attributes:
        spec: the metadata row.
        keys: key columns; empty for an append-only replica.
        data: delivered columns of the replica in table order, keys among them.
        before: before-image columns, kept in the change table only.
        before_of_key: key column to its before-image column.
        sequence: columns that order changes, and the SQL type of `_gddl.sequence`.
        ordered_text: those whose text must have one form whose order is known, and is kept in its normal form, see
            `plan.sequence`; the service's own columns have theirs.
        one_change: the service may send a change again, into one file too.
        total: no two changes of a key share a sequence, unless it is a place in a log; else it is a commit time.
        number: column that tells changes of one place apart, which the table may lack; see `Dialect.number`.
        log_positions: the first sequence column holds positions in the source's log, see `Dialect.log_positions`.
        technical: columns that the CDC service adds (sequence, times, lists of columns, force): their change alone
            opens no version of the history.
        file_columns: data columns that describe the file that a change came in, and so may differ in another delivery.
        lacking: column to the schema ids whose files lack it and so keep its stored value.
        earlier: settings under which changes came that are not those of the row now, with the schema ids of these.
        file_order: what sorts change files, by path, in the order of their changes; None: the path has none.
        rescued: the tables have `_rescued_data`, of a policy that the row may no longer have.
        event_fields: the change table has `EVENT_FIELDS`, of settings that the row may no longer have.
        openings: snapshots of the source that have opened generations: changes before them belong to earlier ones.
        swept: rows of generations before this one have vanished from the replica, and none come back.
        truncates: of the source's table, in the order of changes: what precedes one is deleted by it.
        adopted: some rows are of another job, which may have columns of its own: an insert keeps what its file lacks of
            the row that its key has.
        batch_id: of the batch whose truncates are new; empty: no batch is worked on.
    """

    spec: TableSpec
    keys: tuple[str, ...]
    data: tuple[Column, ...]
    before: tuple[Column, ...] = ()
    before_of_key: Mapping[str, str] = field(default_factory=dict)
    sequence: tuple[str, ...] = ()
    sequence_type: str = "string"
    ordered_text: tuple[str, ...] = ()
    one_change: bool = False
    total: bool = True
    number: str | None = None
    log_positions: bool = False
    technical: tuple[str, ...] = ()
    file_columns: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    earlier: Mapping[ChangeSettings, tuple[int, ...]] = field(default_factory=dict)
    file_order: Callable[[str], str | None] = timed_order
    rescued: bool = False
    event_fields: bool = False
    openings: tuple[SnapshotRun, ...] = ()
    swept: int = 1
    truncates: tuple[Truncate, ...] = ()
    adopted: bool = False
    batch_id: str = ""

    def is_technical(self, column: str) -> bool:
        """Whether the CDC service adds the column to each change: it concerns the change, not the source's row."""
        named = (*self.technical, *self.sequence, *columns_of([change_settings(self.spec)]))
        return column.lower() in lowered((*named, *map(landed_name, named)))

    @property
    def shared_places(self) -> bool:
        """Whether several changes of a key may share a sequence: a commit time, or a place in a log."""
        return self.one_change or not self.total

    @property
    def follows_snapshots(self) -> bool:
        """Whether places in the source's log alone order changes, so that snapshots can open generations."""
        return self.log_positions and len(self.sequence) == 1

    @cached_property
    def text_sequence(self) -> tuple[str, ...]:
        """Sequence columns of which `_gddl.sequence` holds text."""
        kind = parse_type(self.sequence_type)
        if isinstance(kind, StructType):
            return tuple(f.name for f in kind.fields if f.type == _STRING)
        return self.sequence if kind == _STRING else ()

    @cached_property
    def rescues(self) -> bool:
        """Whether the tables have `_rescued_data`."""
        policy = self.spec.schema_evolution
        return self.rescued or policy.new_column == "rescue" or policy.type_change == "rescue"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the replica but `_gddl`."""
        return tuple(c.name for c in self.data) + ((RESCUED,) if self.rescues else ())

    @property
    def change_columns(self) -> tuple[str, ...]:
        """Columns of the change table but `_gddl`."""
        return self.columns + tuple(c.name for c in self.before)

    @property
    def content(self) -> tuple[str, ...]:
        """Columns that two deliveries of one change share."""
        return tuple(name for name in self.change_columns if name not in self.file_columns)

    @cached_property
    def partial(self) -> bool:
        """Some change of the table may carry less than the whole row, so the highest alone doesn't say the state."""
        return bool(self.lacking) or self._overlays

    @property
    def has_partial_updates(self) -> bool:
        """Whether updates of the table may carry less than the whole row."""
        return bool(self.lacking) or self._updates_parts

    def carries_parts(self, schemas: frozenset[int]) -> bool:
        """Whether changes from files of these schemas may carry a part of the row."""
        return self._overlays or any(schemas.intersection(ids) for ids in self.lacking.values())

    @property
    def _overlays(self) -> bool:
        """By its metadata; a soft delete, which may carry only the key, keeps the columns of the row before it."""
        return self._updates_parts or self.spec.delete == "soft"

    @cached_property
    def _updates_parts(self) -> bool:
        listings = (self.spelled(settings.columns_to_update) for settings in self.settings)
        return self.ignores_nulls or any(listing is not None for listing in listings)

    @cached_property
    def ignores_nulls(self) -> bool:
        """Whether some updates keep the stored value where they have a null."""
        return any(settings.ignore_null_updates for settings in self.settings)

    @cached_property
    def tells_events(self) -> bool:
        """Whether `_gddl` has `EVENT_FIELDS` in the change table.

        It has them once the row names the origin of its source, or updates of the table carry parts by its settings or
        its dialect, and keeps them.
        """
        has_origin = self.spec.source_type is not None or self.spec.region is not None
        return self.event_fields or has_origin or self._updates_parts

    @cached_property
    def settings(self) -> tuple[ChangeSettings, ...]:
        """Settings under which stored changes came, those of the row now first."""
        return (change_settings(self.spec), *self.earlier)

    @property
    def controls(self) -> tuple[str, ...]:
        """Columns that list columns or force changes, by settings of any time."""
        return self.named(columns_of(self.settings))

    @cached_property
    def forces(self) -> bool:
        """Whether changes may be forced."""
        return any(settings.force_update is not None for settings in self.settings)

    @property
    def forcing(self) -> tuple[str, ...]:
        """Columns that say which changes are forced."""
        names = (self.spelled(settings.force_update) for settings in self.settings)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def under(self, settings: ChangeSettings) -> TableSchema:
        """The schema of a row that has these settings and never had others."""
        return replace(self, spec=replace(self.spec, **asdict(settings)), earlier={})

    def spelled(self, name: str | None) -> str | None:
        """The table's spelling of a column, named as the source has it or as it landed; None: it has no such column."""
        if name is None:
            return None
        names, without_case = self._spellings
        forms = (form if form in names else without_case.get(form.lower()) for form in (name, landed_name(name)))
        return next((n for n in forms if n is not None), None)

    @cached_property
    def computed(self) -> Mapping[str, tuple[str, ...]]:
        """Computed columns, with those that they are computed from: an update may carry, or have images of, some."""
        trees = {self.spelled(name): self.spec.expressions.get(text) for name, text in self.spec.derive.items()}
        by_column = {
            name: tuple(source for source in map(self.spelled, tree.columns) if source is not None)
            for name, tree in trees.items()
            if name is not None and tree is not None
        }
        return {name: sources for name, sources in by_column.items() if sources}

    @cached_property
    def images_without_case(self) -> Mapping[str, str]:
        """Columns of before images by their names without case; of several the first."""
        return {column.name.lower(): column.name for column in reversed(self.before)}

    @cached_property
    def _spellings(self) -> tuple[frozenset[str], Mapping[str, str]]:
        """The columns, and the first one of each name without case."""
        names = [c.name for c in self.data]
        return frozenset(names), {n.lower(): n for n in reversed(names)}

    def named(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Columns that the metadata names, as the table spells them; those that it lacks as they are."""
        return tuple(self.spelled(column) or column for column in columns)

    @cached_property
    def gddl_type(self) -> str:
        """SQL type of the struct in replica, changes and history.

        The replica adds `deleted` under soft deletes, the change table `EVENT_FIELDS`, see `tells_events`.
        """
        return _struct(self.gddl_fields)

    @property
    def event_type(self) -> str:
        """SQL type of the struct as the change table has it."""
        return _struct((*self.gddl_fields, *(EVENT_FIELDS if self.tells_events else ())))

    @property
    def gddl_fields(self) -> tuple[tuple[str, str], ...]:
        return (
            ("sequence", self.sequence_type),
            ("op", "string"),
            ("commit_ts", "timestamp"),
            ("source_file", "string"),
            ("position", "bigint"),
            ("batch_id", "string"),
            ("generation", "int"),
            ("applied_at", "timestamp"),
            ("schema", "int"),
        )


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in fields)}>"
