"""The page counts what is in quarantine as the command line does."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores.delta_tables import quarantined
from tests.harness.lake import Lake, spec_of


def test_the_page_counts_what_the_command_lists(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.change(spec, 1, [("X", 1, "a"), ("Y", 2, "b"), ("U", 0, "c")])
    lake.done(spec)
    listed = lake.done(spec, JobOptions(action=HandleErrors())).details
    assert listed["unresolved"] == 2
    assert {one["code"]: one["rows"] for one in listed["codes"]} == quarantined(lake.layout(spec).errors, "", 1, {})[
        "codes"
    ]
    shown = quarantined(lake.layout(spec).errors, "", 1, {})
    assert sum(shown["codes"].values()) == listed["unresolved"]
    assert [row["code"] for row in shown["rows"]] == ["OP_UNKNOWN"]
