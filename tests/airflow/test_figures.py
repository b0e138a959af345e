"""Figures of a load, for as many tables as a metrics store bears."""

from __future__ import annotations

import logging

import pytest

from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.reporting import results as reporting
from airflow_gddl.reporting.results import Reporter


def test_figures_are_tagged_by_table_and_tier_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, float, dict[str, str]]] = []
    monkeypatch.setattr(reporting, "gauge", lambda name, value, tags: sent.append((name, value, tags)))
    specs = {f"s.t{n}": TableSpec(table=f"s.t{n}", keys=("id",), size="medium") for n in range(700)}
    reporter = Reporter(logging.getLogger("figures"), specs)
    warnings = (RunWarning(code="A_TIE", message="m", count=2),)
    for name in (*specs, "s.t0"):
        reporter.on_result(JobResult(table=name, status="succeeded", rows_read=7, bytes_read=90, warnings=warnings))
    assert sent[:6] == [
        (f"gddl.{name}", value, {"table": "s.t0", "tier": "medium"})
        for name, value in (
            ("rows_read", 7.0), ("bytes_read", 90.0), ("quarantined", 0.0), ("batches", 0.0), ("seconds", 0.0),
            ("warnings", 2.0),
        )
    ]  # fmt: skip
    assert len({tags["table"] for _, _, tags in sent}) == 500
    assert len(sent) == 6 * 501, "a table that has a name of its own keeps it"
