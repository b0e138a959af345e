"""Rooms can be deleted: everything else still works, and what asks for one says what is missing.

Rooms are found by their folders, so that a new one is tested, too.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import ACTIONS, Rebuild, Verify
from airflow_gddl.contract.codec import report_from_json, to_document
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("airflow_gddl", "spark_jobs")
_UNSET = "GDDL_SOURCE_UNSET"
"""A connection that no job has, so that none reaches a source."""
ASKING: dict[str, dict[str, Any]] = {
    "iceberg": {"iceberg": True},
    "consistent_cut": {},
    "capture": {
        "dialect": "debezium",
        "options": {"capture": {"connector": "postgresql"}, "verify_connection": _UNSET},
    },
    "kafka": {"dialect": "debezium", "options": {"topic": "shop.t", "kafka_connection": _UNSET}},
    "snapshots": {"mode": "snapshots", "options": {"path_format": "'dt='yyyy-MM-dd"}},
}
"""Fields of a row that asks for a source or a feature, by the room's name; empty: no row does."""


@dataclass(frozen=True)
class Room:
    """Attributes:
    path: of its package or module below the repository.
    """

    kind: str
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def module(self) -> str:
        return ".".join(self.path.with_suffix("").parts)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def rooms() -> list[Room]:
    sources, features, runners = (
        [path for path in (ROOT / folder).iterdir() if (path / "__init__.py").exists()]
        for folder in ("spark_jobs/rooms/sources", "spark_jobs/rooms/features", "airflow_gddl/runners")
    )
    actions = [path for path in (ROOT / "spark_jobs/rooms/actions").glob("*.py") if path.stem in ACTIONS]
    commands = [path.parent for path in (ROOT / "airflow_gddl").rglob("commands.py") if path.parent.name != "cli"]
    tools = [ROOT / "airflow_gddl/tools/page", ROOT / "airflow_gddl/tools/platform_check"]
    found = [
        ("source", sources), ("feature", features), ("runner", runners), ("action", actions), ("command", commands),
        ("tool", tools),
    ]  # fmt: skip
    return [Room(kind, path.relative_to(ROOT)) for kind, paths in found for path in sorted(paths)]


ROOMS = rooms()
OF_JOBS = [room for room in ROOMS if room.kind in ("source", "feature", "runner", "action")]
OF_COMMANDS = [room for room in ROOMS if room not in OF_JOBS]


@functools.cache
def imports() -> Mapping[Path, frozenset[str]]:
    """What each module imports, modules and names in them, by its path below the repository."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = node.module if isinstance(node, ast.ImportFrom) and node.module else ""
                names |= {module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)}
        found[path.relative_to(ROOT)] = frozenset(names)
    return found


def importers(of: Room) -> Iterator[str]:
    """Modules outside a room that import it."""
    for here, names in imports().items():
        is_inside = here == of.path or of.path in here.parents
        if not is_inside and any(one == of.module or one.startswith(f"{of.module}.") for one in names):
            yield here.as_posix()


WITH_A_ROOM = {
    "databricks": {"airflow_gddl/hooks/databricks.py"},
}
"""Modules that go with a room."""


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_no_other_module_imports_a_room(room: Room) -> None:
    assert set(importers(room)) <= WITH_A_ROOM.get(room.name, set())


def test_there_are_rooms_of_each_kind() -> None:
    assert {room.kind: sum(one.kind == room.kind for one in ROOMS) for room in ROOMS} == {
        "source": 3, "feature": 2, "runner": 3, "action": 14, "command": 7, "tool": 2,
    }  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the two packages."""
    folder = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def without(request: pytest.FixtureRequest, tree: Path) -> Iterator[tuple[Room, Path]]:
    """The copy without a room and what goes with it."""
    room: Room = request.param
    gone = [room.path, *map(Path, WITH_A_ROOM.get(room.name, ()))]
    for path in gone:
        shutil.rmtree(tree / path) if (tree / path).is_dir() else (tree / path).unlink()
    yield room, tree
    for path in gone:
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, tree / path)


