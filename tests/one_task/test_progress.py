"""What a job's process leaves for those who watch: figures in a file, and lines of JSON with table, run and batch."""

from __future__ import annotations

import json
import os
from pathlib import Path

from airflow_gddl.contract.codec import to_json
from tests.harness.lake import Lake, spec_of
from tests.spark.children import job_child


def test_figures_and_logs_of_a_job(tmp_path: Path) -> None:
    lake, specs = Lake(tmp_path), [spec_of(name) for name in ("a", "b")]
    for spec in specs:
        lake.load(spec, 5)
        lake.change(spec, 1, [("U", 1, "x"), ("?", 2, "bad")])
    figures = tmp_path / "gddl.prom"
    env = {**os.environ, "GDDL_METRICS_FILE": str(figures), "GDDL_LOG_FORMAT": "json"}
    with job_child(lake.job(specs, run_id="run-7"), env=env) as child:
        ended = child.end()
    assert ended.status == 0, ended.err
    text = figures.read_text()
    for name in ("s.a", "s.b"):
        assert f'gddl_rows_read_total{{table="{name}",tier="small"}} 7.0\n' in text
        assert f'gddl_quarantined_total{{table="{name}",tier="small"}} 1.0\n' in text
        landed = sum(file.stat().st_size for file in (tmp_path / "landing" / "s" / name[2:]).iterdir())
        assert f'gddl_bytes_read_total{{table="{name}",tier="small"}} {float(landed)}\n' in text
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert {line["run"] for line in lines} == {"run-7"}
    steps = {(line["table"], line["batch"], line["message"].split(",")[0]) for line in lines}
    assert {("s.a", 2, "replica"), ("s.b", 2, "replica"), ("s.b", 1, "append")} <= steps
    assert to_json(lake.job(specs)) not in ended.err
