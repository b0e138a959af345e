"""Checks of `unique` and `foreign_key`: of a row by itself, and of foreign keys against the tables that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from airflow_gddl.contract.column_names import is_kept, mask_method, renamed
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.contract.table_spec import SHARD_COLUMN, ForeignKey, TableSpec, lowered

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
Resolve = Callable[[str, FieldPath], str | SpecProblem]
"""From a table's name and the path of the field that has it: its target, or what is wrong with the name."""


def constraint_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Problems of a row's constraints, as far as they are known without other rows."""
    for name, columns in spec.unique.items():
        yield from _column_problems(spec, ("unique", name), columns)
    for name, key in spec.foreign_key.items():
        path: FieldPath = ("foreign_key", name)
        yield from _column_problems(spec, path, key.columns, (*path, "columns"))
        if key.to_columns and len(key.to_columns) != len(key.columns):
            message = f"{len(key.to_columns)} columns for the {len(key.columns)} of columns"
            yield _invalid((*path, "to_columns"), list(key.to_columns), message, "name a column for each of columns")


def _column_problems(
    spec: TableSpec, path: FieldPath, columns: tuple[str, ...], inner: FieldPath | None = None
) -> Iterator[SpecProblem]:
    name, inner = str(path[-1]), inner or path
    if not _NAME.fullmatch(name):
        yield _invalid(path, name, "not a name of a constraint", "use letters, digits and _ (63 at most)")
    if not columns:
        yield _invalid(inner, [], "a constraint without columns", "name its columns, or remove it")
    if len(lowered(columns)) < len(columns):
        yield _invalid(inner, list(columns), "the same column twice", "name each column once")
    for i, column in enumerate(columns):
        if fault := _fault(spec, column):
            yield _invalid(
                (*inner, i), column, fault, "remove the constraint, or let the column's values into the lake"
            )


def _fault(spec: TableSpec, column: str) -> str:
    """Why the replica has no values of a column to compare; empty: it may have some."""
    if not is_kept(column, spec):
        return "a column that is kept out of the lake"
    return "a column that is masked with null" if mask_method(column, spec) == "null" else ""


def resolved_keys(
    spec: TableSpec, parents: Mapping[str, TableSpec], resolve: Resolve
) -> tuple[TableSpec, list[SpecProblem]]:
    """The row with its foreign keys as jobs check them, and their problems.

    Args:
        parents: valid rows by table in lower case. A foreign key to an invalid one, without `to_columns`, has none.
    """
    found: dict[str, ForeignKey] = {}
    problems: list[SpecProblem] = []
    for name, key in spec.foreign_key.items():
        path: FieldPath = ("foreign_key", name)
        target = resolve(key.to, (*path, "to"))
        if isinstance(target, SpecProblem):
            problems.append(target)
            continue
        parent = parents.get(target.lower())
        keys = () if parent is None else tuple(column for column in parent.keys if column != SHARD_COLUMN)
        found[name] = replace(key, to=target, to_columns=key.to_columns or keys)
        if parent is not None:
            problems += _pair_problems(spec, parent, path, found[name])
    return replace(spec, foreign_key=found), problems


def _pair_problems(child: TableSpec, parent: TableSpec, path: FieldPath, key: ForeignKey) -> Iterator[SpecProblem]:
    if len(key.columns) != len(key.to_columns):
        message = f"{len(key.columns)} columns, and {parent.table} has the keys {list(key.to_columns)}"
        remedy = "name as many columns, or the columns of that table in to_columns"
        yield _invalid((*path, "columns"), list(key.columns), message, remedy)
        return
    for column, other in zip(key.columns, key.to_columns, strict=True):
        mine, theirs = mask_method(column, child), mask_method(other, parent)
        if (name := renamed(other, parent)) != other:
            message = f"{other} is a name in the files of {parent.table}; its row gives the column the name {name!r}"
            yield _invalid((*path, "to_columns"), list(key.to_columns), message, f"write {name}")
        elif fault := _fault(parent, other):
            message = f"{parent.table} has in {other} {fault}"
            yield _invalid(
                (*path, "to_columns"), list(key.to_columns), message, "name other columns, or remove the key"
            )
        elif mine != theirs:
            message = (
                f"{column} is masked by {mine or 'nothing'}, and {other} of {parent.table} by {theirs or 'nothing'}"
            )
            yield _invalid((*path, "columns"), list(key.columns), message, "mask both alike, or remove the foreign key")


def _invalid(path: FieldPath, value: object, message: str, remedy: str) -> SpecProblem:
    return SpecProblem("CONSTRAINT_INVALID", path, value, message, remedy)
