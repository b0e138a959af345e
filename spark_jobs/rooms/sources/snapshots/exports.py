"""Rows of a snapshot's files as the load sees them: under the names and masks of the row, keys as the table's type.

Keys are compared as values of the column that the table has, or will have: `01`, `1` and `1.0` are one whole number. So
each table of rows has, beside the columns under their names in the table in lower case, those of `key_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import SNAPSHOT_HELD
from airflow_gddl.contract.errors import FatalError, QuarantinableError
from airflow_gddl.contract.names import is_kept, landed_name, renamed
from spark_jobs.plan.schema_evolution import ColumnAction, SchemaRules, plan_schema
from spark_jobs.plan.table_schema import Column, LandedGroup, Schema, land, require_distinct
from spark_jobs.rooms.dialects.protocol import Dialect, Probed, declared_texts
from spark_jobs.rules.arrays import in_one_form, texts
from spark_jobs.rules.convert import but, either
from spark_jobs.rules.delivered_columns import DeliveredColumns
from spark_jobs.rules.evaluate import landed_as_named, raw_as_named
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import FileRows, grouped

_KEY, _NO_VALUE = "\0key ", "\0no value "


def column_id(name: str) -> str:
    """What is the same of a column's names in two files: the one in the table, in lower case."""
    return landed_name(name).lower()


def key_columns(keys: Iterable[str]) -> list[str]:
    """Columns of rows by which keys are compared: for each key column its value in the table's type, and what it holds
    where that is none.
    """
    return [prefix + column_id(key) for key in keys for prefix in (_KEY, _NO_VALUE)]


def data_of(rows: pa.Table) -> list[str]:
    """The columns that a snapshot has, by `column_id`."""
    return [name for name in rows.column_names if not name.startswith((_KEY, _NO_VALUE))]


def compared_columns(rows: pa.Table) -> list[str]:
    """The columns by which rows of equal keys are compared."""
    return [name for name in data_of(rows) if _KEY + name not in rows.column_names]


def deletable(keys: pa.Table) -> pa.Table:
    """Keys that the table can have, without nulls, by the names of `column_id`, in the types of the table."""
    without = [name for name in keys.column_names if name.startswith(_NO_VALUE)]
    sound = np.ones(keys.num_rows, dtype=bool)
    for name in keys.column_names:
        values = keys.column(name)
        sound &= np.asarray(values.is_null() if name in without else values.is_valid())
    remaining = keys.filter(pa.array(sound)).drop_columns(without)
    return remaining.rename_columns([name.removeprefix(_KEY) for name in remaining.column_names])


@dataclass(frozen=True, kw_only=True)
class Export:
    """A file of a snapshot.

    Attributes:
        how: turns its rows into columns as the load does; the plan of these is that of the keys alone.
    """

    probed: Probed
    how: FileGroup

    @classmethod
    def of(cls, probed: Probed, dialect: Dialect, in_folders: Iterable[str] = ()) -> Export:
        """An export file with its columns as the row names them.

        Args:
            in_folders: columns of which the names of its folders have values.

        Raises:
            QuarantinableError: `SNAPSHOT_HELD`: its columns can't be named as the row says, a key is missing, or a
                column is in the names of folders alone.
        """
        how = FileGroup(
            kind="export", columns=probed.columns, label=probed.file.path, dialect=dialect, stated=probed.stated
        )
        with _held_for(probed.file.path):
            _require_distinct(how)
            how = landed_as_named(how, replayed=False)
            _require_distinct(how)
        export = cls(probed=probed, how=how)
        _require_in_file(in_folders, export)
        if missing := [key for key in dialect.spec.keys if column_id(key) not in export.names]:
            raise QuarantinableError(
                SNAPSHOT_HELD, f"it has no key column {missing[0]}; it has {', '.join(export.how.names[:10])}"
            )
        return export

    @cached_property
    def names(self) -> Mapping[str, str]:
        """`column_id` to the name that the row gives the column."""
        return {column_id(name): name for name in self.how.names}

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of columns that reach the lake."""
        return self.how.selection.kept

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of columns that do not reach the lake."""
        return tuple(name for name in self.how.names if name not in self.kept)

    def rows(self, file_rows: FileRows) -> pa.Table:
        """Columns that reach the lake by `column_id`, masked or as delivered, and `key_columns`.

        Raises:
            QuarantinableError: `SNAPSHOT_HELD`: a key is no value of the column that the table has.
        """
        path = self.probed.file.path
        with _held_for(path):
            raw = raw_as_named(grouped([self.probed], {path: file_rows}, {path: 0}), self.how)
        columns, spec = DeliveredColumns(raw, self.how), self.how.dialect.spec
        given = {renamed(n, spec): c for (n, _), c in zip(self.probed.columns, file_rows.columns, strict=True)}
        made = {}
        for name in self.kept:
            is_masked = name in self.how.masks
            made[column_id(name)] = (
                columns.delivered(name)[0].values if is_masked else given.get(name, raw.columns[name])
            )
        # Keys that are null in every file have no type.
        made |= dict.fromkeys(key_columns(spec.keys), pa.nulls(file_rows.rows))
        for action in self.how.plan.actions:
            made |= _key_of(columns, action)
        return pa.table(made)


