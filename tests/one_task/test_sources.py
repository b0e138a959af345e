"""Many databases with a table of one name: each becomes a replica of its own, by `gddl run`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.harness.landing import write
from tests.one_task.commands import gddl, gddl_process

SETTINGS = "landing: ../landing\nlake: ../lake\nsources:\n"
SOURCE = "  {0}: {{landing: ../landing-{0}, target: '{{source}}_{{schema}}.{{table}}'}}\n"
ROWS = "tables:\n  - {table: public.orders, keys: [id], sequence_by: [seq], tombstone_retention: 7d}\n"


def metadata(folder: Path, *names: str) -> None:
    (folder / "metadata" / "tables").mkdir(parents=True)
    (folder / "metadata" / "gddl.yaml").write_text(SETTINGS + "".join(SOURCE.format(name) for name in names))
    for name in names:
        (folder / "metadata" / "tables" / f"{name}.yaml").write_text(ROWS)


def load(folder: Path, source: str, rows: int) -> None:
    ids = list(range(rows))
    table = pa.table({"id": pa.array(ids, pa.int32()), "v": [f"{source} {i}" for i in ids]})
    write(folder / f"landing-{source}" / "public" / "orders", "LOAD00000001.parquet", table)


def change(folder: Path, source: str, number: int, *rows: tuple[str, int, str]) -> None:
    columns = {
        "Op": [row[0] for row in rows],
        "seq": list(range(100 * number, 100 * number + len(rows))),
        "id": pa.array([row[1] for row in rows], pa.int32()),
        "v": [row[2] for row in rows],
    }
    write(folder / f"landing-{source}" / "public" / "orders", f"20240101-{number:09d}.parquet", pa.table(columns))


def replica(folder: Path, target: str, key: str = "id") -> dict[int, str]:
    rows = pa.table(DeltaTable(str(folder / "lake" / target.replace(".", "/"))).scan()).to_pylist()
    return {row[key]: row["v"] for row in rows}


@pytest.fixture
def twenty(tmp_path: Path) -> list[str]:
    names = [f"db{number:02d}" for number in range(20)]
    metadata(tmp_path, *names)
    for number, name in enumerate(names):
        load(tmp_path, name, 3 + number)
    return names


def test_twenty_sources_with_one_table_name(tmp_path: Path, twenty: list[str]) -> None:
    results, _ = gddl_process(tmp_path, "run")
    assert {(r["table"], r["status"], r["rows_read"]) for r in results} == {
        (f"{name}_public.orders", "succeeded", 3 + number) for number, name in enumerate(twenty)
    }
    for name in twenty[::2]:
        change(tmp_path, name, 1, ("U", 0, f"{name} changed"), ("D", 1, f"{name} 1"), ("I", 99, f"{name} new"))
    gddl(tmp_path, "run")
    for number, name in enumerate(twenty):
        expected = {i: f"{name} {i}" for i in range(3 + number)}
        if number % 2 == 0:
            del expected[1]
            expected |= {0: f"{name} changed", 99: f"{name} new"}
        assert replica(tmp_path, f"{name}_public.orders") == expected
    folders = {path.name for path in (tmp_path / "lake").iterdir()}
    assert folders == {"_gddl", *(f"{name}_public" for name in twenty)}
    ledgers = {path.name for path in (tmp_path / "lake" / "_gddl" / "ledger").iterdir()}
    assert ledgers == {f"{name}_public" for name in twenty}


def test_result_names_the_source_of_a_table(tmp_path: Path) -> None:
    metadata(tmp_path, "crm", "erp")
    for name in ("crm", "erp"):
        load(tmp_path, name, 2)
    results, _ = gddl(tmp_path, "run", "--table", "crm:public.orders")
    assert [r["table"] for r in results] == ["crm_public.orders"]
    results, _ = gddl(tmp_path, "run", "--table", "erp_public.orders")
    assert [r["status"] for r in results] == ["succeeded"]
    _, said = gddl(tmp_path, "run", "--table", "public.orders", status=2)
    assert "[TABLE_AMBIGUOUS]" in said
    assert "crm:public.orders, erp:public.orders" in said
    assert {line["table"] for line in gddl(tmp_path, "status")[0]} == {"crm_public.orders", "erp_public.orders"}


def test_source_without_files_stops_no_other(tmp_path: Path) -> None:
    metadata(tmp_path, "crm", "erp")
    load(tmp_path, "crm", 2)
    results = {r["table"]: r for r in gddl(tmp_path, "run", status=75)[0]}
    assert results["crm_public.orders"]["status"] == "succeeded"
    assert results["erp_public.orders"]["error"]["code"] == "LANDING_MISSING"
    (tmp_path / "landing-erp").mkdir()
    results = {r["table"]: r for r in gddl(tmp_path, "run")[0]}
    assert results["erp_public.orders"]["status"] == "skipped"
    assert not (tmp_path / "lake" / "erp_public").exists()


def retarget(folder: Path, target: str) -> None:
    settings = folder / "metadata" / "gddl.yaml"
    settings.write_text(settings.read_text().replace("'{source}_{schema}.{table}'", f"'{target}'"))


def test_changed_target_loads_the_table_again(tmp_path: Path) -> None:
    metadata(tmp_path, "crm")
    load(tmp_path, "crm", 3)
    gddl(tmp_path, "run")
    before = replica(tmp_path, "crm_public.orders")
    retarget(tmp_path, "lake_{source}.{table}")
    change(tmp_path, "crm", 1, ("I", 9, "after"))
    (line,) = gddl(tmp_path, "status")[0]
    assert (line["table"], line["state"]) == ("lake_crm.orders", "new")
    results, _ = gddl(tmp_path, "run")
    assert [(r["table"], [w["code"] for w in r["warnings"]]) for r in results] == [
        ("lake_crm.orders", ["TARGET_CHANGED"])
    ]
    assert replica(tmp_path, "crm_public.orders") == before
    assert replica(tmp_path, "lake_crm.orders") == {**before, 9: "after"}
    (line,) = gddl(tmp_path, "status")[0]
    assert (line["table"], line["state"]) == ("lake_crm.orders", "fresh")
    gddl(tmp_path, "verify")
