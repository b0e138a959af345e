"""Hostile files and rows stall no other table, take no memory beyond their tier, and show no secret.

Thirty minutes in the deep lane (GDDL_FUZZ_SECONDS), from a seed of the day on, which the failure names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots
from tests.conftest import ENGINES
from tests.fuzz.hostile import FORMS, hostile_file
from tests.harness.engine_port import EnginePort
from tests.harness.lake import spec_of
from tests.harness.landing import write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are Linux's")
SECONDS = float(os.environ.get("GDDL_FUZZ_SECONDS", "1800"))


def play(folder: Path, first: int, *limits: str) -> list[str]:
    command = [sys.executable, "-m", "tests.fuzz.hostile_child", str(folder), "--first", str(first), *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    played = done.stdout.splitlines()
    if done.returncode or not played or played[-1] != "done":
        how = f"exit status {done.returncode}: {done.stderr[-3000:]}"
        pytest.fail(f"the input {played[-1] if played else None!r} ended its process, {how}")
    return played[:-1]


def test_hostile_input_is_survived_and_told(tmp_path: Path) -> None:
    played = play(tmp_path, 0, "--count", "100")
    assert len(played) == 100
    assert {name.rpartition(" ")[0] for name in played} == {*FORMS, "row"}


@pytest.mark.deep
@pytest.mark.parametrize("name", ENGINES)
def test_more_hostile_input_harms_no_other_table(name: str, tmp_path: Path) -> None:
    first = int(time.time()) // 86_400 * 1_000_000
    assert len(play(tmp_path, first, "--seconds", str(SECONDS), "--tasks", name)) > len(FORMS)


def test_a_hostile_input_that_does_stall_is_noticed(tmp_path: Path) -> None:
    """Else the tests above find nothing because they can't."""
    code = "from tests.fuzz import hostile_child as c; c.limited(1)\nwhile True: pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode < 0


@pytest.mark.deep_on_many
def test_hostile_files_harm_only_their_table(engine: EnginePort, tmp_path: Path) -> None:
    """A job of tables with a hostile file each, and one that is sound."""
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    sound, specs = spec_of("sound", settle="0s"), []
    write(
        Path(Layout.of(roots, sound).landing),
        "20240101-000000001.parquet",
        pa.table({"Op": ["I"], "seq": [1], "id": [7]}),
    )
    for number, form in enumerate(FORMS * 2):
        spec, name, content, _ = hostile_file(form, 7 + number)
        specs.append(replace(spec, table=f"s.t{number}", settle="0s", mask={"secret": "null"}))
        folder = Path(Layout.of(roots, specs[-1]).landing)
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
    results = engine.run(JobSpec(run_id="fuzz", roots=roots, tables=(*specs, sound), tiers=DEFAULT_TIERS))
    assert [r.table for r in results if r.error is not None and r.error.code == "UNEXPECTED"] == []
    assert {r.table for r in results} == {spec.table for spec in (*specs, sound)}
    assert [row["id"] for row in engine.read(Layout.of(roots, sound).replica)] == [7]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()})], ids=str)
def test_warnings_show_keys_that_have_no_order(engine: EnginePort, kind: pa.DataType, tmp_path: Path) -> None:
    """Found by the inputs above: the sample of a warning was sorted, and each run of the table failed."""
    roots, spec = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake")), spec_of("t", settle="0s")
    keys = [[7], [5]] if pa.types.is_list(kind) else [{"a": 7}, {"a": 5}]
    rows = {"Op": ["U", "U"], "seq": [1, 2], "id": pa.array(keys, kind), "v": ["x", "y"]}
    write(Path(Layout.of(roots, spec).landing), "20240101-000000001.parquet", pa.table(rows))
    (result,) = engine.run(JobSpec(run_id="fuzz", roots=roots, tables=(spec,), tiers=DEFAULT_TIERS))
    assert result.error is None, result.error
    (warning,) = [w for w in result.warnings if w.code == "UPDATE_WITHOUT_PRIOR"]
    assert [json.loads(text)["id"] for text in warning.sample] == [keys[1], keys[0]]
