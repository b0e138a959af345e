"""Each check is seen failing with a fault of its own, and the checks of storage passing on a local folder and on S3."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.stores import Storage
from airflow_gddl.tools.platform_check import command, job_checks, storage_checks
from airflow_gddl.tools.platform_check.checks import CHECKS, CheckContext, Outcome
from airflow_gddl.tools.platform_check.command import FOLDER
from airflow_gddl.tools.platform_check.job_checks import JobChecks
from tests.platform_check.ground import STORAGE, Ground, outcomes

FAKE_JOB = Path(__file__).parents[1] / "commands" / "fake_job.py"


class NoIfNoneMatch(Storage):
    """The condition that nothing is there is ignored."""

    def create(self, path: str, data: bytes) -> bool:
        self.write(path, data)
        return True


class NoIfMatch(Storage):
    """The condition of a tag is ignored."""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:  # noqa: ARG002 - ignored
        self.write(path, data)
        return True


class LateReads(Storage):
    """Who was refused does not see at once what is there."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.hidden: set[str] = set()

    def create(self, path: str, data: bytes) -> bool:
        done = super().create(path, data)
        self.hidden |= set() if done else {path}
        return done

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        if path in self.hidden:
            self.hidden.remove(path)
            raise FileNotFoundError(path)
        return super().read_tagged(path)


class OnePage(Storage):
    """A listing ends after a thousand objects."""

    def list(self, folder: str, after: str = "", within: str | None = None) -> Any:
        return (one for number, one in enumerate(super().list(folder, after, within)) if number < 1000)


class NoDeletes(Storage):
    """Deletes are denied."""

    def delete(self, *paths: str) -> None:
        raise FatalError("STORAGE_DENIED", "no permission to delete", where=paths[0])


def of_store(check: str, kind: type[Storage]) -> Callable[[Ground], Outcome]:
    return lambda ground: outcomes(ground.context(store=kind(ground.cli.environ)), check)[check]


def with_job(ground: Ground, *program: str, **variables: str) -> CheckContext:
    """A context whose jobs are another program."""
    cli = replace(ground.cli, job_command=program)
    return ground.context(cli=replace(cli, environ={**cli.environ, **variables}))


def job_that_does_nothing(ground: Ground) -> Outcome:
    return outcomes(with_job(ground, sys.executable, "-c", "pass"), "job.load")["job.load"]


def job_that_ends_otherwise(ground: Ground) -> Outcome:
    """It is asked to stop, and its tables fail with another code."""
    progress = [{"table": "nyc.airlines", "step": "discover"}]
    orders = json.dumps({"progress": progress, "on_term": "answer", "sleep": 60})
    made = with_job(ground, sys.executable, "-P", str(FAKE_JOB), FAKE_JOB=orders)
    return outcomes(made, "job.cancel")["job.cancel"]


def job_that_starts_once(ground: Ground) -> Outcome:
    """The jobs after the first one end at once."""
    mark, program = ground.root / "started", ground.root / "once.py"
    program.write_text(
        f"import os, sys, pathlib\nmark = pathlib.Path({str(mark)!r})\nif mark.exists(): sys.exit(3)\nmark.touch()\n"
        f"os.execv({JOB[0]!r}, [*{list(JOB)!r}, *sys.argv[1:]])\n"
    )
    made = with_job(ground, sys.executable, "-P", str(program))
    return outcomes(made, "job.load", "job.resume")["job.resume"]


def with_a_row_removed(check: str) -> Callable[[Ground], Outcome]:
    """Somebody else deletes a row of a replica after it was loaded."""

    def make(ground: Ground) -> Outcome:
        made = ground.context()
        jobs = JobChecks(made)
        probes = job_checks.probes(jobs)
        (load,) = command.outcomes_of(made, {"job.load": probes["job.load"]})
        assert load.state == "PASS", load
        replica = DeltaTable(made.below("lake", "nyc", "airlines"))
        assert replica.delete("carrier = 'AA'")["num_deleted_rows"] == 1
        (found,) = command.outcomes_of(made, {check: probes[check]})
        assert command.removed(made, jobs).state == "PASS"
        return found

    return make


def no_deletes(ground: Ground) -> Outcome:
    made = ground.context(store=NoDeletes({**os.environ, **ground.environ}))
    return outcomes(made, "storage.lost_answer")["cleanup"]


