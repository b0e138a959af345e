"""The scenarios as Debezium would have written them.

A row's `seq` becomes the change's place in the log and leaves the row; rows of the full load are those of a snapshot,
before all changes. Files take their turn as Kafka offsets. What a scenario expects is translated the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from airflow_gddl.contract.layout import Layout
from tests.debezium.envelopes import FIRST, SNAPSHOT, Envelopes
from tests.debezium.writing import Form, written
from tests.harness.landing import to_table, write_bytes
from tests.oracle import DeliveredFile
from tests.oracle.table_schema import arrival_order
from tests.scenarios.model import Expected, ExpectedError, FileStep, Row, RunStep, Scenario
from tests.scenarios.staging import LocalGround

_SEQUENCE, _OP, _COLUMN = "seq", "Op", "_dbz_sequence"
_CODES = {"SEQUENCE_UNPARSABLE": "SEQUENCE_NULL"}

WITHOUT = {
    "control_column_": "a load file beside change files: events say what they carry",
    "dms_": "names, columns and forms of DMS",
    "r01_": "which of DMS's columns orders changes",
    "r02_position_decides_inside_a_file": "a commit time, which only DMS orders changes by",
    "r02_tie_delete_wins": "files whose names tell no order: names of Debezium's files tell their offset",
    "r02_tie_last_arrival": "the same",
    "r02_redelivery_is_no_tie": "equal rows of one file that are two changes: a place in the source's log is one",
    "r07_": "before images: Debezium sends a delete and an insert instead (test_events.py)",
    "event_": "names of columns that order changes, which the rendering takes away",
    "r05_empty_file": "a Parquet file of no bytes: no bytes of JSON are no rows (tests/one_task/test_empty_files.py)",
    "r05_load_readable_only_later": "a full load in files of its own",
    "r05_truncated_reload": "a full load written again under its old names",
    "r09_": "the same",
    "r10_file_emptied": "the same: only where a load begins a new generation are the changes before it void",
    "r10_rebuild_other_sequence": "`sequence_by`, which the rendering takes away",
    "r10_refresh_with_a_technical_column": "a column of DMS, which full loads lack",
    "r10_nested_field_in_the_middle": "a full load written again under its old name",
    "r11_declared_type_gone": "CSV, which Debezium does not write",
    "r14_sequence_columns_respelled": "`sequence_by`, which the rendering takes away",
    "r14_tie_break_changed": "files whose names tell no order: names of Debezium's files tell their offset",
    "r14_mask_of_a_rescued_column": "a load that makes the table before its changes come",
    "r14_settings_changed_before_a_sweep": "a full load that opens a generation",
    "r14_soft_delete_switched_on_and_off": "types with a number as sequence",
    "r14_changed_sequence": "`sequence_by`, which the rendering takes away",
    "history_of_reloads": "full loads written again under their old names",
    "history_times": "commit times in a column that DMS names",
    "keyless_": "rows of a snapshot share their place in the log",
    "derive_of_text": "CSV, which Debezium does not write",
    "where_keyless": "a column of DMS in the result",
    "where_reload": "a full load written again under its old name",
}
"""Beginnings of names of scenarios that have no counterpart, and why."""
_HAVE_COUNTERPARTS = ("r01_sequence_not_arrival", "r09_files_removed")


def rendered(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Those that have a counterpart, in their order, under their names."""
    return [render(scenario) for scenario in scenarios if _has_counterpart(scenario)]


def _has_counterpart(scenario: Scenario) -> bool:
    return scenario.name in _HAVE_COUNTERPARTS or not scenario.name.startswith(tuple(WITHOUT))


def render(scenario: Scenario) -> Scenario:
    return _Rendering(scenario).scenario()


