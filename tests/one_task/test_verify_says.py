"""What a verification without a source says it has compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.cli.job import show_verdicts
from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions
from tests.harness.lake import Lake, spec_of


def test_without_a_source_it_says_that_changes_were_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, row = Lake(tmp_path), spec_of()
    lake.load(row)
    lake.done(row)
    result = lake.done(row, JobOptions(action=Verify()))
    details = result.details
    assert (details["verdict"], details["compared"], details["source"]) == ("equal", ["its changes"], None)
    show_verdicts(Screen(), [result])
    shown = capsys.readouterr().out
    assert "its changes" in shown
    assert "Whether a table equals its source is not known" in " ".join(shown.split())
