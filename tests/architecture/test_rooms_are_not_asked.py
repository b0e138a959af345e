"""A row enters the rooms that its fields name and no other: all others may raise at import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.test_removable import ASKING, ROOMS, ROOT
from tests.architecture.test_rooms_are_not_named import BESIDE, OF_ALL

WAY = """
import importlib.abc, json, os, sys
from pathlib import Path

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(f"{one}.") for one in refused):
            sys.exit(f"{name} was imported")

row, refused, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
sys.meta_path.insert(0, Refuse())

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.actions import ACTIONS, Maintain, Run, Verify
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.metadata.loading import load
from airflow_gddl.runtime.compiled.building import compile_metadata
from airflow_gddl.runtime.landing.tables_with_work import Question, observe
from airflow_gddl.topology.placement import NOWHERE
from tests.harness.lake import Lake

metadata = folder / "metadata"
(metadata / "tables").mkdir(parents=True)
(metadata / "gddl.yaml").write_text(json.dumps({"landing": "../landing", "lake": "../lake"}))
(metadata / "tables/s.yaml").write_text(json.dumps({"tables": [row]}))
assert invoke(["validate", "--metadata", str(metadata)], real()) == 0
if len(sys.argv) > 4:
    from airflow_gddl.dags.factory import build_dags
    assert len(build_dags(metadata)) == 1
(document,) = compile_metadata(load(metadata, {}), (), NOWHERE, 0.0, None, "").documents
(spec,) = document.specs
lake = Lake(folder)
lake.load(spec)
work = observe(document, Question(run="r", now="2026-01-01T00:00:00.000000+00:00"), {})

def job(action):
    global refused
    others, here = refused, "spark_jobs.rooms.actions."
    steps = {one for one in others if one.startswith(here) and one.removeprefix(here) not in ACTIONS}
    refused = others if action.name == "run" else [one for one in others if one not in steps | {here + action.name}]
    result = lake.result(spec, JobOptions(action=action))
    refused = others
    return result

done = job(Run())
if len(sys.argv) > 4:
    assert (work.is_some, done.status) == (True, "succeeded"), done
    assert (job(Maintain()).status, job(Verify()).details["verdict"]) == ("succeeded", "equal")
    assert invoke(["status", "--metadata", str(metadata)], real()) == 0
print(json.dumps(sorted(sys.modules)))
"""
"""A row from its file to the tables, in a process in which the modules that are named raise at import."""
ROW = {"table": "s.t", "keys": ["id"], "settle": "0s"}


def halves() -> dict[str, str]:
    """Modules of rooms, each with the name of its room: those that can be removed, and those beside them."""
    beside = (path for folder in BESIDE for path in (ROOT / folder).glob("*.py") if path.stem not in OF_ALL)
    return {room.module: room.name for room in ROOMS} | {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.stem for path in beside
    }


def way_of(row: dict[str, Any], room: str, folder: Path, *more: str) -> list[str]:
    """Modules that a process imports on the way of a row, which may enter one room."""
    refused = [module for module, name in halves().items() if name != room]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(folder), "GDDL_WITHOUT_SPARK": "1"}
    command = [sys.executable, "-P", "-c", WAY, json.dumps(row), json.dumps(refused), str(folder), *more]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_a_plain_row_enters_no_room(tmp_path: Path) -> None:
    """Parsed into DAGs, polled, loaded, maintained, verified and shown in status."""
    way_of(ROW, "", tmp_path, "all")


@pytest.mark.parametrize("room", [room for room, fields in ASKING.items() if fields])
def test_a_row_enters_the_room_that_it_names_and_no_other(room: str, tmp_path: Path) -> None:
    imported = way_of({**ROW, **ASKING[room]}, room, tmp_path)
    assert {module for module, name in halves().items() if name == room} <= {*imported}
