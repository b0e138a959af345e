"""`gddl-job` on small tables: a line each on standard output, nothing on standard error, neither Java nor pandas."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tests.harness.lake import Lake, spec_of
from tests.spark.children import Ended, job_child

NAMES = ("a", "b", "c")


def run(lake: Lake, env: Mapping[str, str]) -> Ended:
    with job_child(lake.job([spec_of(name) for name in NAMES]), env=env) as child:
        return child.end()


def test_without_java_and_pandas(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for name in NAMES:
        lake.load(spec_of(name))
    site = tmp_path / "site"
    site.mkdir()
    (site / "pandas.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nraise ImportError('pandas')\n")
    nowhere = {n: v for n, v in os.environ.items() if n not in ("JAVA_HOME", "PATH")} | {"PYTHONPATH": str(site)}
    for status in ("succeeded", "skipped"):
        ended = run(lake, nowhere)
        assert (ended.status, ended.err) == (0, "")
        results = [json.loads(line) for line in ended.out.splitlines()]
        assert {r["table"]: (r["status"], r["tasks"]) for r in results} == {
            f"s.{name}": (status, "one") for name in NAMES
        }
    assert not (tmp_path / "imported").exists(), "pandas was imported"
