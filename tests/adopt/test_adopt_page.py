"""The commands of docs/tasks/adopt.md, played, and what the command says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.spec import TableSpec
from tests.adopt.taking_over import AFTER, BEFORE, SCHEMA, Landed, table_of, values
from tests.harness.lake import Lake
from tests.one_task.commands import gddl
from tests.unit.pages import page

pytestmark = pytest.mark.core

ROW = "tables: [{table: shop.orders, keys: [id], sequence_by: [seq], generations: one}]\n"
SPEC = TableSpec(table="shop.orders", keys=("id",), sequence_by=("seq",))
CUT = "2026-01-31T12:00:00Z"


def commands() -> list[list[str]]:
    """Of the page, without `gddl`."""
    blocks = re.findall(r"```sh\n(.*?)```", page("tasks/adopt.md"), re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, Landed]:
    """A project whose table another job keeps: it has applied all files but the last two."""
    (tmp_path / "metadata/tables").mkdir(parents=True)
    (tmp_path / "metadata/gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (tmp_path / "metadata/tables/shop.yaml").write_text(ROW)
    source, lake = Landed.of("page"), Lake(tmp_path)
    spec = SPEC
    source.land(lake, spec, range(7), BEFORE)
    source.land(lake, spec, range(7, 9), AFTER + 70_000_000)
    write_deltalake(lake.layout(spec).replica, table_of(source.states[6]))
    return tmp_path, source


def replica(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder / "lake/shop/orders"))


def test_commands_of_the_page(project: tuple[Path, Landed]) -> None:
    folder, source = project
    lake, spec = Lake(folder), SPEC
    played = commands()
    assert [words[0] for words in played] == [
        *["adopt"] * 2,
        "run",
        "verify",
        "adopt",
        "run",
        "verify",
        *["adopt"] * 2,
    ]
    assert all(CUT in words for words in (*played[:2], played[4]))
    shutil.copytree(folder / "lake/shop/orders", folder / "lake/shop/orders_new")
    row = folder / "metadata/tables/shop.yaml"
    row.write_text(ROW.replace("keys:", "target: shop.orders_new, keys:"))
    for words in played[4:6]:
        gddl(folder, *words)
    (told,), _ = gddl(folder, *played[6])
    assert (told["details"]["verdict"], told["details"]["against"]["behind"] > 0) == ("behind", True)
    assert lake.replica(replace(spec, table="shop.orders_new")) == values(source.states[-1])
    assert lake.replica(spec) == values(source.states[6])
    row.write_text(ROW)
    for path in list((folder / "lake").glob("**/orders_new*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    del played[4:7]
    (told,), _ = gddl(folder, *played[0])
    assert (told["details"]["adopt"]["files"], told["details"]["adopt"]["waiting"]) == (7, 2)
    assert replica(folder).version() == 0
    for words in played[1:3]:
        gddl(folder, *words)
    assert lake.replica(spec) == values(source.states[-1])
    (verdict,), _ = gddl(folder, *played[3])
    assert verdict["details"]["verdict"] == "equal"
    (told,), _ = gddl(folder, *played[4])
    assert told["details"]["release"]["files"] > 0
    gddl(folder, *played[5])
    assert [field.name for field in replica(folder).schema().fields] == SCHEMA.names
    assert lake.replica(spec) == values(source.states[-1])


def test_what_a_person_reads(project: tuple[Path, Landed]) -> None:
    folder, source = project

    def said(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "airflow_gddl.cli.main", *words, "--metadata", str(folder / "metadata")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    adopt = ("adopt", "--table", "shop.orders")
    status, text = said(*adopt)
    assert (status, "[ADOPT_REFUSED]" in text) == (2, True)
    status, text = said(*adopt, "--files-until", CUT, "--dry-run")
    assert status == 0, text
    for wanted in (
        f"shop.orders: {len(source.states[6])} rows at version 0",
        "keys [id] are unique and not null",
        "order: seq, up to",
        "landing files: 7 are in the table, 2 wait for the next run",
        "20240101-000000007.parquet",
        "by metadata alone: column _gddl, property gddl.baseline",
    ):
        assert wanted in text, text
    for words in (("--files-until", CUT), ("--source-connection", "GDDL_SOURCE_SHOP")):
        status, text = said(*adopt, "--release", *words)
        assert (status, "[ADOPT_REFUSED]" in text) == (2, True), text
    status, text = said(*adopt, "--files-until", CUT)
    assert (status, "shop.orders: adopted" in text) == (0, True), text
    status, text = said(*adopt, "--release")
    assert (status, "[ADOPT_RELEASE_UNCONFIRMED]" in text) == (1, True), text
    status, text = said(*adopt, "--release", "--yes")
    assert (status, "tables that go: changes" in text) == (0, True), text
