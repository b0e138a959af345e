"""`gddl run`, `status` and `catalog diff|sync` over a catalog, from the command line and with the job as a process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from tests.catalogs.unity_server import UnityWorld, unity_server
from tests.harness.lake import Lake, spec_of


@dataclass
class Command:
    root: Path
    capsys: pytest.CaptureFixture[str]

    def gddl(self, *arguments: str, status: int = 0) -> str:
        given = [*arguments, "--metadata", str(self.root / "metadata")]
        environ = {**os.environ, "GDDL_CATALOG_TOKEN": "tok"}
        assert invoke(given, replace(real(), environ=environ)) == status
        return self.capsys.readouterr().out

    def json(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        return {
            found["table"]: found
            for found in map(json.loads, self.gddl(*arguments, "--json", status=status).splitlines())
        }


@pytest.fixture
def unity() -> Iterator[UnityWorld]:
    with unity_server() as world:
        yield world


@pytest.fixture
def command(tmp_path: Path, unity: UnityWorld, capsys: pytest.CaptureFixture[str]) -> Command:
    catalog = {
        "kind": "unity",
        "url": unity.url,
        "catalog_name": "lake",
        "token_env": "GDDL_CATALOG_TOKEN",
        "timeout": "2s",
    }
    settings = {"landing": "../landing", "lake": "../lake", "tiers": {"small": {"cores": 1}}}
    settings |= {"catalogs": {"main": catalog}, "defaults": {"catalog": "main", "settle": "0s"}}
    rows = [{"table": f"s.{name}", "keys": ["id"], "sequence_by": ["seq"]} for name in ("a", "b", "not loaded")]
    (tmp_path / "metadata/tables").mkdir(parents=True)
    (tmp_path / "metadata/gddl.yaml").write_text(json.dumps(settings))
    (tmp_path / "metadata/tables/s.yaml").write_text(json.dumps({"tables": rows}))
    for name in ("a", "b"):
        Lake(tmp_path).load(spec_of(name))
    return Command(tmp_path, capsys)


def test_a_catalog_is_filled_compared_and_filled_again(command: Command, unity: UnityWorld) -> None:
    unity.status = 503
    found = command.json("run")
    assert {table: (one["status"], [w["code"] for w in one["warnings"]]) for table, one in found.items()} == {
        "s.a": ("succeeded", ["CATALOG_UNREACHABLE"]),
        "s.b": ("succeeded", ["CATALOG_UNREACHABLE"]),
        "s.not loaded": ("skipped", ["FOLDER_MISSING"]),
    }
    assert "CATALOG_UNREACHABLE" in command.gddl("status", "--json")
    assert "CATALOG_UNREACHABLE" in json.dumps(command.json("catalog", "diff", status=1))

    unity.status = None
    missing = command.json("catalog", "diff", status=1)
    assert [one["action"] for one in missing["s.a"]["details"]["tables"]] == ["create"]
    assert unity.tables == {}
    assert "missing" in command.gddl("catalog", "diff", status=1)
    command.gddl("run")
    assert set(unity.tables) == {"lake.s.a", "lake.s.b"}
    assert "CATALOG_UNREACHABLE" not in command.gddl("status", "--json")
    assert "2 entries are up to date" in command.gddl("catalog", "diff")

    del unity.tables["lake.s.b"]
    assert "CATALOG_TABLE_DROPPED" in command.gddl("catalog", "diff", status=1)
    assert "lake.s.b" not in unity.tables
    assert "registered" in command.gddl("catalog", "sync", "--table", "s.b")
    assert "lake.s.b" in unity.tables
    unity.asked.clear()
    command.gddl("run")
    assert unity.asked == []

    del unity.tables["lake.s.a"]
    Lake(command.root).change(spec_of("a"), 1, [("I", 9, "new")])
    command.gddl("run", "--table", "s.a")