@dataclass(frozen=True)
class _Rendering:
    origin: Scenario

    @property
    def form(self) -> Form:
        forms: tuple[Form, ...] = get_args(Form)
        return forms[zlib.crc32(self.origin.name.encode()) % len(forms)]

    @property
    def names(self) -> Mapping[str, str]:
        """Offsets are given in the order in which DMS's names are taken."""
        steps = {file.name: file for run in self.origin.runs for file in run.files}
        ordered = arrival_order(DeliveredFile(name=file.name, kind=file.kind) for file in steps.values())
        return {
            file.name: f"partition=0/shop.public.t+0+{number * 100:010d}.{self.form}"
            for number, file in enumerate(ordered)
        }

    def scenario(self) -> Scenario:
        runs = tuple(self._run(run) for run in self.origin.runs)
        table = {k: v for k, v in self.origin.table.items() if k not in ("sequence_by", "options")}
        options = self._options(self.origin.table.get("options", {}))
        types = {k: v for k, v in self.origin.types.items() if k != _OP}
        return replace(
            self.origin,
            table={**table, "dialect": "debezium", "options": options},
            runs=runs,
            types=types,
            expect=self._expected(self.origin.expect),
            not_modelled="the oracle knows DMS's files",
        )

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        types = {k: v for k, v in options.get("types", {}).items() if k != _SEQUENCE}
        return {**options, "types": types}

    def _run(self, run: RunStep) -> RunStep:
        removed = tuple(self.names.get(name, name) for name in run.remove)
        files = tuple(replace(_usual(file), name=self.names[file.name]) for file in run.files)
        kinds = [file.kind for file in run.files]
        files = tuple(_as_snapshot(f) if k == "load" else f for f, k in zip(files, kinds, strict=True))
        return replace(run, remove=removed, files=files, expect=self._expected(run.expect))

    def _expected(self, wanted: Expected) -> Expected:
        errors = None if wanted.errors is None else tuple(self._error(error) for error in wanted.errors)
        columns = None if wanted.columns is None else tuple(c for c in wanted.columns if c != _SEQUENCE)
        types = None if wanted.types is None else {k: v for k, v in wanted.types.items() if k != _SEQUENCE}
        return replace(
            wanted,
            replica=_rows(wanted.replica),
            changes=wanted.changes if isinstance(wanted.changes, int) else _rows(wanted.changes),
            history=None if wanted.history is None else tuple(_version(row) for row in wanted.history),
            errors=errors,
            columns=columns,
            types=types,
            unchecked={
                **wanted.unchecked,
                **dict.fromkeys(_TECHNICAL, "the event's place, which the scenario knows nothing of"),
            },
            replica_has=tuple(map(self._text, wanted.replica_has)),
            result_has=tuple(map(self._text, wanted.result_has)),
        )

    def _error(self, error: ExpectedError) -> ExpectedError:
        code = _CODES.get(error.code, error.code)
        column = _COLUMN if error.column == _SEQUENCE else "_dbz_op" if error.column == _OP else error.column
        return replace(error, code=code, column=column, file=self._file(error.file), has=_without_sequence(error))

    def _text(self, text: str) -> str:
        return self.names.get(text, text)

    def _file(self, end: str | None) -> str | None:
        return None if end is None else next(new for old, new in self.names.items() if old.endswith(end))


_TECHNICAL = (_COLUMN, "_dbz_ts", "_dbz_carried")


def _without_sequence(error: ExpectedError) -> tuple[str, ...]:
    """A place in the log that can't be read is not kept."""
    return () if error.code == "SEQUENCE_UNPARSABLE" else error.has


def _usual(file: FileStep) -> FileStep:
    """With the usual spelling of the columns that become part of the envelope."""
    usual = {name.lower(): name for name in (_SEQUENCE, _OP)}
    rows = tuple({usual.get(name.lower(), name): value for name, value in row.items()} for row in file.rows)
    return replace(file, rows=rows, columns=tuple(usual.get(name.lower(), name) for name in file.columns))


def _as_snapshot(file: FileStep) -> FileStep:
    rows = tuple({**row, _OP: "R" if row.get(_OP) in (None, "", "I") else row[_OP]} for row in file.rows)
    columns = (*file.columns, _OP) if file.columns and _OP not in file.columns else file.columns
    return replace(file, rows=rows, columns=columns)


def _rows(rows: Sequence[Row] | None) -> tuple[Row, ...] | None:
    return None if rows is None else tuple(_row(row) for row in rows)


def _row(row: Row) -> Row:
    meta = row.get("_gddl")
    plain = {name: value for name, value in row.items() if name not in (_SEQUENCE, "_gddl")}
    return plain if meta is None else {**plain, "_gddl": _meta(meta)}


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(meta)
    if "sequence" in found:
        found["sequence"] = sequence(found["sequence"])
    if found.get("op") == "R":
        found["op"] = "I"
    return found


def _version(row: Row) -> Row:
    end = row.get("__end_at")
    bounds = {"__start_at": sequence(row.get("__start_at"))} | ({} if end is None else {"__end_at": sequence(end)})
    return {**_row(row), **bounds}


def sequence(value: Any) -> str:
    """What orders a change, of a scenario's `seq`; null: of a snapshot."""
    place = SNAPSHOT if value is None else FIRST + int(value)
    return f"{place:020d}.1.{place:020d}"


@dataclass(frozen=True)
class DebeziumGround(LocalGround):
    """Lands rendered scenarios."""

    def land(self, scenario: Scenario, run: RunStep) -> None:
        folder = Path(Layout.of(self.roots, scenario.spec()).landing)
        for name in run.remove:
            (folder / name).unlink()
        for file in run.files:
            data = file.raw.encode() if file.raw is not None else written(_envelopes(scenario, file), _form(file))
            write_bytes(folder, file.name, data[: len(data) - file.cut])


def _form(file: FileStep) -> Form:
    forms: tuple[Form, ...] = get_args(Form)
    return max((form for form in forms if file.name.endswith(form)), key=len)


def _envelopes(scenario: Scenario, file: FileStep) -> Envelopes:
    names = [name for name in file.column_names if name not in (_OP, _SEQUENCE)]
    types = {k: v for k, v in {**scenario.types, **file.types}.items() if k in names}
    ops = [row.get(_OP) for row in file.rows]
    return Envelopes(to_table(file.rows, names, types), ops, [_lsn(row) for row in file.rows])


def _lsn(row: Row) -> int | None:
    if row.get(_OP) == "R":
        return SNAPSHOT
    found = str(row.get(_SEQUENCE))
    return FIRST + int(found) if found.isdigit() else None
