"""An earlier commit of this package beside the present one: jobs and metadata of either, on one lake."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import report_from_json, to_document, to_json
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from tests.delta_rs.small_lake import SmallLake, spec_of

ROOT = Path(__file__).parents[2]
EARLIER = "Repair tables by rebuild, reload and resync; let types become text"
"""The last commit whose specifications stated every field; its specifications are in `tests/unit/specifications`.

By its subject: a branch that is rebased has other hashes.
"""
ROW = spec_of(history=True, owner="ann", mask={"v": "hash"}, tags={"team": "shop"})


@dataclass(frozen=True)
class Version:
    """One version of the package; `folder`: its source, null for the present one."""

    folder: Path | None

    def python(self, code: str, *arguments: str) -> str:
        environ = {**os.environ, "PYTHONPATH": str(self.folder or ROOT)}
        command = [sys.executable, "-P", "-c", code, *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job(self, spec: str) -> JobResult:
        said = self.python("import sys; from spark_jobs.main import main; sys.exit(main())", "--spec", spec)
        return report_from_json(JobResult, said.splitlines()[-1])

    def specification(self, job: JobSpec) -> str:
        """As this version writes it."""
        code = (
            "import sys; from airflow_gddl.contract import codec; from airflow_gddl.contract.spec import JobSpec;"
            "print(getattr(codec, 'to_document', codec.to_json)(codec.from_json(JobSpec, sys.argv[1])))"
        )
        return self.python(code, to_document(job)).strip()

    def result(self, text: str) -> str:
        code = (
            "import sys; from airflow_gddl.contract import codec; from airflow_gddl.contract.result import JobResult;"
            "print(codec.from_json(JobResult, sys.argv[1]).status)"
        )
        return self.python(code, text).strip()


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Version]:
    folder = tmp_path_factory.mktemp("earlier")
    search = ["git", "log", "--format=%H", "-1", "--fixed-strings", f"--grep={EARLIER}"]
    commit = subprocess.run(search, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if not commit:
        pytest.skip(f"no git checkout that has {EARLIER!r} (run `git fetch --unshallow`)")
    command = ["git", "archive", commit, "airflow_gddl", "spark_jobs"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as packed:
        packed.extractall(folder, filter="data")
    earlier = Version(folder)
    assert str(folder) in earlier.python("import spark_jobs.main as m; print(m.__file__)")
    return {"earlier": earlier, "present": Version(None)}


@pytest.mark.parametrize("order", [("earlier", "present"), ("present", "earlier")])
def test_either_version_runs_the_specification_of_the_other(
    versions: Mapping[str, Version], tmp_path: Path, order: tuple[str, str]
) -> None:
    """Metadata and job of different versions, and the table goes on with each of them in turn."""
    lake, (driver, worker) = SmallLake(tmp_path), order
    lake.load(ROW)
    for number, names in enumerate((order, order[::-1], order, order[::-1]), start=1):
        lake.change(ROW, number, [("U", 0, f"v{number}"), ("I", 10 + number, "new")])
        spec = versions[names[0]].specification(lake.job([ROW], run_id=f"run-{number}"))
        result = versions[names[1]].job(spec)
        assert (result.status, result.error) == ("succeeded", None)
        assert result.changes_written == (5 if number == 1 else 2)
        assert versions[names[0]].result(to_json(result)) == "succeeded"
    assert sorted(lake.replica(ROW)) == [0, 1, 2, 11, 12, 13, 14]
    idle = versions[worker].job(versions[driver].specification(lake.job([ROW], run_id="idle")))
    assert (idle.status, idle.changes_written) == ("skipped", 0)


def test_the_present_job_takes_every_field_that_the_earlier_one_wrote(versions: Mapping[str, Version]) -> None:
    """Sent through the earlier version, a specification means the same."""
    lake = SmallLake(Path("/nowhere"))
    job = lake.job([ROW, replace(spec_of("u"), schedule=None)])
    stated = json.loads(versions["earlier"].specification(job))
    assert stated["tables"][0]["delete"] == "hard", "the earlier version states defaults"
    code = "import sys; from spark_jobs.program import read_spec; from airflow_gddl.contract.codec import to_document;"
    again = versions["present"].python(f"{code} print(to_document(read_spec(sys.argv[1])))", json.dumps(stated))
    assert again.strip() == to_document(job)
