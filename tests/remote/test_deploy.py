"""`gddl deploy databricks`: an asset bundle; and `gddl run` through its jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from databricks.bundles.jobs import Job

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from devtools.fake_databricks.server import FakeServer
from tests.harness.lake import Lake, spec_of

SETTINGS = """landing: {root}/landing
lake: {root}/lake
runner: databricks
runners:
  databricks: {{wheel: /Volumes/a.whl, node_type: i3.xlarge, local_roots: true{more}}}
"""


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    write(folder)
    rows = "tables:\n  - {table: s.a, keys: [id], sequence_by: [seq]}\n"
    (folder / "tables" / "s.yaml").write_text(rows + "  - {table: s.m, keys: [id], size: medium, enabled: false}\n")
    return folder


def write(folder: Path, more: str = "") -> None:
    (folder / "gddl.yaml").write_text(SETTINGS.format(root=folder.parent, more=more))


@pytest.mark.parametrize("tier", ["serverless: true", "serverless: false, node_type: i3.xlarge, workers: 2"])
def test_a_bundle_is_what_the_types_of_databricks_bundles_take(
    metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, tier: str
) -> None:
    """Every field is one of theirs, and comes back as it went in."""
    profile = "arn:aws:iam::123456789012:instance-profile/gddl"
    write(metadata, f", instance_profile: '{profile}', tiers: {{small: {{{tier}}}}}")
    command = ("deploy", "databricks", "--out", str(tmp_path), "--metadata", str(metadata))
    assert gddl(capsys, *command)[0] == 0
    bundle = yaml.safe_load((tmp_path / "databricks.yml").read_text())
    (job,) = bundle["resources"]["jobs"].values()
    assert Job.from_dict(job).as_dict() == job
    with pytest.raises(ValueError, match="Unexpected field 'workers'"):
        Job.from_dict({**job, "workers": 2})


def gddl(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and standard output."""
    status = invoke(arguments, real())
    return status, capsys.readouterr().out


def test_a_bundle_holds_the_jobs_of_tiers_with_tables(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    status, out = gddl(capsys, "deploy", "databricks", "--out", str(folder), "--metadata", str(metadata))
    assert (status, fake.requests) == (0, [])
    assert f"wrote {folder / 'databricks.yml'}: 1 jobs, which `databricks bundle deploy`" in out
    bundle = yaml.safe_load((folder / "databricks.yml").read_text())
    assert (bundle["bundle"], list(bundle["resources"]["jobs"])) == ({"name": "gddl"}, ["gddl_small"])
    fake.workspace.deploy(folder / "databricks.yml")
    (job,) = fake.workspace.jobs.values()
    assert (job.name, job.max_concurrent_runs, job.queue and job.queue.enabled) == ("gddl-small", 20, True)


def test_a_runner_without_saved_jobs_says_so(metadata: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(("deploy", "emr_serverless", "--metadata", str(metadata)), real()) == 2
    assert "[OPTION_INVALID] emr_serverless: there are no jobs to deploy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (", max_concurrent_runs: 5", r"gddl.yaml:5: runners.databricks.max_concurrent_runs.*no such field"),
        (", timeout: soon", r"gddl.yaml:5: runners.databricks.timeout.*not a duration \(value 'soon'\)"),
        (", repairs: 11", r"must be 0 to 10 \(value 11\)"),
        (", tiers: {large: {serverless: true, discovery: auto_loader}}", r"tiers.large.discovery.*not on serverless"),
        (
            ", tiers: {large: {serverless: false, node_type: n, auto_loader: {cloudFiles.format: csv}}}",
            r"tiers.large.auto_loader.*no setting that may be given \(value 'cloudFiles.format'\)",
        ),
        (", tiers: {large: {discovery: autoloader}}", r"tiers.large.discovery"),
        (
            ", tiers: {large: {serverless: true, node_type: i3.xlarge}}",
            r"tiers.large.node_type.*field of job clusters.*serverless: false",
        ),
        (
            ", instance_profile: gddl",
            r"databricks.instance_profile.*no ARN of an instance profile \(value 'gddl'\)",
        ),
        (", token: hunter22", r"looks like a secret"),
    ],
)
def test_wrong_settings_are_named_with_file_field_value_and_remedy(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str], more: str, says: str
) -> None:
    write(metadata, more)
    assert invoke(("deploy", "databricks", "--metadata", str(metadata)), real()) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert re.search(says, err), err
    assert "Remedy" in err
    assert "hunter22" not in err
    assert fake.requests == []


