"""Which columns a change carries, and what a moved row keeps of those it doesn't (docs/semantics.md, sections 5 and 7).

Each row for itself. A stored list of columns has the names of the table's columns: an array, or text with commas
between them, which no name in a table has (`names.landed_name`). Delivered lists become stored ones here and nowhere
else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.names import before_image_name, clean_name, landed_name, renamed
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import RESCUED, TableSchema
from spark_jobs.plan.types import NOTHING, convertible, merge
from spark_jobs.rooms.dialects.protocol import sql_type
from spark_jobs.rules.arrays import all_false, all_true, flat, gddl_field, is_true, recast, with_values
from spark_jobs.rules.convert import Fitted, Mask, but, each, either, fit, mask_of
from spark_jobs.rules.errors_table import entries
from spark_jobs.rules.texts import BLANKS


def by_settings(rows: pa.Table, schema: TableSchema, rule: Callable[[pa.Table, TableSchema], np.ndarray]) -> np.ndarray:
    """A mask of rows by a rule that asks the row's settings: of each change by those under which it came."""
    mask = rule(rows, schema)
    stored = gddl_field(rows, "schema")
    for settings, ids in schema.earlier.items():
        where = came_by(stored, ids)
        if where.any():
            mask[where] = rule(rows.filter(where), schema.under(settings))
    return mask


def came_by(ids: pa.Array | pa.ChunkedArray, schema_ids: tuple[int, ...]) -> np.ndarray:
    """Whether each change, by the `schema` of its `_gddl`, is of one of these schemas of the ledger."""
    return np.array(pc.is_in(ids, value_set=pa.array(schema_ids, ids.type)), dtype=bool)


