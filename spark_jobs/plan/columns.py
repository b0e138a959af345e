"""Columns as files deliver them and as they land; the rule of names is in `contract.column_names`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from airflow_gddl.contract.column_names import (
    SOURCE_SUFFIX,
    aliases,
    clean_name,
    delivered_name,
    is_kept,
    landed_name,
    mask_method,
)
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import MaskMethod, TableSpec
from airflow_gddl.contract.sql_types import ArrayType, MapType, SqlType, StructField, StructType, quote

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
class IncomingSchema:
    """The delivered data columns of one group of files, as the files name them, less technical and de-selected ones.

    Attributes:
        schema_id: the group's identity inside the batch.
        label: path of one of its files, for messages.
        only_deletes: its rows carry nothing but keys, so a column that it lacks is no schema change.
    """

    schema_id: int
    label: str
    columns: tuple[Column, ...]
    only_deletes: bool = False


@dataclass(frozen=True)
class LandedColumn:
    """A file's column and what it lands as; `name` and the names inside `type` follow the rule."""

    source: Column
    name: str
    type: SqlType


@dataclass(frozen=True)
class LandedGroup:
    """A group of files under landed names; columns in the file's order."""

    incoming: IncomingSchema
    columns: tuple[LandedColumn, ...]

    def column(self, name: str) -> LandedColumn | None:
        """The column that lands under that name, case-insensitive; null when there is none."""
        return self._by_name.get(name.lower())

    @cached_property
    def _by_name(self) -> dict[str, LandedColumn]:
        return {column.name.lower(): column for column in self.columns}


def land(group: IncomingSchema) -> LandedGroup:
    """Apply the rule to one group of files.

    Raises:
        FatalError: `COLUMN_NAMES_COLLIDE`; `COLUMN_NAME_RESERVED` when that comes from step 2, or a name is empty.
    """
    columns = tuple(_land_column(column, group.label) for column in group.columns)
    _refuse_collisions([(c.source.name, c.name) for c in columns], group.label)
    return LandedGroup(group, columns)


def _land_column(column: Column, label: str) -> LandedColumn:
    if not column.name:
        raise FatalError("COLUMN_NAME_RESERVED", "a column without a name", where=label, remedy="name it at the source")
    return LandedColumn(column, landed_name(column.name), _clean_type(column.type, label))


def _clean_type(kind: SqlType, label: str) -> SqlType:
    if isinstance(kind, ArrayType):
        return ArrayType(_clean_type(kind.element, label))
    if isinstance(kind, MapType):
        return MapType(_clean_type(kind.key, label), _clean_type(kind.value, label))
    if isinstance(kind, StructType):
        _refuse_collisions([(f.name, clean_name(f.name)) for f in kind.fields], f"{label}, inside {kind}")
        return StructType(tuple(StructField(clean_name(f.name), _clean_type(f.type, label)) for f in kind.fields))
    return kind


def _refuse_collisions(pairs: list[tuple[str, str]], where: str) -> None:
    seen: dict[str, str] = {}
    for source, landed in pairs:
        if landed.lower() in seen:
            raise _collision(seen[landed.lower()], source, landed, where)
        seen[landed.lower()] = source


def _collision(first: str, second: str, landed: str, where: str) -> FatalError:
    if clean_name(first).lower() != clean_name(second).lower():
        both = f"columns {first!r} and {second!r} would both land as {landed!r}"
        what = f"{both}: reserved names get {SOURCE_SUFFIX!r} appended"
        return FatalError("COLUMN_NAME_RESERVED", what, where=where, remedy=_REMEDY)
    what = f"columns {first!r} and {second!r} differ only by case or by characters that Delta refuses ({landed!r})"
    remedy = "rename one of them at the source, or have it left out there: exclude_columns would leave out both"
    return FatalError("COLUMN_NAMES_COLLIDE", what, where=where, remedy=remedy)


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
    emptied = [key for key in spec.keys if mask_method(key, spec) == "null"]
    if emptied:
        raise MetadataError(
            "KEY_MASKED",
            f"key column {emptied[0]!r} is masked with 'null', which leaves no row a key",
            where="mask",
            remedy="mask it with 'hmac' or 'hash', or choose other keys",
        )
    found = [(name, delivered_name(name) if stored else name) for name in names]
    kept = [(name, delivered) for name, delivered in found if is_kept(delivered, spec)]
    masks = {name: method for name, delivered in kept if (method := mask_method(delivered, spec)) is not None}
    return ColumnSelection(kept=tuple(name for name, _ in kept), masks=masks)


def withholds(spec: TableSpec) -> bool:
    """Whether some values must not be stored as they came: then none may be whose column is unknown."""
    return bool(spec.mask or spec.exclude_columns or spec.columns is not None)


def unknown_columns(groups: Iterable[Iterable[str]], spec: TableSpec) -> tuple[RunWarning, ...]:
    """Names in `columns`, `exclude_columns` and `mask` that no file of the batch has, not even as a before image.

    A warning each (`COLUMN_NOT_FOUND`), for a misspelt exclusion or mask lets through what it was meant to hold back.
    """
    found = {alias for names in groups for name in names for alias in aliases(name, spec)}
    fields = {"columns": spec.columns or (), "exclude_columns": spec.exclude_columns, "mask": tuple(spec.mask)}
    return tuple(
        warning
        for setting, listed in fields.items()
        for warning in _not_found(setting, _beyond(listed, found), "no file of this batch has")
    )


def _beyond(listed: Iterable[str], found: Collection[str]) -> list[str]:
    return [name for name in listed if clean_name(name).lower() not in found]


def unknown_described(columns: Iterable[str], descriptions: Iterable[str]) -> tuple[RunWarning, ...]:
    """Names in `column_descriptions` that the table does not have: a warning (`COLUMN_NOT_FOUND`)."""
    known = {clean_name(name).lower() for name in columns}
    return _not_found("column_descriptions", _beyond(descriptions, known), "the table does not have")


def _not_found(setting: str, names: Sequence[str], where: str) -> tuple[RunWarning, ...]:
    if not names:
        return ()
    message = f"{setting} names columns that {where}: {', '.join(map(repr, names))}"
    return (RunWarning(code="COLUMN_NOT_FOUND", message=message, count=len(names), sample=tuple(names)),)