def test_job_clusters_without_machines_are_a_problem_of_the_metadata(
    metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (metadata / "gddl.yaml").read_text().replace("node_type: i3.xlarge, ", "")
    (metadata / "gddl.yaml").write_text(text)
    status, out = gddl(capsys, "validate", "--json", "--metadata", str(metadata))
    (said,) = [json.loads(line) for line in out.splitlines()]
    assert (status, said["code"], said["field"]) == (2, "FIELD_MISSING", "runners.databricks.node_type")
    assert said["message"].startswith("the job clusters of tiers small, medium, large have no machines")
    assert "instance_pool_id" in said["remedy"]
    pool, serverless = "instance_pool_id: p-1", "serverless: true"
    for tiers in (f"small: {{{pool}}}, medium: {{{serverless}}}, large: {{node_type: n}}", None):
        ways = f"tiers: {{{tiers}}}" if tiers else pool
        (metadata / "gddl.yaml").write_text(text.replace("local_roots: true", f"local_roots: true, {ways}"))
        assert gddl(capsys, "validate", "--metadata", str(metadata))[0] == 0


NO_FOLDER = ("RUNNER_NEEDS_S3", "runner databricks needs it in an object store")
NO_VOLUME = ("RUNNER_NEEDS_S3", "a mounted volume is no root: no atomic creation of files there")


@pytest.mark.parametrize(
    ("landing", "more", "problem"),
    [
        ("/landing", "", NO_FOLDER),
        ("/Volumes/main/cdc/landing", "", NO_VOLUME),
        ("/Volumes/main/cdc/landing", ", local_roots: true", NO_VOLUME),
        ("/dbfs/landing", ", local_roots: true", NO_VOLUME),
        (
            "dbfs:/Volumes/main/cdc/landing",
            "",
            ("ROOT_INVALID", "not a usable root: it is neither a local path nor s3"),
        ),
    ],
)
def test_roots_that_jobs_can_t_use_are_refused_before_anything_is_asked(
    fake: FakeServer,
    metadata: Path,
    capsys: pytest.CaptureFixture[str],
    landing: str,
    more: str,
    problem: tuple[str, str],
) -> None:
    runners = f"runner: databricks\nrunners: {{databricks: {{wheel: /Volumes/a.whl, node_type: n{more}}}}}\n"
    (metadata / "gddl.yaml").write_text(f"landing: {landing}\nlake: s3://bucket/lake\n{runners}")
    code, message = problem
    status, out = gddl(capsys, "validate", "--json", "--metadata", str(metadata))
    (said,) = [json.loads(line) for line in out.splitlines()]
    assert (status, said["code"], said["field"], said["line"], said["value"]) == (2, code, "landing", 1, repr(landing))
    assert said["message"].startswith(message)
    for command in (("deploy", "databricks"), ("run",)):
        assert invoke((*command, "--metadata", str(metadata)), real()) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert f"gddl.yaml:1: landing: {message}" in err
        assert "s3://" in err.partition("Remedy")[2]
    assert fake.requests == []


def test_serverless_tiers_on_s3_come_with_a_warning(
    metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    roots = "landing: s3://bucket/landing\nlake: s3://bucket/lake\nrunner: databricks\n"
    settings = roots + "runners: {databricks: {wheel: /Volumes/a.whl, node_type: i3.xlarge%s}}\n"
    (metadata / "gddl.yaml").write_text(settings % ", tiers: {small: {serverless: true}}")
    command = ("deploy", "databricks", "--out", str(tmp_path), "--metadata", str(metadata))
    said = gddl(capsys, *command)[1]
    assert said.startswith("Warning: tiers small run on serverless compute, where a job has no AWS credentials")
    profile = "arn:aws:iam::123456789012:instance-profile/gddl"
    (metadata / "gddl.yaml").write_text(settings % f", instance_profile: '{profile}'")
    assert "Warning" not in gddl(capsys, *command)[1]
    (job,) = yaml.safe_load((tmp_path / "databricks.yml").read_text())["resources"]["jobs"].values()
    (cluster,) = job["job_clusters"]
    assert cluster["new_cluster"]["aws_attributes"]["instance_profile_arn"] == profile
    assert cluster["new_cluster"]["node_type_id"] == "i3.xlarge"
    assert job["tasks"][0]["job_cluster_key"] == cluster["job_cluster_key"]


def test_a_command_line_runs_tables_through_the_workspace(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Lake(tmp_path).load(spec_of("a"))
    gddl(capsys, "deploy", "databricks", "--out", str(tmp_path), "--metadata", str(metadata))
    fake.workspace.deploy(tmp_path / "databricks.yml")
    status, out = gddl(capsys, "run", "--json", "--metadata", str(metadata))
    result = json.loads(out)
    assert (status, result["table"], result["status"], result["main"]["rows"]) == (0, "s.a", "succeeded", 3)
    assert len(fake.workspace.runs) == 1


def test_the_fake_is_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devtools.fake_databricks", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert re.fullmatch(r"export DATABRICKS_HOST=http://127.0.0.1:\d+ DATABRICKS_TOKEN=[A-Za-z0-9_-]{40,}\n", line)