def carried(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each update carries a column.

    A value that was rescued is one, though its column is null. The rescued column is carried by all: it is folded by
    what it holds, see `fold.with_rescued`.
    """
    return by_settings(rows, schema, lambda part, under: _carried(part, under, column))


def delivered(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each change that is no update carries a column: a null is a value of it."""

    def rule(part: pa.Table, under: TableSchema) -> np.ndarray:
        return _carried(part, replace(under, spec=replace(under.spec, ignore_null_updates=False)), column)

    return by_settings(rows, schema, rule)


def _carried(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    mask = all_true(rows.num_rows)
    if column == RESCUED:
        return mask
    if sources := schema.computed.get(column, ()):
        for source in sources:
            mask &= _carried(rows, schema, source)
        return mask
    mask &= has_column(rows, schema, column)
    if not schema.is_technical(column):
        mask &= _lists(rows, schema, column)
    if schema.spec.ignore_null_updates:
        mask &= np.asarray(flat(rows.column(column)).is_valid()) | _rescued(rows, schema, column)
    return mask


def has_column(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether the file of each change has a column, or all from which it is computed."""
    mask = all_true(rows.num_rows)
    for name in schema.computed.get(column, ()) or (column,):
        if name in schema.lacking:
            lacking = pa.array(schema.lacking[name], pa.int32())
            mask &= ~np.asarray(pc.is_in(gddl_field(rows, "schema"), value_set=lacking))
    return mask


def lists(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each update has a column in its list of columns, or no list."""
    return by_settings(rows, schema, lambda part, under: _lists(part, under, column))


def _lists(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    listing = schema.spelled(schema.spec.columns_to_update)
    if listing is None or column == listing:
        return all_true(rows.num_rows)
    return listed(flat(rows.column(listing)), column)


def replaces_unknown(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Whether each update replaces rescued values of columns that the table lacks: it carries all that it has."""
    return by_settings(rows, schema, _replaces_unknown)


def _replaces_unknown(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    listing = schema.spelled(schema.spec.columns_to_update)
    if schema.spec.ignore_null_updates:
        return all_false(rows.num_rows)
    return all_true(rows.num_rows) if listing is None else np.array(flat(rows.column(listing)).is_null())


def _rescued(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each change has a rescued value of a column."""
    if not schema.rescues or flat(rows.column(RESCUED)).null_count == rows.num_rows:
        return all_false(rows.num_rows)
    texts = flat(rows.column(RESCUED)).to_pylist()
    return np.array([column.lower() in entries(text) for text in texts], dtype=bool)


def completed(changes: pa.Table, schema: TableSchema, moved: np.ndarray) -> pa.Table:
    """The changes; updates that moved a row have the before images of columns that they don't carry, else null there.

    The row at the new key has nothing stored that could stay.

    Args:
        moved: which of them did, see `order.moved_rows`.
    """
    if not schema.partial:
        return changes
    values = {}
    for column in (c for c in schema.columns if c not in (*schema.keys, RESCUED)):
        without = moved & ~carried(changes, schema, column)
        if without.any():
            delivered, image = flat(changes.column(column)), before_image(changes, schema, column)
            values[column] = chosen(
                without, pa.nulls(len(delivered), delivered.type) if image is None else image.values, delivered
            )
    return with_values(changes, values)


def incomplete(changes: pa.Table, schema: TableSchema, moved: np.ndarray) -> np.ndarray:
    """Which moved rows may lack values: of a column that the update doesn't carry, it has no before image either.

    An image that is no value of the column's type is none.
    A null image is a value where another column, none of the key, has an image: then the source sends whole rows.
    """
    result = all_false(changes.num_rows)
    if not schema.partial or not moved.any():
        return result
    excluded = {*schema.keys, RESCUED, *schema.computed}  # computed columns follow theirs
    columns = [c for c in schema.columns if c not in excluded and not schema.is_technical(c)]
    images = {column: before_image(changes, schema, column) for column in columns}
    whole: Mask = None
    for image in images.values():
        if image is not None:
            whole = either(whole, either(mask_of(image.values.is_valid()), image.misfit))
    for column, image in images.items():
        lacking = moved & ~carried(changes, schema, column)
        known = None if image is None else but(whole, image.misfit)
        result |= lacking if known is None else lacking & ~known
    return result


def before_image(changes: pa.Table, schema: TableSchema, column: str) -> Fitted | None:
    """Before images of a column in the type that it has by now, null where they are no value of it; None: it has none.

    Images are stored in types of their own: they widen regardless of the schema's policies.
    """
    prefix = schema.spec.before_image_prefix
    image_name = None if prefix is None else schema.images_without_case.get(before_image_name(prefix, column).lower())
    name = schema.before_of_key.get(column, image_name)
    if name is None or changes.schema.get_field_index(name) < 0:
        return None
    image, kind = flat(changes.column(name)), changes.schema.field(column).type
    if image.type == kind:
        return Fitted(image)
    source, target = parse_type(sql_type(image.type)), parse_type(sql_type(kind))
    if merge(target, source, NOTHING) is not None:
        return Fitted(recast(image, kind))
    if convertible(source, target):
        return fit(image, source, target, schema.spec.sub_microseconds)
    return Fitted(pa.nulls(len(image), kind), mask_of(image.is_valid()))


def chosen(where: np.ndarray, yes: pa.Array, no: pa.Array) -> pa.Array:
    """As `pc.if_else`, also for nested types."""
    if not pt.is_nested(no.type):
        return pc.if_else(where, yes, no)
    rows = np.arange(len(no))
    return pa.concat_arrays([yes, no]).take(np.where(where, rows, rows + len(no)))


_AROUND = '[]" \t\r\n\f\v'
"""Characters around names in a list of columns."""


def stored_lists(lists: pa.Array, columns: Sequence[str], schema: TableSchema, emptied: Sequence[str] = ()) -> pa.Array:
    """Delivered lists, texts or arrays of text, as they are stored, of the same type; a null list is null.

    A list is a JSON array of names, or names between commas, in brackets or not, each in quotes or not. A name that has
    such characters itself is found where a column of the file is called so.

    Args:
        columns: of the file, under the names that the row gives them.
        emptied: columns of the table that each text has, too.
    """
    names = _ListedNames(columns, schema)
    if pt.is_list(lists.type) or pt.is_large_list(lists.type):
        of_arrays = [None if row is None else [names.stored(str(name)) for name in row] for row in lists.to_pylist()]
        return pa.array(of_arrays, lists.type)
    stored = each(
        lists.cast(pa.string()),
        lambda text: ",".join(dict.fromkeys((*names.of_text(text), *emptied))),
        pa.string(),
    )
    return stored.cast(lists.type)


def listed(lists: pa.Array, column: str) -> np.ndarray:
    """Whether stored lists have a column of the table; a null list has all."""
    wanted = column.lower()
    has = each(_texts_of(lists), lambda text: wanted in _stored_names(text), pa.bool_())
    return np.asarray(pc.fill_null(has, True))


def name_none(lists: pa.Array, columns: Sequence[str], schema: TableSchema) -> np.ndarray:
    """Whether stored lists have names, and none is that of a column of the file that they came in.

    Args:
        columns: as for `stored_lists`.
    """
    known = frozenset(_stored(column, schema).lower() for column in columns)
    return is_true(
        each(_texts_of(lists), lambda text: bool(text) and known.isdisjoint(_stored_names(text)), pa.bool_())
    )


def _texts_of(lists: pa.Array) -> pa.Array:
    if pt.is_list(lists.type) or pt.is_large_list(lists.type):
        lists = pa.array([None if names is None else ",".join(map(str, names)) for names in lists.to_pylist()])
    return lists.cast(pa.string())


@functools.lru_cache(maxsize=1024)
def _stored_names(text: str) -> frozenset[str]:
    """Names of a stored list in lower case. Asked for once a column of the table."""
    return frozenset(text.lower().split(","))


class _ListedNames:
    """Names that lists of a file may have, as they are and in lower case, to those of the table's columns."""

    def __init__(self, columns: Sequence[str], schema: TableSchema) -> None:
        rename, row_names = schema.spec.rename, set(columns)
        given = [(column, column) for column in columns] + [
            (old, new) for old, new in rename.items() if new in row_names
        ]
        forms = {
            form: _stored(column, schema)
            for name, column in given
            for form in (name, clean_name(name), landed_name(name))
        }
        self._known, self._schema = {form.lower(): stored for form, stored in forms.items()} | forms, schema
        self._longest = 1 + max((name.count(",") for name in forms), default=0)

    def stored(self, name: str) -> str:
        """The table's name of a column; of one that the file lacks the name that it would have.

        An empty text is a name where the file has a column without one.
        """
        if not name:
            return self._known.get(clean_name(name), "")
        return (
            self._known.get(name)
            or self._known.get(name.lower())
            or _stored(renamed(name, self._schema.spec), self._schema)
        )

    def of_text(self, text: str) -> list[str]:
        if (names := _json_names(text)) is not None:
            return [self.stored(name) for name in names]
        bare = text.strip(BLANKS)
        readings = [bare[1:-1], bare] if bare.startswith("[") and bare.endswith("]") else [bare]
        parsed = [self._between_commas(reading) for reading in readings]
        return min(parsed, key=lambda each: each[1])[0]

    def _between_commas(self, text: str) -> tuple[list[str], int]:
        """Names, and how many of them are no column of the file as they are."""
        parts, at, unknown = text.split(","), 0, 0
        names: list[str] = []
        while at < len(parts):
            longest = min(self._longest, len(parts) - at)
            runs = ((size, ",".join(parts[at : at + size]).strip(BLANKS)) for size in range(longest, 0, -1))
            taken = next(((size, name) for size, run in runs if (name := self._exact(run)) is not None), None)
            if taken is None:
                unknown += 1
                bare = parts[at].strip(_AROUND)
                taken = 1, self.stored(bare) if bare else ""
            at += taken[0]
            names.append(taken[1])
        return names, unknown

    def _exact(self, name: str) -> str | None:
        if not name:
            return None
        quoted = len(name) > 1 and name[0] == name[-1] == '"'
        bare = name[1:-1] if quoted else name
        known = (self._known.get(form) for form in (name, name.lower(), bare, bare.lower()))
        return next(filter(None, known), None)


def _stored(column: str, schema: TableSchema) -> str:
    """The table's name of a column of a file under the name that the row gives it."""
    return schema.spelled(column) or landed_name(column)


def _json_names(text: str) -> list[str] | None:
    """The names of a JSON array of texts; None: it is none."""
    if not text.lstrip(BLANKS).startswith("["):
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