FAULTS: Mapping[str, tuple[str, Callable[[Ground], Outcome]]] = {
    "storage.put": ("bucket_ground", of_store("storage.put", NoIfMatch)),
    "storage.lost_answer": ("bucket_ground", of_store("storage.lost_answer", LateReads)),
    "storage.listing": ("bucket_ground", of_store("storage.listing", OnePage)),
    "storage.denied": ("open_ground", lambda ground: outcomes(ground.context(), "storage.denied")["storage.denied"]),
    "job.load": ("ground", job_that_does_nothing),
    "job.cancel": ("ground", job_that_ends_otherwise),
    "job.resume": ("ground", job_that_starts_once),
    "tables.verify": ("ground", with_a_row_removed("tables.verify")),
    "tables.rows": ("ground", with_a_row_removed("tables.rows")),
    "cleanup": ("open_ground", no_deletes),
}
"""For each check, a ground and a fault with which it fails."""


def test_each_check_has_a_fault_and_is_made(ground: Ground) -> None:
    assert list(FAULTS) == list(CHECKS)
    made = [*storage_checks.PROBES, *job_checks.probes(JobChecks(ground.context())), "cleanup"]
    assert made == list(CHECKS)


@pytest.mark.parametrize("check", FAULTS)
def test_the_check_fails_with_its_fault(check: str, request: pytest.FixtureRequest) -> None:
    place, make = FAULTS[check]
    found = make(request.getfixturevalue(place))
    code = "PLATFORM_NOT_REMOVED" if check == "cleanup" else "PLATFORM_CHECK_FAILED"
    assert (found.state, found.code) == ("FAIL", code), found
    assert re.fullmatch(rf"FAIL {re.escape(check)}: \[{code}\] .+\. Remedy: .+", found.line), found.line


def test_a_put_if_absent_that_replaces_is_found(bucket_ground: Ground) -> None:
    found = of_store("storage.put", NoIfNoneMatch)(bucket_ground)
    assert found.finding == "a put if absent is taken where an object is"


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
        ("PACKAGE_MISSING", "FAIL"),
    ],
)
def test_a_refusal_has_a_code_of_rights(code: str, state: str, open_ground: Ground) -> None:
    """Another one would lead whoever reads it astray, or the request was never made."""
    made = open_ground.context(unsigned=Refusing(code))
    assert outcomes(made, "storage.denied")["storage.denied"].state == state


@pytest.mark.parametrize("place", ["ground", "bucket_ground"])
def test_the_checks_of_storage_pass_where_all_is_well(place: str, request: pytest.FixtureRequest) -> None:
    here: Ground = request.getfixturevalue(place)
    made = here.context()
    found = outcomes(made, *STORAGE)
    assert {name: one.line for name, one in found.items() if one.state == "FAIL"} == {}
    skipped = {name: one.reason for name, one in found.items() if one.state == "NOT TRIED"}
    assert skipped in ({}, {"storage.denied": "all-rights"})
    assert place == "ground" or not skipped
    assert list(made.store.list(here.lake)) == []


@pytest.mark.parametrize("place", ["ground", "bucket_ground"])
@pytest.mark.parametrize("odd", ["", "/my lake %20"])
def test_the_removal_touches_nothing_beside_the_folder(place: str, odd: str, request: pytest.FixtureRequest) -> None:
    """Nor a folder whose name begins as its own does."""
    here: Ground = request.getfixturevalue(place)
    if odd:
        here = replace(here, store=f"{here.store or here.root}{odd}")
        Path(here.root, odd.strip("/")).mkdir()
    made = here.context()
    beside = [f"{made.root}0/x", f"{made.root}.x", f"{here.lake}/{FOLDER}/x", f"{here.lake}/t/x"]
    for path in beside:
        made.store.write(path, b"mine")
    made.store.write(made.below("many", "x"), b"")
    assert outcomes(made)["cleanup"].state == "PASS"
    assert sorted(one.path for one in made.store.list(here.lake)) == sorted(beside)


def test_a_link_in_the_folder_is_removed_and_not_followed(ground: Ground) -> None:
    made, mine = ground.context(), ground.root / "mine"
    mine.mkdir()
    (mine / "x").write_text("mine")
    Path(made.below("many")).mkdir(parents=True)
    Path(made.below("many", "link")).symlink_to(mine)
    assert outcomes(made)["cleanup"].state == "PASS"
    assert (mine / "x").read_text() == "mine"
    Path(made.root).parent.mkdir()
    Path(made.root).symlink_to(mine)
    assert outcomes(made)["cleanup"].state == "FAIL"
    assert (mine / "x").read_text() == "mine"