def with_key_types(exports: Sequence[Export], stored: Schema | None) -> list[Export]:
    """The files with the way of their keys into the types that the table has once they are loaded.

    Args:
        exports: in the order of their snapshots.
        stored: columns of the table now; None: there is none.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`: no table holds keys of their type.
    """
    if not exports:
        return []
    spec = exports[0].how.dialect.spec
    ids = [column_id(key) for key in spec.keys]
    table = None if stored is None else Schema(tuple(c for c in stored.columns if column_id(c.name) in ids))
    # What `fail` refuses is refused by the load.
    policy = spec.schema_evolution
    policy = replace(policy, new_column="add", dropped_column="keep",
                     type_change="rescue" if policy.type_change == "fail" else policy.type_change)  # fmt: skip
    rules = SchemaRules(evolution=policy, partitions=(), texts=declared_texts(exports[0].how.dialect))
    with _held_for(", ".join(one.how.label for one in exports[:5])):
        plan = plan_schema(table, tuple(_landed_keys(one, ids) for one in exports), rules)
    return [replace(one, how=replace(one.how, plan=of_keys)) for one, of_keys in zip(exports, plan.groups, strict=True)]


def _landed_keys(export: Export, ids: Sequence[str]) -> LandedGroup:
    names = [export.names[one] for one in ids]
    return land(export.how.label, [Column(name, export.how.type_of(name)) for name in names], only_deletes=True)


@contextmanager
def _held_for(where: str) -> Iterator[None]:
    """What is wrong with a snapshot's columns holds it alone.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`.
    """
    try:
        yield
    except FatalError as error:
        raise QuarantinableError(SNAPSHOT_HELD, error.what, where=where) from error


def _require_in_file(in_folders: Iterable[str], export: Export) -> None:
    spec = export.how.dialect.spec
    for name in in_folders:
        if column_id(renamed(name, spec)) not in export.names and is_kept(name, spec):
            what = f"the names of its folders have the column {name}, and its files lack it; write the column into the "
            what += "files, or name it in exclude_columns and absent_columns"
            raise QuarantinableError(SNAPSHOT_HELD, what, where=export.probed.file.path)


def _require_distinct(group: FileGroup) -> None:
    require_distinct([(name, landed_name(name)) for name in group.names], group.label)


def _key_of(columns: DeliveredColumns, action: ColumnAction) -> dict[str, pa.Array]:
    """A key's values in the table's type, and what it holds where that is no value of a declared type.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`: it is no value of the table's type.
    """
    name, source = column_id(action.target.name), action.source
    if source is None or action.source_type is None:
        raise QuarantinableError(SNAPSHOT_HELD, f"it has no key column {action.target.name}")
    planned, declared = (
        columns.planned([replace(action, misfit="quarantine")], None),
        columns.delivered(source)[0].misfit,
    )
    unfit = None
    for problem in planned.problems:
        unfit = either(unfit, problem.where)
    values = in_one_form(planned.values[0])
    if (other := but(unfit, declared)) is not None and other.any():
        what = (
            f"key column {source} is {action.source_type}, and {action.target.type} in the table, which holds no such"
        )
        raise QuarantinableError(
            SNAPSHOT_HELD, f"{what} value in {int(other.sum())} rows; write it again", where=source
        )
    without = pa.nulls(len(values), pa.string())
    if unfit is not None:
        every = pa.array(range(len(values)), pa.int64())
        shown = columns.hashed(source, every) if source in columns.how.masks else texts(columns.group.columns[source])
        without = pc.if_else(pa.array(unfit), shown.cast(pa.string()), without)
    return {_KEY + name: values, _NO_VALUE + name: without}
