"""What a job's process tells those who watch: figures for a collector, and lines of JSON with table, run and batch."""

from __future__ import annotations

import json
import os
from pathlib import Path

from airflow_gddl.contract.codec import to_json
from tests.harness.lake import Lake, spec_of
from tests.spark.children import job_child
from tests.unit.test_dashboards import metrics_of, receiver


def test_figures_and_logs_of_a_job(tmp_path: Path) -> None:
    lake, specs = Lake(tmp_path), [spec_of(name) for name in ("a", "b")]
    for spec in specs:
        lake.load(spec, 5)
        lake.change(spec, 1, [("U", 1, "x"), ("?", 2, "bad")])
    with receiver() as (got, url):
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "GDDL_LOG_FORMAT": "json"}
        with job_child(lake.job(specs, run_id="run-7"), env=env) as child:
            ended = child.end()
    assert ended.status == 0, ended.err
    found = {
        (metric.name, attributes["table"]): point.as_double or point.as_int
        for metric in metrics_of(got)
        if metric.name in ("gddl.rows_read", "gddl.quarantined", "gddl.bytes_read")
        for point in metric.sum.data_points
        for attributes in [{pair.key: pair.value.string_value for pair in point.attributes}]
    }
    for name in ("s.a", "s.b"):
        landed = sum(file.stat().st_size for file in (tmp_path / "landing" / "s" / name[2:]).iterdir())
        assert [found[f"gddl.{one}", name] for one in ("rows_read", "quarantined", "bytes_read")] == [7, 1, landed]
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert {line["run"] for line in lines} == {"run-7"}
    steps = {(line["table"], line["batch"], line["message"].split(",")[0]) for line in lines}
    assert {("s.a", 2, "replica"), ("s.b", 2, "replica"), ("s.b", 1, "append")} <= steps
    assert to_json(lake.job(specs)) not in ended.err