SERVANT = """
import json, os, sys
answers, sys.stdout = sys.stdout, sys.stderr
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codec import to_document
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.batch.runtime import NoSpark
from spark_jobs.program import read_spec

def gddl(arguments):
    return invoke(arguments, real())

def runner(name):
    try:
        RUNNERS.get(name)
    except Exception as error:
        return error.code

def job(text):
    (outcome,) = run_job(read_spec(text), Runtime(storage=Storage(), spark=NoSpark()), lambda _: None)
    return to_document(outcome.result)

for line in sys.stdin:
    [(what, argument)] = json.loads(line).items()
    print(json.dumps({"gddl": gddl, "runner": runner, "job": job}[what](argument)), file=answers, flush=True)
"""
"""One process of a copy of the tree, which does what its standard input asks for, a line each."""


@dataclass(frozen=True)
class Servant:
    process: subprocess.Popen[str]

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.process.communicate()[1]
        return json.loads(answer)

    def job(self, spec: JobSpec) -> JobResult:
        """The result of a job for its only table."""
        return report_from_json(JobResult, self.ask(job=to_document(spec)))


@contextmanager
def servant_of(tree: Path) -> Iterator[Servant]:
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SERVANT], env=environ, text=True, cwd=tree,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield Servant(process)
        process.communicate()


_COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from airflow_gddl.cli import context, main
from airflow_gddl.cli.commands import COMMANDS
room = sys.argv[1]
def run(*words):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        status = main.invoke(words, context.real())
    return [status, out.getvalue()]
mine = [name for name, one in COMMANDS.items() if one.place.startswith(f"{room}.")]
found = {"init": run("init", "project"), "validate": run("validate", "--metadata", "project/metadata"),
         "check": run("check", "--metadata", "project/metadata"), "help": run("--help"),
         **{name: run(name, "--help") for name in COMMANDS if name not in mine}}
found |= {"mine": {name: run(name) for name in mine}}
if room.endswith(".page"):
    from airflow_gddl.plugins import pools
    found |= {"apps": len(pools.FASTAPI_APPS), "views": len(pools.external_views())}
