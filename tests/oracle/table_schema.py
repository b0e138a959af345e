"""The columns of a table over its whole life, and the part each plays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from tests.oracle.model import DeliveredFile, NotModelledError, Run

TOTAL_ORDER = ("AR_H_CHANGE_SEQ", "transact_seq")
_COMMIT_TIMES = ("AR_H_COMMIT_TIMESTAMP", "AR_H_TIMESTAMP", "dms_timestamp")
SERVICE_COLUMNS = (*TOTAL_ORDER, *_COMMIT_TIMES)
"""Columns that the CDC service adds by these names."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Attributes:
    names: lower-cased name to the spelling under which a column first came.
    keys, sequence: columns in the table's spelling.
    times: sequence columns that hold commit times and are parsed from text.
    replica: columns of the replica, without `_gddl`.
    changes: those of the change table.
    numbers: columns of whole numbers by the first run, unless they have become text; texts that are none are
        misfits.
    control: columns that list columns, or force changes, in any run.
    texts: columns that were whole numbers.
    """

    spec: TableSpec
    options: DmsOptions
    names: dict[str, str]
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    times: frozenset[str]
    replica: tuple[str, ...]
    changes: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    control: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: TableSpec, runs: Sequence[Run]) -> Shape:
        options = decode(DmsOptions, dict(spec.options))
        _check_modelled(spec)
        names = _names(spec, runs)
        names.pop(options.op_column.lower(), None)
        sequence = _sequence(spec, options, runs)
        changes = tuple(n for n in names.values() if _selected(n, spec))
        prefix = spec.before_image_prefix
        return cls(
            spec=spec,
            options=options,
            names=names,
            keys=_spelled(spec.keys, names),
            sequence=_spelled(sequence, names),
            times=frozenset(() if spec.sequence_by else _spelled(_times(options), names)),
            replica=tuple(n for n in changes if prefix is None or not n.startswith(prefix)),
            changes=changes,
            numbers=_numbers(runs),
            control=tuple(_control(spec, runs)),
        )

    @property
    def shares_places(self) -> bool:
        """Commit times order changes, of which several may have one."""
        return bool(self.times.intersection(self.sequence)) and not self.spec.sequence_by

    @property
    def commit_times(self) -> tuple[str, ...]:
        """Columns that may say when a change was committed, the first that a file has counts."""
        return _times(self.options)

    def under(self, settings: Mapping[str, Any]) -> Shape:
        """With other fields of the row, for the changes of a run."""
        return replace(self, spec=replace(self.spec, **settings))

    def at(self, columns: Set[str], texts: Set[str]) -> Shape:
        """While the table has these columns, and these columns of whole numbers have become text."""
        names = {lower: name for lower, name in self.names.items() if lower in columns}
        return replace(self, names=names, numbers=self.numbers - texts, texts=frozenset(texts))

    def with_columns(self, columns: Set[str]) -> Shape:
        """With these columns in the replica alone: others came while the row ignored them."""
        return replace(self, replica=tuple(name for name in self.replica if name.lower() in columns))

    @property
    def technical(self) -> frozenset[str]:
        """Columns of the replica that tell of the change and not of the row; full loads lack them by nature."""
        named = (
            *self.sequence,
            *_times(self.options),
            *TOTAL_ORDER,
            self.spec.columns_to_update,
            self.spec.force_update,
        )
        wanted = {name.lower() for name in named if name is not None}
        return frozenset(n for n in self.replica if n.lower() in wanted or n.lower().startswith("ar_h_"))

    def before(self, column: str) -> str | None:
        """The before-image column of a column, in the table's spelling."""
        prefix = self.spec.before_image_prefix
        return None if prefix is None else self.names.get((prefix + column).lower())

    def image_of(self, column: str) -> str:
        """The column a before image shows; any other column itself."""
        prefix = self.spec.before_image_prefix
        return column.removeprefix(prefix) if prefix else column


def _control(spec: TableSpec, runs: Sequence[Run]) -> Iterable[str]:
    for run in runs:
        row = replace(spec, **run.settings)
        yield from (name for name in (row.columns_to_update, row.force_update) if run.files and name is not None)


def _check_modelled(spec: TableSpec) -> None:
    evolution = spec.schema_evolution
    if evolution.new_column in ("rescue", "fail") or "fail" in (evolution.type_change, evolution.dropped_column):
        raise NotModelledError(f"schema_evolution {evolution}")
    if spec.on_bad_row == "fail":
        raise NotModelledError("on_bad_row fail")


def _names(spec: TableSpec, runs: Sequence[Run]) -> dict[str, str]:
    """All that some run takes, in the order they came."""
    names: dict[str, str] = {}
    for number, run in enumerate(runs):
        row = replace(spec, **run.settings)
        there = runs[: number + 1] if run.settings else (run,)
        came = [column for each in there for file in arrival_order(each.files) for column in file.columns]
        for column in taken(came, row, is_first=not names):
            names.setdefault(column.lower(), column)
    return names


def taken(columns: Iterable[str], row: TableSpec, *, is_first: bool) -> list[str]:
    """Columns that a table has or gets; those that describe the change, and before images, under any policy."""
    if is_first or row.schema_evolution.new_column == "add":
        return list(columns)
    technical = (*row.sequence_by, *SERVICE_COLUMNS, row.columns_to_update, row.force_update)
    wanted, prefix = {name.lower() for name in technical if name is not None}, row.before_image_prefix
    return [c for c in columns if c.lower() in wanted or (prefix is not None and c.startswith(prefix))]


def _numbers(runs: Sequence[Run]) -> frozenset[str]:
    """The first run alone decides: its values are all of one type, and some are given."""
    given = [(c, v) for run in runs[:1] for file in run.files for row in file.rows for c, v in row.items()]
    return frozenset(c for c, v in given if isinstance(v, int) and not isinstance(v, bool))


def arrival_order(files: Iterable[DeliveredFile]) -> list[DeliveredFile]:
    """LOAD files first, by name; then change files by the time in their name, whatever folder they are in."""
    return sorted(files, key=lambda f: (f.kind != "load", f.kind == "change" and f.name.rsplit("/", 1)[-1], f.name))


def _spelled(wanted: Iterable[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(names.get(name.lower(), name) for name in wanted)


def _times(options: DmsOptions) -> tuple[str, ...]:
    return ((options.timestamp_column,) if options.timestamp_column else ()) + _COMMIT_TIMES


def _sequence(spec: TableSpec, options: DmsOptions, runs: Sequence[Run]) -> tuple[str, ...]:
    if spec.sequence_by:
        return spec.sequence_by
    files = [file for run in runs for file in run.files if file.kind == "change"]
    came = {column.lower() for file in files for column in file.columns}
    return next(((name,) for name in TOTAL_ORDER + _times(options) if name.lower() in came), ())


def _selected(column: str, spec: TableSpec) -> bool:
    image = column.removeprefix(spec.before_image_prefix) if spec.before_image_prefix else column
    name = image.lower()
    if name in {k.lower() for k in spec.keys}:
        return True
    if spec.columns is not None and name not in {c.lower() for c in spec.columns}:
        return False
    return name not in {c.lower() for c in spec.exclude_columns}
