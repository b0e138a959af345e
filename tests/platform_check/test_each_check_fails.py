"""Each check is seen failing with its own code, and passing on a local folder and on S3."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.documentation import code_texts
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.platform_check import course, job_checks, storage_checks
from airflow_gddl.platform_check.checks import CHECKS, STORAGE
from airflow_gddl.platform_check.course import AIRFLOW
from airflow_gddl.platform_check.job_checks import JobChecks
from airflow_gddl.platform_check.place import FOLDER
from airflow_gddl.stores import Storage
from tests.platform_check.faults import FAULTS
from tests.platform_check.ground import Ground, outcomes

NEEDS_AIRFLOW = ("airflow.triggerer", "airflow.dag_processor")


def test_each_check_has_a_fault() -> None:
    assert list(FAULTS) == list(CHECKS)
    assert all({"local", "s3"} & set(fault.grounds) for fault in FAULTS.values())


def test_each_check_is_made(ground: Ground) -> None:
    made = [*storage_checks.PROBES, *job_checks.probes(JobChecks(ground.context())), "catalog.answer"]
    assert {*made, *AIRFLOW, "cleanup"} == set(CHECKS)
    assert tuple(storage_checks.PROBES) == STORAGE


def test_codes_are_of_one_check_each_and_documented_with_a_remedy() -> None:
    found = [check.code for check in CHECKS.values()]
    assert len(set(found)) == len(found)
    assert {code for code in found if not code_texts()[code].remedy} == set()
    assert all(check.remedy for check in CHECKS.values())


@pytest.mark.parametrize("check", [name for name, fault in FAULTS.items() if "local" in fault.grounds])
def test_the_check_fails_with_its_fault(check: str, ground: Ground) -> None:
    if check in NEEDS_AIRFLOW:
        pytest.importorskip("airflow")
    found = FAULTS[check].make(ground)
    assert (found.state, found.code) == ("FAIL", CHECKS[check].code), found
    assert found.finding
    assert re.search(rf"{re.escape(check)}.*\[{found.code}\] .+\. Remedy: .+", found.line), found.line


@pytest.mark.parametrize("check", [name for name, fault in FAULTS.items() if "s3" in fault.grounds])
def test_the_check_fails_with_its_fault_on_s3(check: str, bucket_ground: Ground) -> None:
    found = FAULTS[check].make(bucket_ground)
    assert (found.state, found.code) == ("FAIL", CHECKS[check].code), found


class Refusing(Storage):
    def __init__(self, code: str) -> None:
        super().__init__({})
        self.code = code

    def read(self, path: str, most: int | None = None) -> bytes:  # noqa: ARG002 - as `Storage.read`
        raise FatalError(self.code, "refused")


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("STORAGE_DENIED", "PASS"),
        ("S3_CREDENTIALS_REFUSED", "PASS"),
        ("S3_BUCKET_MISSING", "FAIL"),
        ("S3_REGION_WRONG", "FAIL"),
        ("PACKAGE_MISSING", "FAIL"),
    ],
)
def test_a_refusal_has_a_code_of_rights(code: str, state: str, open_ground: Ground) -> None:
    """Another one would lead whoever reads it astray, or the request was never made."""
    denied = Refusing("STORAGE_DENIED")
    made = open_ground.context(anonymous=lambda: Refusing(code), unsigned=lambda: denied)
    assert outcomes(made, "storage.write", "storage.denied")["storage.denied"].state == state


def test_a_bucket_that_is_open_without_keys_is_found(open_ground: Ground) -> None:
    """Where keys that nobody knows are refused all the same, as Amazon S3 does in a public bucket."""
    made = open_ground.context(anonymous=lambda: Refusing("S3_CREDENTIALS_REFUSED"))
    found = outcomes(made, "storage.write", "storage.denied")["storage.denied"]
    assert (found.state, found.finding) == ("FAIL", "an object was read without a right to it")


FAILING = {
    "ground": {},
    # versitygw on a disk keeps content and tag in two files: a read beside a write has the one of before, the other of
    # after. How often that is met differs.
    "bucket_ground": {"storage.updates": "FAIL"},
    "open_ground": {"storage.denied": "FAIL"},
}
"""Checks of storage that may fail on a ground, which are then right: it breaks the promise."""


@pytest.mark.parametrize("place", FAILING)
def test_the_checks_of_storage_pass_where_all_is_well(place: str, request: pytest.FixtureRequest) -> None:
    here: Ground = request.getfixturevalue(place)
    made = here.context()
    made.store.write(f"{here.landing}/shop/t/x", b"")
    found = outcomes(made, *STORAGE)
    bad = {name: one.line for name, one in found.items() if one.state == "FAIL" and name not in FAILING[place]}
    assert bad == {}
    skipped = {name: one.reason for name, one in found.items() if one.state == "NOT TRIED"}
    assert skipped in ({}, {"storage.denied": "all-rights"})
    assert place == "ground" or not skipped
    assert list(made.store.list(made.place.lake)) == []


@pytest.mark.parametrize("place", ["ground", "bucket_ground"])
@pytest.mark.parametrize("odd", ["", "/my lake %20"])
def test_the_removal_touches_nothing_beside_the_folder(place: str, odd: str, request: pytest.FixtureRequest) -> None:
    """Nor a folder whose name begins as its own does."""
    here: Ground = request.getfixturevalue(place)
    if odd:
        here = replace(here, store=f"{here.store or here.root}{odd}")
        Path(here.root, odd.strip("/")).mkdir()
    made = here.context()
    beside = [
        f"{made.place.root}0/x",
        f"{made.place.root}.x",
        f"{made.place.lake}/{FOLDER}/x",
        f"{made.place.lake}/t/x",
    ]
    for path in beside:
        made.store.write(path, b"mine")
    made.store.write(made.place.below("many", "x"), b"")
    assert course.removed(made).state == "PASS"
    assert sorted(one.path for one in made.store.list(made.place.lake)) == sorted(beside)


def test_a_link_in_the_folder_is_removed_and_not_followed(ground: Ground) -> None:
    made, mine = ground.context(), ground.root / "mine"
    mine.mkdir()
    (mine / "x").write_text("mine")
    Path(made.place.below("many")).mkdir(parents=True)
    Path(made.place.below("many", "link")).symlink_to(mine)
    assert course.removed(made).state == "PASS"
    assert (mine / "x").read_text() == "mine"
    Path(made.place.root).parent.mkdir()
    Path(made.place.root).symlink_to(mine)
    assert course.removed(made).code == "PLATFORM_NOT_REMOVED"
    assert (mine / "x").read_text() == "mine"