print(json.dumps(found))
"""


@pytest.mark.wide
@pytest.mark.parametrize("without", OF_COMMANDS, ids=str, indirect=True)
def test_without_a_room_of_commands_the_others_work(without: tuple[Room, Path], tmp_path: Path) -> None:
    room, tree = without
    environ = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "120", "AIRFLOW_HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-c", _COMMANDS, room.module]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    mine = found.pop("mine")
    assert bool(mine) == (room.kind == "command")
    for name, (status, text) in mine.items():
        assert (status, "[COMMAND_MISSING]" in text, f"`gddl {name}`" in text) == (2, True, True), text
        assert f" {name} " not in found["help"][1]
    if room.name == "page":
        assert (found.pop("apps"), found.pop("views")) == (0, 0)
    assert found.pop("check")[0] in (0, 1)  # what this machine lacks is none of the room's
    assert {name: status for name, (status, _) in found.items() if status} == {}


@pytest.mark.parametrize("without", [room for room in ROOMS if room.name == "platform_check"], ids=str, indirect=True)
def test_an_option_whose_room_is_absent_says_so(without: tuple[Room, Path], tmp_path: Path) -> None:
    room, tree = without
    (tmp_path / "gddl.yaml").write_text(json.dumps({"landing": "landing", "lake": "lake"}))
    command = [sys.executable, "-P", "-m", "airflow_gddl.cli.main", "check", "--platform", "--metadata", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[COMMAND_MISSING]" in done.stderr
    assert room.module in done.stderr


@pytest.mark.wide
@pytest.mark.parametrize("without", OF_JOBS, ids=str, indirect=True)
def test_without_a_room_all_else_works(without: tuple[Room, Path], tmp_path: Path) -> None:
    """New metadata, a load, changes, a comparison and a rebuild; and what needs the room says so."""
    room, tree = without
    lake, row = Lake(tmp_path), spec_of(history=True, mask={"v": "hash"})
    with servant_of(tree) as servant:
        assert servant.ask(gddl=["init", str(tmp_path / "project")]) == 0
        assert servant.ask(gddl=["validate", "--metadata", str(tmp_path / "project/metadata")]) == 0
        lake.load(row)
        assert servant.job(lake.job([row])).status == "succeeded"
        lake.change(row, 1, [("U", 0, "new"), ("I", 9, "one more"), ("D", 1, "")])
        if room.name != "rebuild":
            assert servant.job(lake.job([row], JobOptions(action=Rebuild()))).status == "succeeded"
        if room.name != "verify":
            assert servant.job(lake.job([row], JobOptions(action=Verify()))).details["verdict"] == "equal"
        assert servant.ask(gddl=["bundle", "--help"]) == 0
        if room.kind == "action" or ASKING.get(room.name, True):
            assert refusal_without(room, servant, lake, row) == _REFUSED[room.kind]


BOTH_SIDES = [
    room for room in ROOMS if (room.kind == "feature" and ASKING[room.name]) or room.name == "snapshots"
]  # fmt: skip
"""Rooms that can be deleted on both sides. `gddl check` imports the halves of the other sources."""
FIELDS = {"iceberg": "iceberg", "snapshots": "mode"}
"""The field of a row that asks for each of them; the others are known by the name of a table."""


@pytest.fixture
def without_both(request: pytest.FixtureRequest, tree: Path) -> Iterator[tuple[Room, Path]]:
    """The copy without a room on either side."""
    room: Room = request.param
    shared = Path("airflow_gddl/contract", f"{room.kind}s", f"{room.name}.py")
    shutil.rmtree(tree / room.path)
    (tree / shared).unlink()
    yield room, tree
    shutil.copytree(ROOT / room.path, tree / room.path)
    shutil.copy(ROOT / shared, tree / shared)


@pytest.mark.parametrize("without_both", BOTH_SIDES, ids=str, indirect=True)
def test_a_field_that_asks_for_a_room_of_neither_side_is_refused(
    without_both: tuple[Room, Path], tmp_path: Path
) -> None:
    """By `gddl validate` and by jobs; a table that is known by its name alone is loaded as any."""
    room, tree = without_both
    lake, row = Lake(tmp_path), replace(spec_of(), **{"table": "shop.asking", **ASKING[room.name]})
    lake.load(row)
    written = {"table": row.table, "keys": list(row.keys), **ASKING[room.name]}
    metadata = {"gddl.yaml": {"landing": "landing", "lake": "lake"}, "tables/shop.yaml": {"tables": [written]}}
    (tmp_path / "metadata/tables").mkdir(parents=True)
    for name, content in metadata.items():
        (tmp_path / "metadata" / name).write_text(json.dumps(content))
    command = [sys.executable, "-P", "-m", "airflow_gddl.cli.main", "validate", "--metadata", "metadata", "--json"]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    with servant_of(tree) as servant:
        result = servant.job(lake.job([row]))
    if room.name not in FIELDS:
        assert (result.status, done.returncode) == ("succeeded", 0)
        return
    (problem,) = map(json.loads, done.stdout.splitlines())
    assert (problem["code"], problem["field"]) == (_REFUSED[room.kind], FIELDS[room.name])
    assert result.error is not None
    assert (result.error.code, room.name in result.error.message) == (_REFUSED[room.kind], True)
    assert not Path(lake.layout(row).replica).exists()


_REFUSED = {
    "source": "SOURCE_MISSING", "feature": "FEATURE_MISSING", "action": "ACTION_MISSING", "runner": "RUNNER_BROKEN",
}  # fmt: skip


def refusal_without(room: Room, servant: Servant, lake: Lake, row: TableSpec) -> str:
    """Code of the error where the room is asked for."""
    if room.kind == "runner":
        return str(servant.ask(runner=room.name))
    options = JobOptions()
    if room.kind == "action":
        options = options_of(room.name)
    else:
        row = replace(row, **{"table": "shop.asking", **ASKING[room.name]})
        lake.load(row)
    result = servant.job(lake.job([row], options))
    assert result.error is not None, json.dumps(result.details)
    assert room.name in result.error.message
    assert room.kind == "action" or not Path(lake.layout(row).replica).exists()
    return result.error.code
