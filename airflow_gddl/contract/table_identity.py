"""Fields of a row by which stored tables were built: jobs refuse a change until the tables are built again (rule 14).

`spark_jobs.plan.identity` compares a row with what the ledger remembers, `airflow_gddl.tools.capacity.metadata_diff`
with the row before an edit. `COLUMN_FIELDS` depend on the columns that are stored, which only jobs know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import ne
from typing import Any, Literal

from airflow_gddl.contract.codes import (
    BEFORE_IMAGES_CHANGED,
    COLUMNS_CHANGED,
    DERIVED_CHANGED,
    FILTER_CHANGED,
    KEYS_CHANGED,
    MASK_CHANGED,
    MODE_CHANGED,
    PARTITION_CHANGED,
    RENAME_CHANGED,
    SEQUENCE_CHANGED,
    Code,
)
from airflow_gddl.contract.names import clean_name
from airflow_gddl.contract.table_spec import TableSpec, lowered

Repair = Literal["rebuild", "reload"]


@dataclass(frozen=True, kw_only=True)
class BuiltField:
    """How a change of one field is found and repaired.

    Attributes:
        code: of the error with which jobs refuse it.
        differs: from the value that the tables were built with, and the row's, whether they are different; both in the
            form of `value_of`.
        repair: `rebuild` from the change table, or `reload` from files, by the former value.
    """

    code: Code
    differs: Callable[[Any, Any], bool] = ne
    repair: Callable[[Any], Repair] = lambda _before: "rebuild"


def _reload(_before: object) -> Repair:
    return "reload"


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def differs_as_text(before: str | None, now: str | None) -> bool:
    """Without case; null is the empty text."""
    return (before or "").lower() != (now or "").lower()


def renamed_names(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Columns of the files, in lower case, that the two name otherwise."""
    was, after = ({clean_name(name).lower(): to.lower() for name, to in names.items()} for names in (before, now))
    return frozenset(name for name in (*was, *after) if was.get(name, "") != after.get(name, ""))


BUILT_FIELDS: Mapping[str, BuiltField] = {
    "mode": BuiltField(code=MODE_CHANGED, repair=_reload),
    "keys": BuiltField(code=KEYS_CHANGED, differs=lambda was, now: lowered(was) != lowered(now)),
    # Without one, the tables keep the order that they have.
    "sequence_by": BuiltField(code=SEQUENCE_CHANGED, differs=lambda was, now: bool(now) and _lower(was) != _lower(now)),
    "where": BuiltField(
        code=FILTER_CHANGED,
        repair=lambda before: "rebuild" if before is None else "reload",
    ),
    "derive": BuiltField(code=DERIVED_CHANGED),
    "partition_by": BuiltField(code=PARTITION_CHANGED, differs=lambda was, now: _lower(was) != _lower(now)),
}
"""Fields whose difference alone is refused."""
COLUMN_FIELDS: Mapping[str, BuiltField] = {
    "before_image_prefix": BuiltField(code=BEFORE_IMAGES_CHANGED, differs=differs_as_text),
    "rename": BuiltField(code=RENAME_CHANGED, differs=lambda was, now: bool(renamed_names(was, now)), repair=_reload),
    "mask": BuiltField(code=MASK_CHANGED),
    # A column that is let in again needs nothing.
    "exclude_columns": BuiltField(code=COLUMNS_CHANGED, differs=lambda was, now: bool(lowered(now) - lowered(was))),
    "columns": BuiltField(
        code=COLUMNS_CHANGED,
        differs=lambda was, now: now is not None and (was is None or bool(lowered(was) - lowered(now))),
    ),
}
"""Fields whose difference is refused where it concerns a column that is stored."""


def value_of(spec: TableSpec, field: str) -> Any:
    """A field's value, expressions in the form in which equal ones are equal."""
    return {"where": filter_of, "derive": derived_of}.get(field, lambda row: getattr(row, field))(spec)


def filter_of(spec: TableSpec) -> str | None:
    """The row filter in the form in which equal ones are equal; None: there is none."""
    return None if spec.where is None else expression_of(spec, spec.where)


def derived_of(spec: TableSpec) -> dict[str, str]:
    """Computed columns with their expressions in the form in which equal ones are equal."""
    return {name: expression_of(spec, text) for name, text in spec.derive.items()}


def expression_of(spec: TableSpec, text: str) -> str:
    """An expression of the row in the form in which equal ones are equal."""
    return str(spec.expressions.get(text, text))
