"""`gddl deploy databricks`: made, kept, renewed, shown, rendered; and `gddl run` through what it made."""

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
from databricks.sdk.service.jobs import JobSettings

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.devtools.fakes.databricks.checking import settings_of
from airflow_gddl.devtools.fakes.databricks.server import FakeServer
from tests.delta_rs.small_lake import SmallLake, spec_of

SETTINGS = """landing: {root}/landing
lake: {root}/lake
runner: databricks
runners:
  databricks: {{wheel: /Volumes/a.whl, local_roots: true{more}}}
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


def gddl(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and standard output."""
    status = invoke(arguments, real())
    return status, capsys.readouterr().out


def test_jobs_are_made_then_kept_then_renewed_where_they_differ(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("deploy", "databricks", "--json", "--metadata", str(metadata))
    assert gddl(capsys, *command, "--dry-run")[0] == 0
    assert fake.workspace.jobs == {}
    status, out = gddl(capsys, *command)
    made = [json.loads(line) for line in out.splitlines()]
    assert (status, [(job["job"], job["action"]) for job in made]) == (0, [("gddl-small", "create")])
    (job,) = fake.workspace.jobs.values()
    assert (job.queue and job.queue.enabled, job.max_concurrent_runs) == (True, 20)
    assert json.loads(gddl(capsys, *command)[1])["action"] == "keep"
    write(metadata, ", max_concurrent_runs: 5, tags: {team: data}")
    changed = json.loads(gddl(capsys, *command)[1])
    assert changed["action"] == "update"
    fields = {field["path"]: (field["before"], field["after"]) for field in changed["fields"]}
    assert fields["max_concurrent_runs"] == (20, 5)
    assert fields["tags"][1]["team"] == "data"
    assert set(fields) == {"max_concurrent_runs", "tags"}
    (job,) = fake.workspace.jobs.values()
    assert job.max_concurrent_runs == 5
    write(metadata, ", max_concurrent_runs: 5")
    (field,) = json.loads(gddl(capsys, *command)[1])["fields"]
    assert (field["path"], "team" in field["before"], "team" in field["after"]) == ("tags", True, False)


def test_what_a_person_reads_names_field_and_values(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gddl(capsys, "deploy", "databricks", "--metadata", str(metadata))
    write(metadata, ", timeout: 2h")
    _, out = gddl(capsys, "deploy", "databricks", "--dry-run", "--metadata", str(metadata))
    assert re.search(r"timeout_seconds +43200 +7200", out)
    (job,) = fake.workspace.jobs.values()
    assert job.timeout_seconds == 43200


def test_a_bundle_holds_the_same_jobs(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("deploy", "databricks", "--metadata", str(metadata))
    assert gddl(capsys, *command, "--render-bundle", str(tmp_path / "bundle"))[0] == 0
    assert fake.requests == []
    bundle = yaml.safe_load((tmp_path / "bundle" / "databricks.yml").read_text())
    assert (bundle["bundle"], list(bundle["resources"]["jobs"])) == ({"name": "gddl"}, ["gddl_small"])
    gddl(capsys, *command)
    (deployed,) = fake.workspace.jobs.values()
    assert settings_of(bundle["resources"]["jobs"]["gddl_small"]) == JobSettings.from_dict(deployed.as_dict())


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (", max_concurent_runs: 5", r"gddl.yaml:5: runners.databricks.max_concurent_runs.*no such field"),
        (", timeout: soon", r"gddl.yaml:5: runners.databricks.timeout.*not a length of time \(value 'soon'\)"),
        (", tiers: {small: {serverless: false}}", r"runners.databricks.tiers.small.node_type.*must be given"),
        (", max_concurrent_runs: 0", r"must be 1 to 1000 \(value 0\)"),
        (", tiers: {large: {discovery: auto_loader}}", r"tiers.large.discovery.*not on serverless"),
        (
            ", tiers: {large: {serverless: false, node_type: n, auto_loader: {cloudFiles.format: csv}}}",
            r"tiers.large.auto_loader.*no setting that may be given \(value 'cloudFiles.format'\)",
        ),
        (", tiers: {large: {discovery: autoloader}}", r"tiers.large.discovery"),
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


def test_local_roots_are_refused_before_anything_is_asked(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (metadata / "gddl.yaml").read_text()
    (metadata / "gddl.yaml").write_text(text.replace(", local_roots: true", ""))
    assert invoke(("run", "--metadata", str(metadata)), real()) == 2
    assert "RUNNER_NEEDS_S3" in capsys.readouterr().err
    assert fake.requests == []


def test_a_command_line_runs_tables_through_the_workspace(
    fake: FakeServer, metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    SmallLake(tmp_path).load(spec_of("a"))
    gddl(capsys, "deploy", "databricks", "--metadata", str(metadata))
    status, out = gddl(capsys, "run", "--json", "--metadata", str(metadata))
    result = json.loads(out)
    assert (status, result["table"], result["status"], result["main"]["rows"]) == (0, "s.a", "succeeded", 3)
    assert len(fake.workspace.runs) == 1


def test_the_fake_is_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "airflow_gddl.cli.main", "fake-databricks", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert re.fullmatch(r"export DATABRICKS_HOST=http://127.0.0.1:\d+ DATABRICKS_TOKEN=fake\n", line)
