"""A container may run as a number: its user has no name, and HOME is not set."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from airflow_gddl.cli import airflow_home, context
from airflow_gddl.configuration import other_places
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.s3 import profile_of
from spark_jobs.spark.jars import cache_folder


@pytest.fixture(autouse=True)
def nameless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the system answers where no line of /etc/passwd has the number."""

    def missing(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "AIRFLOW_HOME", "GDDL_JARS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", missing)
    monkeypatch.chdir(tmp_path)


def test_there_are_no_files_of_the_user() -> None:
    assert airflow_home.home({}) == Path("~/airflow")
    assert not airflow_home.configuration({}).exists()
    assert profile_of({}) is None
    assert other_places("metadata") == []


def test_a_decision_has_the_number_of_who_made_it() -> None:
    assert context.user_name() == str(os.getuid())


def test_a_place_for_jars_has_to_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"DELTA_MISSING.*HOME is not set.*Remedy: set HOME or GDDL_JARS"):
        cache_folder()
    monkeypatch.setenv("GDDL_JARS", str(tmp_path))
    assert cache_folder() == tmp_path
