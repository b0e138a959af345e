"""Scenarios' files on disk, and the same files as the oracle sees them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores import Storage
from tests.harness.landing import FileForm, csv_text, to_table, write, write_bytes
from tests.oracle import DeliveredFile, Run
from tests.scenarios.model import FileStep, RunStep, Scenario


def land(scenario: Scenario, run: RunStep, folder: Path) -> None:
    """Bring the landing folder to where the run finds it."""
    for name in run.remove:
        if name == ".":
            shutil.rmtree(folder)
        else:
            (folder / name).unlink()
    for file in run.files:
        if file.raw is not None:
            write_bytes(folder, file.name, file.raw.encode())
        else:
            write(folder, file.name, _table(scenario, file), _form(scenario, file))


class Ground(Protocol):
    """Where scenarios are played; `storage` sees what is below its roots."""

    @property
    def roots(self) -> Roots: ...

    @property
    def storage(self) -> Storage: ...

    def land(self, scenario: Scenario, run: RunStep) -> None:
        """Bring the scenario's landing folder to where the run finds it."""
        ...


@dataclass(frozen=True)
class LocalGround:
    """See `Ground`."""

    root: Path
    storage: Storage = field(default_factory=Storage)

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def land(self, scenario: Scenario, run: RunStep) -> None:
        land(scenario, run, Path(Layout.of(self.roots, scenario.spec()).landing))


def _options(scenario: Scenario) -> DmsOptions:
    return decode(DmsOptions, dict(scenario.spec().options))


def _form(scenario: Scenario, file: FileStep) -> FileForm:
    options = _options(scenario)
    return FileForm(
        codec=file.codec,
        int96=file.int96,
        header=options.csv_header,
        delimiter=options.csv_delimiter,
        null=options.csv_null,
        cut=file.cut,
    )


def _table(scenario: Scenario, file: FileStep) -> pa.Table:
    types = {**{k: v for k, v in scenario.types.items() if k in file.column_names}, **file.types}
    return to_table(file.rows, file.column_names, types)


def oracle_run(scenario: Scenario, run: RunStep) -> Run:
    return Run(tuple(_delivered(scenario, file) for file in run.files if not file.ignored), tuple(run.remove))


def _delivered(scenario: Scenario, file: FileStep) -> DeliveredFile:
    if file.raw == "":
        return DeliveredFile(name=file.name, kind=file.kind, damage="FILE_EMPTY")
    if file.raw is None and not file.column_names:
        return DeliveredFile(name=file.name, kind=file.kind, damage="FILE_EMPTY")
    if file.raw is not None or file.cut:
        return DeliveredFile(name=file.name, kind=file.kind, damage="FILE_UNREADABLE")
    rows = _micros(_table(scenario, file)).to_pylist()
    if ".csv" in file.name:
        rows = [_as_csv(row, _options(scenario).csv_null) for row in rows]
    return DeliveredFile(name=file.name, kind=file.kind, columns=file.column_names, rows=tuple(rows))


def _micros(table: pa.Table) -> pa.Table:
    """Python's times end at microseconds."""
    for number, kept in enumerate(table.schema):
        if pa.types.is_timestamp(kept.type) and kept.type.unit == "ns":
            coarse = table.column(number).cast(pa.timestamp("us", kept.type.tz))
            table = table.set_column(number, kept.name, coarse)
    return table


def _as_csv(row: Mapping[str, Any], null: str) -> dict[str, str | None]:
    """Everything is text there, also the text that stands for null."""
    text = {name: None if value is None else csv_text(value) for name, value in row.items()}
    return {name: None if value in (None, null) else value for name, value in text.items()}
