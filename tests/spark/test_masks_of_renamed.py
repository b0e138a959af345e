"""Masks and exclusions hold for columns whose stored names differ from those that files and rows have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import write

PERSONAL = "secret of a person"
RESCUE = SchemaEvolution(new_column="rescue")


@dataclass(frozen=True)
class Renamed:
    """A column, the prefix of before images, and whether the column comes late and is rescued."""

    column: str
    prefix: str | None = None
    rescued: bool = False


RENAMED = {
    "reserved": Renamed("__v"),
    "reserved_with_images": Renamed("__v", "BI_"),
    "reserved_prefix": Renamed("v", "__BI_"),
    "blank_in_prefix": Renamed("v", "B "),
    "both": Renamed("a v", "__b "),
    "rescued": Renamed("a v", rescued=True),
    "rescued_reserved": Renamed("__v", rescued=True),
}


def spec_of(name: str, kind: Renamed) -> TableSpec:
    evolution = RESCUE if kind.rescued else SchemaEvolution()
    return TableSpec(table=f"s.{name}", keys=("id",), sequence_by=("seq",), settle="0s", history=True,
                     before_image_prefix=kind.prefix, schema_evolution=evolution)  # fmt: skip


def land(lake: Lake, spec: TableSpec, kind: Renamed, number: int) -> None:
    """A load of two rows for 0, else an update of a row, in which the key has not changed."""
    columns: dict[str, Any] = {"id": pa.array([1, 2] if number == 0 else [number], pa.int32())}
    count = len(columns["id"])
    columns["w"] = ["plain"] * count
    if number or not kind.rescued:
        columns[kind.column] = [f"{PERSONAL} {number}"] * count
    if number:
        columns = {"Op": ["U"], "seq": [number], **columns}
        if kind.prefix is not None:
            columns |= {kind.prefix + "id": columns["id"], kind.prefix + kind.column: [PERSONAL]}
    name = f"20240101-{number:09d}.parquet" if number else "LOAD00000001.parquet"
    write(Path(lake.layout(spec).landing), name, pa.table(columns))


@pytest.mark.parametrize("setting", ["mask", "exclude_columns"])
@pytest.mark.parametrize(("delivered", "named"), [("E Mail", "E_Mail"), ("e_mail", "E Mail"), ("__v", "__v")])
def test_columns_that_the_row_renames_are_held_back(
    engine: LocalPort, delivered: str, named: str, setting: str, tmp_path: Path
) -> None:
    """Their values, images and quarantined records, whichever characters the row writes for those that no table has."""
    lake = Lake(tmp_path)
    held_back = {"mask": {"mail": "hash"}} if setting == "mask" else {"exclude_columns": ("mail",)}
    spec = replace(spec_of("t", Renamed(delivered, "BI_")), rename={named: "mail"}, **held_back)
    folder = Path(lake.layout(spec).landing)
    write(folder, "LOAD00000001.parquet", pa.table({"id": [1, 2], delivered: [PERSONAL] * 2}))
    columns = {"Op": ["U", "U"], "seq": [1, 2], "id": [1, None], delivered: [f"{PERSONAL} 2"] * 2}
    write(folder, "20240101-000000001.parquet", pa.table({**columns, f"BI_{delivered}": [PERSONAL] * 2}))
    for options in (JobOptions(), JobOptions(action=Rebuild())):
        result = lake.results(engine, lake.job([spec], options))[spec.table]
        assert result.error is None
        batch = () if isinstance(options.action, Rebuild) else set(spec.mask)  # a rebuild has no batch
        assert {column.name for column in result.columns if column.masked} == set(batch)
        rows = read(lake.layout(spec).replica)
        names = {"id", "seq", "_gddl"} | ({"mail"} if setting == "mask" else set())
        assert [row.keys() for row in rows] == [names, names]
        assert len(read(lake.layout(spec).errors)) == 1
        files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
        assert [path for path in files if PERSONAL.encode() in path.read_bytes()] == []


@pytest.mark.deep_on_many
@pytest.mark.parametrize("setting", ["mask", "exclude_columns"])
def test_a_refresh_holds_back_what_is_stored_under_another_name(
    engine: LocalPort, setting: str, tmp_path: Path
) -> None:
    """A row that masks or leaves out a stored column is refused, and a refresh masks it or takes it away."""
    lake, specs = Lake(tmp_path), [spec_of(name, kind) for name, kind in RENAMED.items()]
    for number in (0, 1):
        for spec, kind in zip(specs, RENAMED.values(), strict=True):
            land(lake, spec, kind, number)
        loaded = lake.results(engine, lake.job(specs))
        assert {name: found.error for name, found in loaded.items()} == {spec.table: None for spec in specs}
    new = [
        replace(spec, **{setting: {kind.column: "hash"} if setting == "mask" else (kind.column,)})
        for spec, kind in zip(specs, RENAMED.values(), strict=True)
    ]
    for spec, kind in zip(specs, RENAMED.values(), strict=True):
        land(lake, spec, kind, 2)
    refused = lake.results(engine, lake.job(new))
    code = "MASK_CHANGED" if setting == "mask" else "COLUMNS_CHANGED"
    assert {name: found.error and found.error.code for name, found in refused.items()} == {
        spec.table: code for spec in specs
    }
    refreshed = lake.results(engine, lake.job(new, JobOptions(action=Rebuild())))
    assert {name: found.error for name, found in refreshed.items()} == {spec.table: None for spec in specs}
    for spec, kind in zip(specs, RENAMED.values(), strict=True):
        layout = lake.layout(spec)
        tables = {path: read(path) for path in (layout.replica, layout.changes, layout.history)}
        assert all(len(rows) >= 2 for rows in tables.values()), spec.table
        assert [path for path, rows in tables.items() if PERSONAL in repr(rows)] == []
        names = {name.lower() for rows in tables.values() for name in rows[0]}
        images = {name for name in names if kind.prefix and name.startswith(kind.prefix.strip().lower())}
        assert bool(images) == (kind.prefix is not None)
        assert images & {name.lower() for name in tables[layout.replica][0]} == set()
