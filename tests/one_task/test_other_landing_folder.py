"""A lake and its landing folder that were copied to another place, as for a failover or a second environment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.lake import Lake, spec_of

KEYLESS = TableSpec(table="s.t", keys=(), sequence_by=("seq",))
RELOAD = JobOptions(action=Reload(confirmed=True))


def copied(root: Path, spec: TableSpec) -> Lake:
    """The copy of a lake of 21 rows, whose files lie elsewhere."""
    lake = Lake(root / "before")
    lake.load(spec, 20)
    lake.change(spec, 1, [("I", 30, "new")])
    lake.done(spec)
    shutil.copytree(root / "before", root / "after")
    return Lake(root / "after")


def test_table_with_keys_takes_the_files_again_and_stays_equal(tmp_path: Path) -> None:
    spec = spec_of(history=True)
    lake = copied(tmp_path, spec)
    before = lake.replica(spec)
    lake.done(spec)
    assert lake.replica(spec) == before
    lake.change(spec, 2, [("U", 5, "five")], day=2)
    lake.done(spec)
    assert lake.replica(spec) == {**before, 5: "five"}
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_table_without_keys_is_refused_and_reloaded(tmp_path: Path) -> None:
    lake = copied(tmp_path, KEYLESS)
    refused = lake.result(KEYLESS).error
    assert refused is not None
    assert refused.code == "LANDING_MOVED"
    assert str(tmp_path / "before") in refused.message
    assert len(lake.rows(lake.layout(KEYLESS).replica)) == 21
    lake.done(KEYLESS, RELOAD)
    assert len(lake.rows(lake.layout(KEYLESS).replica)) == 21
    lake.change(KEYLESS, 2, [("I", 31, "newer")], day=2)
    lake.done(KEYLESS)
    assert len(lake.rows(lake.layout(KEYLESS).replica)) == 22


@pytest.mark.parametrize("spec", [spec_of(), KEYLESS], ids=["keys", "no keys"])
def test_files_of_other_names_are_no_copies(spec: TableSpec, tmp_path: Path) -> None:
    """A source whose files land elsewhere from now on."""
    lake = copied(tmp_path, spec)
    shutil.rmtree(lake.landing(spec))
    lake.change(spec, 7, [("I", 31, "newer")], day=2)
    assert lake.done(spec).rows_read == 1
