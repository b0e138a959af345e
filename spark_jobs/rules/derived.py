"""Columns under the names of the row (`rename`), and columns computed from them (`derive`).

Both hold from the first step on: to all others, files deliver these columns. Each row for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.column_names import landed_name, renamed
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import VOID, SqlType, parse_type
from spark_jobs.dialects.protocol import Dialect, declared_types, sql_type
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.batch_schema import DeliveredColumns, GroupDecoding, Landed
from spark_jobs.rules.convert import fit
from spark_jobs.rules.evaluate import Columns, tree_of
from spark_jobs.rules.read import RawGroup

_MOST_DIGITS = 38
_REAL = pa.float64()


def landed_as_named(group: Landed, dialect: Dialect, *, replayed: bool) -> Landed:
    """A group of files as if each had the columns under their names in the row, and the computed ones.

    Args:
        replayed: they are records of the quarantine, which may have them.

    Raises:
        FatalError: `RENAME_COLLIDES`, `DERIVED_COLUMN_TAKEN`; as `Columns.evaluate`.
    """
    spec = dialect.spec
    if not (spec.rename or spec.derive):
        return group
    names = _renamed([name for name, _ in group.columns], spec, group.label)
    stated = tuple((names.get(name, name), kind) for name, kind in group.stated)
    columns = [(names[name], kind) for name, kind in group.columns]
    taken = {landed_name(name).lower() for name, _ in columns}
    if not replayed and (both := sorted(name for name in spec.derive if landed_name(name).lower() in taken)):
        what = f"{spec.table}: files have the column {both[0]!r}, which derive computes"
        remedy = "give the computed column another name"
        raise FatalError("DERIVED_COLUMN_TAKEN", what, where=group.label, remedy=remedy)
    computed = {name.lower() for name in spec.derive}
    columns = [(name, kind) for name, kind in columns if name.lower() not in computed]
    kinds = {**dict(columns), **dict(stated)}
    kinds |= declared_types(dict(columns), dialect)
    typed = {name: parse_type(kinds[name]) for name, _ in columns}
    columns += [(name, kind) for name in spec.derive if (kind := _type_of(name, typed, spec)) is not None]
    return replace(group, columns=tuple(columns), stated=stated)


def raw_as_named(raw: RawGroup, how: GroupDecoding) -> RawGroup:
    """The rows of a group with these columns."""
    spec = how.dialect.spec
    if not (spec.rename or spec.derive):
        return raw
    names = _renamed(raw.columns, spec, "")
    columns, past, invalid = (
        {names.get(name, name): values for name, values in part.items()}
        for part in (raw.columns, raw.past, raw.invalid)
    )
    raw = replace(raw, columns=columns, past=past, invalid=invalid)
    delivered = DeliveredColumns(raw, how)
    for name in spec.derive:
        if name in how.types:
            columns = {**columns, name: _computed(name, delivered, how)}
    return replace(raw, columns=columns)


def derived_type(name: str, types: Mapping[str, SqlType], spec: TableSpec) -> SqlType | None:
    """The type of a computed column; null where one of its columns is missing.

    Args:
        types: by name of the columns.

    Raises:
        FatalError: as `Columns.evaluate`.
    """
    kind = _type_of(name, types, spec)
    return None if kind is None else parse_type(kind)


def derived_values(name: str, columns: Mapping[str, pa.Array], rows: int, kind: SqlType, spec: TableSpec) -> pa.Array:
    """The values of a computed column; what its type can't hold is null."""
    found = _of_columns(name, columns, rows, spec).evaluate(tree_of(spec, spec.derive[name]))
    found = _storable(found)
    target = arrow_type(kind)
    return found if found.type == target else fit(found, parse_type(sql_type(found.type)), kind).values


def _renamed(names: Iterable[str], spec: TableSpec, label: str) -> dict[str, str]:
    """Each name to the one that the row gives it; before images follow their columns."""
    found = {name: renamed(name, spec) for name in names}
    taken: dict[str, str] = {}
    for name, after in found.items():
        other = taken.setdefault(landed_name(after).lower(), name)
        if other != name and (found[other] != other or after != name):
            what = f"{spec.table}: {other!r} and {name!r} would both be the column {after!r}"
            raise FatalError("RENAME_COLLIDES", what, where=label, remedy="correct `rename` in the row")
    return found


def _type_of(name: str, types: Mapping[str, SqlType], spec: TableSpec) -> str | None:
    tree = tree_of(spec, spec.derive[name])
    known = {landed_name(column).lower(): column for column in types}
    sources = [known.get(landed_name(source).lower()) for source in tree.columns]
    if any(source is None for source in sources):
        return None
    if any(types[source] == VOID for source in sources if source is not None):
        return str(VOID)
    empty = {column: pa.array([], arrow_type(kind)) for column, kind in types.items() if column in sources}
    return sql_type(_storable(_of_columns(name, empty, 0, spec).evaluate(tree)).type)


def _of_columns(name: str, columns: Mapping[str, pa.Array], rows: int, spec: TableSpec) -> Columns:
    known = {landed_name(column).lower(): column for column in columns}
    return Columns(columns, rows, lambda one: known.get(landed_name(one).lower()), f"{spec.table}, derive.{name}")


def _storable(values: pa.Array) -> pa.Array:
    """Numbers of more digits than a table can hold, as doubles."""
    if pt.is_decimal(values.type) and values.type.precision > _MOST_DIGITS:
        return values.cast(_REAL)
    return values


def _computed(name: str, delivered: DeliveredColumns, how: GroupDecoding) -> pa.Array:
    spec, kind = how.dialect.spec, how.types[name]
    if kind == VOID:
        return delivered.nulls(kind)
    wanted = {landed_name(source).lower() for source in tree_of(spec, spec.derive[name]).columns}
    found = {
        column: delivered.delivered(column)[0].values for column in how.types if landed_name(column).lower() in wanted
    }
    return derived_values(name, found, delivered.group.rows, kind, spec)
