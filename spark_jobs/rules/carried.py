"""Which columns a change carries, and what a moved row keeps of those it doesn't (docs/semantics.md, sections 5 and 7).

Each row for itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.plan.columns import landed_name
from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.arrays import flat

_AROUND = '[]" \t\r\n\f\v'
"""Characters around names in a list of columns."""


def carried(rows: pa.Table, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each update carries a column."""
    found = np.ones(rows.num_rows, dtype=bool)
    if column in schema.lacking:
        lacking = pa.array(schema.lacking[column], pa.int32())
        found &= ~np.asarray(pc.is_in(flat(pc.struct_field(rows.column(GDDL), "schema")), value_set=lacking))
    listing = schema.spelled(schema.spec.columns_to_update)
    if listing is not None and column not in (listing, RESCUED) and not schema.is_technical(column):
        found &= _listed(flat(rows.column(listing)), column.lower())
    if schema.spec.ignore_null_updates:
        found &= np.asarray(flat(rows.column(column)).is_valid())
    return found


def completed(changes: pa.Table, schema: TableSchema, moved: np.ndarray) -> pa.Table:
    """The changes; updates that moved a row have the before images of columns that they don't carry, else null there.

    The row at the new key has nothing stored that could stay.

    Args:
        moved: which of them did, see `order.moved_rows`.
    """
    if not schema.partial:
        return changes
    rows = changes
    for column in (c for c in schema.columns if c not in schema.keys):
        without = moved & ~carried(changes, schema, column)
        if without.any():
            own, image = flat(changes.column(column)), _image(changes, schema, column)
            chosen = pc.if_else(pa.array(without), pa.nulls(len(own), own.type) if image is None else image, own)
            rows = rows.set_column(rows.schema.get_field_index(column), column, chosen)
    return rows


def incomplete(changes: pa.Table, schema: TableSchema, moved: np.ndarray) -> np.ndarray:
    """Which moved rows may lack values: of a column that the update doesn't carry, it has no before image either.

    A null image is a value where another column, none of the key, has an image: then the source sends whole rows.
    """
    result = np.zeros(changes.num_rows, dtype=bool)
    if not schema.partial or not moved.any():
        return result
    columns = [c for c in schema.columns if c not in schema.keys and c != RESCUED and not schema.is_technical(c)]
    images = {column: _image(changes, schema, column) for column in columns}
    whole = np.zeros(changes.num_rows, dtype=bool)
    for image in images.values():
        if image is not None:
            whole |= np.asarray(image.is_valid())
    for column, image in images.items():
        known = np.zeros(changes.num_rows, dtype=bool) if image is None else whole
        result |= moved & ~known & ~carried(changes, schema, column)
    return result


def _image(changes: pa.Table, schema: TableSchema, column: str) -> pa.Array | None:
    """Before images of a column; null: it has none of its own type."""
    prefix = schema.spec.before_image_prefix
    if prefix is None:
        return None
    wanted = landed_name(prefix + column).lower()
    name = next((c.name for c in schema.before if c.name.lower() == wanted), None)
    if name is None or name not in changes.column_names:
        return None
    image = flat(changes.column(name))
    return image if image.type == changes.schema.field(column).type else None


def _names(text: str) -> set[str]:
    """Names between commas in lower case: without blanks, and as they land."""
    parts = text.split(",")
    bare = str.maketrans("", "", _AROUND)
    return {part.translate(bare).lower() for part in parts} | {landed_name(p.strip(_AROUND)).lower() for p in parts}


def _listed(lists: pa.Array, column: str) -> np.ndarray:
    """Whether lists of columns, texts with commas or arrays, have a column in lower case; a null list has all."""
    if pt.is_list(lists.type) or pt.is_large_list(lists.type):
        lists = pa.array([None if names is None else ",".join(map(str, names)) for names in lists.to_pylist()])
    encoded = pc.dictionary_encode(lists.cast(pa.string()), null_encoding="encode")
    named = [text is None or column in _names(text) for text in encoded.dictionary.to_pylist()]
    return np.array(named, dtype=bool)[np.asarray(encoded.indices)] if named else np.zeros(len(lists), dtype=bool)
