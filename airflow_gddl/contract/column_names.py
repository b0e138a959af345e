"""Names of columns: those that files deliver, those that tables have, and which of them a metadata row means.

The rule for delivered names, for every table the same:
1. each character that Delta refuses in names (blank ``, ; { } ( ) =``, line feed, tab) becomes `_`, nested ones too;
2. a column whose name is ours or Delta's own (`is_reserved`) gets `_source` appended;
3. two columns of one file that would land under names that are equal, or differ only by case, are refused.

A row may name a column by any of these forms; case does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from airflow_gddl.contract.table_spec import MaskMethod, TableSpec

# Those of Delta, and NUL, at which interfaces in C end a name.
_REFUSED = str.maketrans(dict.fromkeys(" ,;{}()\n\t=\0", "_"))
# Ours, Spark's hidden file column, and the names that a change data feed takes.
_OURS = ("_rescued_data", "_metadata", "_change_type", "_commit_version", "_commit_timestamp")
_PREFIXES = ("_gddl", "__")
SOURCE_SUFFIX = "_source"


def clean_name(name: str) -> str:
    """A delivered name with `_` for characters that names of columns can't have."""
    return name.translate(_REFUSED)


def is_reserved(name: str) -> bool:
    """Whether a delivered column may not keep this name: `_gddl`, `_rescued_data`, `__...`, and Delta's own."""
    return name.lower() in _OURS or name.lower().startswith(_PREFIXES)


def landed_name(name: str) -> str:
    """Steps 1 and 2 of the rule, for a column; `__v` and `__v_source` get different names."""
    cleaned = clean_name(name)
    return cleaned + SOURCE_SUFFIX if is_reserved(cleaned) else cleaned


def delivered_name(stored: str) -> str:
    """The name under which files deliver a column of a table, but for characters: the inverse of step 2."""
    bare = stored.removesuffix(SOURCE_SUFFIX)
    return bare if is_reserved(bare) else stored


def is_before_image(name: str, prefix: str | None) -> bool:
    """Whether a column is a before image, by its name in files or in tables; null: there are none."""
    return bool(prefix) and clean_name(name).lower().startswith(clean_name(prefix or "").lower())


def before_image_name(prefix: str, column: str) -> str:
    """The name in tables of the before image of a table's column."""
    return landed_name(prefix + delivered_name(column))


def renamed(name: str, spec: TableSpec) -> str:
    """The name that `rename` gives a delivered column; a before image follows its column."""
    places, after = _places(tuple(spec.rename)), tuple(spec.rename.values())
    if (at := places.get(clean_name(name).lower(), places.get(landed_name(name).lower()))) is not None:
        return after[at]
    column = _column_of_image(name, spec)
    if column is not None and (follows := renamed(column, spec)) != column:
        return (spec.before_image_prefix or "") + follows
    return name


def is_kept(name: str, spec: TableSpec) -> bool:
    """Whether a delivered column reaches the lake; keys, computed columns and their before images always do."""
    if _listed(name, spec.keys, spec):
        return True
    if _listed(name, spec.exclude_columns, spec):
        return False
    return spec.columns is None or _listed(name, (*spec.columns, *spec.derive), spec)


def mask_method(name: str, spec: TableSpec) -> MaskMethod | None:
    """The mask of a delivered column; for a before image its column's."""
    places = _places(tuple(spec.mask))
    found = [places[alias] for alias in aliases(name, spec) if alias in places]
    return tuple(spec.mask.values())[min(found)] if found else None


def aliases(name: str, spec: TableSpec) -> set[str]:
    """Every name, in lower case, by which a row may mean this column of a file: for a before image its column's too."""
    names = [one for one in (name, _column_of_image(name, spec)) if one is not None]
    return {form(each).lower() for each in names for form in (clean_name, landed_name)}


def _column_of_image(name: str, spec: TableSpec) -> str | None:
    prefix = spec.before_image_prefix
    is_image = prefix and len(name) > len(prefix) and is_before_image(name, prefix)
    return name[len(prefix or "") :] if is_image else None


def _listed(name: str, listed: tuple[str, ...], spec: TableSpec) -> bool:
    return not aliases(name, spec).isdisjoint(_places(tuple(listed)))


@functools.lru_cache(maxsize=64)
def _places(listed: tuple[str, ...]) -> Mapping[str, int]:
    """Names as they are compared, to the first place at which each is listed."""
    return {clean_name(name).lower(): at for at, name in reversed(list(enumerate(listed)))}
