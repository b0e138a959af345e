"""Lists of the columns that an update carries: as a file delivers them, and as the tables store them.

A stored list has the names of the table's columns: an array, or text with commas between them, which no name in a table
has (`names.landed_name`). Delivered lists become stored ones here and nowhere else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.names import clean_name, landed_name, renamed
from spark_jobs.plan.table_schema import TableSchema

_AROUND = '[]" \t\r\n\f\v'
"""Characters around names in a list of columns."""
_BLANKS = " \t\r\n\f\v"


def stored_lists(lists: pa.Array, columns: Sequence[str], schema: TableSchema, emptied: Sequence[str] = ()) -> pa.Array:
    """Delivered lists, texts or arrays of text, as they are stored, of the same type; a null list is null.

    A list is a JSON array of names, or names between commas, in brackets or not, each in quotes or not. A name that has
    such characters itself is found where a column of the file is called so.

    Args:
        columns: of the file, under the names that the row gives them.
        emptied: columns of the table that each text has, too.
    """
    names = _ListedNames.of(columns, schema)
    if pt.is_list(lists.type) or pt.is_large_list(lists.type):
        of_arrays = [None if each is None else [names.stored(str(name)) for name in each] for each in lists.to_pylist()]
        return pa.array(of_arrays, lists.type)
    encoded = pc.dictionary_encode(lists.cast(pa.string()), null_encoding="encode")
    texts = encoded.dictionary.to_pylist()
    stored_texts = [
        None if text is None else ",".join(dict.fromkeys((*names.of_text(text), *emptied))) for text in texts
    ]
    return pa.array(stored_texts, pa.string()).take(encoded.indices).cast(lists.type)


def listed(lists: pa.Array, column: str) -> np.ndarray:
    """Whether stored lists have a column of the table; a null list has all."""
    wanted = column.lower()
    return _are(lists, lambda text: text is None or wanted in _stored_names(text))


def name_none(lists: pa.Array, columns: Sequence[str], schema: TableSchema) -> np.ndarray:
    """Whether stored lists have names, and none is that of a column of the file that they came in.

    Args:
        columns: as for `stored_lists`.
    """
    known = frozenset(_stored(column, schema).lower() for column in columns)
    return _are(lists, lambda text: bool(text) and known.isdisjoint(_stored_names(str(text))))


def _are(lists: pa.Array, test: Callable[[str | None], bool]) -> np.ndarray:
    if pt.is_list(lists.type) or pt.is_large_list(lists.type):
        lists = pa.array([None if names is None else ",".join(map(str, names)) for names in lists.to_pylist()])
    encoded = pc.dictionary_encode(lists.cast(pa.string()), null_encoding="encode")
    results = [test(text) for text in encoded.dictionary.to_pylist()]
    return np.array(results, dtype=bool)[np.asarray(encoded.indices)] if results else np.zeros(len(lists), dtype=bool)


@functools.lru_cache(maxsize=1024)
def _stored_names(text: str) -> frozenset[str]:
    """Names of a stored list in lower case. Asked for once a column of the table."""
    return frozenset(text.lower().split(","))


class _ListedNames:
    """Names that lists of a file may have, as they are and in lower case, to those of the table's columns."""

    def __init__(self, known: Mapping[str, str], schema: TableSchema) -> None:
        self._known, self._schema = known, schema
        self._longest = 1 + max((name.count(",") for name in known), default=0)

    @classmethod
    def of(cls, columns: Sequence[str], schema: TableSchema) -> _ListedNames:
        rename, row_names = schema.spec.rename, set(columns)
        given = [(column, column) for column in columns] + [
            (old, new) for old, new in rename.items() if new in row_names
        ]
        forms = {
            form: _stored(column, schema)
            for name, column in given
            for form in (name, clean_name(name), landed_name(name))
        }
        return cls({form.lower(): stored for form, stored in forms.items()} | forms, schema)

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
        bare = text.strip(_BLANKS)
        readings = [bare[1:-1], bare] if bare.startswith("[") and bare.endswith("]") else [bare]
        parsed = [self._between_commas(reading) for reading in readings]
        return min(parsed, key=lambda each: each[1])[0]

    def _between_commas(self, text: str) -> tuple[list[str], int]:
        """Names, and how many of them are no column of the file as they are."""
        parts, at, unknown = text.split(","), 0, 0
        names: list[str] = []
        while at < len(parts):
            longest = min(self._longest, len(parts) - at)
            runs = ((size, ",".join(parts[at : at + size]).strip(_BLANKS)) for size in range(longest, 0, -1))
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
    if not text.lstrip(_BLANKS).startswith("["):
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
