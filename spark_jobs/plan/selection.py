"""Which delivered columns reach the lake, and which are masked on the way.

Names match case-insensitively, as the file writes them or as they land. A before image follows its column, whether or
not the file has that column: what is excluded or masked must not leak through its old value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import MaskMethod, TableSpec
from spark_jobs.plan.columns import clean_name, delivered_name, is_before_image, landed_name


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
    emptied = [key for key in spec.keys if _mask(key, spec) == "null"]
    if emptied:
        raise MetadataError(
            "KEY_MASKED",
            f"key column {emptied[0]!r} is masked with 'null', which leaves no row a key",
            where="mask",
            remedy="mask it with 'hmac' or 'hash', or choose other keys",
        )
    found = [(name, delivered_name(name) if stored else name) for name in names]
    kept = [(name, delivered) for name, delivered in found if _is_kept(delivered, spec)]
    masks = {name: method for name, delivered in kept if (method := _mask(delivered, spec)) is not None}
    return ColumnSelection(kept=tuple(name for name, _ in kept), masks=masks)


def withholds(spec: TableSpec) -> bool:
    """Whether some values must not be stored as they came: then none may be whose column is unknown."""
    return bool(spec.mask or spec.exclude_columns or spec.columns is not None)


def unknown_columns(groups: Iterable[Iterable[str]], spec: TableSpec) -> tuple[RunWarning, ...]:
    """Names in `columns`, `exclude_columns` and `mask` that no file of the batch has, not even as a before image.

    A warning each (`COLUMN_NOT_FOUND`), for a misspelt exclusion or mask lets through what it was meant to hold back.
    """
    found = {alias for names in groups for name in names for alias in _aliases(name, spec)}
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


def _is_kept(name: str, spec: TableSpec) -> bool:
    if _listed(name, spec.keys, spec):
        return True
    if _listed(name, spec.exclude_columns, spec):
        return False
    return spec.columns is None or _listed(name, spec.columns, spec)


def _mask(name: str, spec: TableSpec) -> MaskMethod | None:
    """The column's own mask; for a before image its column's."""
    return next((method for masked, method in spec.mask.items() if _listed(name, (masked,), spec)), None)


def _listed(name: str, listed: Iterable[str], spec: TableSpec) -> bool:
    aliases = _aliases(name, spec)
    return any(clean_name(other).lower() in aliases for other in listed)


def _aliases(name: str, spec: TableSpec) -> set[str]:
    """Every name by which metadata may mean this column of a file: its own and, for a before image, its column's."""
    names = [name]
    prefix = spec.before_image_prefix
    if prefix and len(name) > len(prefix) and is_before_image(name, prefix):
        names.append(name[len(prefix) :])
    return {form(each).lower() for each in names for form in (clean_name, landed_name)}
