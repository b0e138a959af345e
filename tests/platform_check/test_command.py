"""`gddl check --platform` from a terminal: exit status, what is shown, and what is left after whatever happens."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.cli.main import invoke
from airflow_gddl.cli.screen import Screen
from airflow_gddl.tools.platform_check import command
from airflow_gddl.tools.platform_check.checks import CHECKS
from airflow_gddl.tools.platform_check.command import FOLDER, by_hand
from tests.harness.waiting import wait_for
from tests.platform_check.ground import STORAGE, Ground
from tests.s3.faulty import Fault, Way

ROOT = Path(__file__).parents[2]


def results(ground: Ground) -> dict[str, dict[str, Any]]:
    """What the file says, by check."""
    content = json.loads((ground.root / "report.json").read_text())
    return {one["check"]: one for one in content["checks"]}


def quick(ground: Ground, *options: str) -> int:
    """The command with jobs that end at once."""
    ground.write()
    cli = replace(ground.cli, job_command=(sys.executable, "-c", "pass"))
    report = str(ground.root / "report.json")
    return invoke(["check", "--platform", "--metadata", str(ground.metadata), "--report", report, *options], cli)


def test_a_failure_is_shown_with_code_and_remedy_and_all_is_removed(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quick(ground) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"making the checks in {ground.lake}/{FOLDER}/")
    assert "FAIL job.load: [PLATFORM_CHECK_FAILED] 5 tables failed, " in shown.out
    assert "Remedy: " in shown.out
    found = results(ground)
    assert list(found) == list(CHECKS)
    assert found["job.load"]["cause"] == "JOB_DIED"
    assert {found[name]["result"] for name in STORAGE if name != "storage.denied"} == {"PASS"}
    assert {found[name]["reason"] for name in ("job.cancel", "job.resume", "tables.rows")} == {"failed"}
    assert found["cleanup"]["result"] == "PASS"
    assert not list(Path(ground.lake).iterdir())


def test_json_is_a_line_for_each_check(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    assert quick(ground, "--json") == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["check"] for line in lines} == set(CHECKS)
    (load,) = (line for line in lines if line["check"] == "job.load")
    assert (load["state"], load["code"], load["cause"]) == ("FAIL", "PLATFORM_CHECK_FAILED", "JOB_DIED")


def test_a_lake_that_was_there_stays_with_what_is_in_it(ground: Ground) -> None:
    kept = Path(ground.lake, "shop", "t", "x")
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    assert quick(ground) == 1
    assert [path.relative_to(ground.lake).as_posix() for path in Path(ground.lake).rglob("*")] == [
        "shop", "shop/t", "shop/t/x",
    ]  # fmt: skip


def test_the_time_limit_leaves_checks_untried(ground: Ground) -> None:
    """With a job that never ends: it is stopped."""
    ground.write()
    cli = replace(ground.cli, job_command=(sys.executable, "-c", "import time; time.sleep(600)"))
    report = str(ground.root / "report.json")
    began = time.monotonic()
    options = ["--metadata", str(ground.metadata), "--report", report, "--minutes", "0.1"]
    assert invoke(["check", "--platform", *options], cli) == 0
    assert time.monotonic() - began >= 6
    found = results(ground)
    later = [name for name in found if name.startswith(("job.", "tables."))]
    assert {found[name]["reason"] for name in later} <= {"time", "failed"}
    assert found["job.load"]["reason"] == "time"
    assert found["cleanup"]["result"] == "PASS"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_all_is_removed(number: signal.Signals, ground: Ground) -> None:
    """While a job runs, which is stopped with it."""
    mark = ground.root / "running"
    program = ground.root / "job.py"
    program.write_text(f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(600)\n")
    ground.write()
    code = f"""
import sys
from dataclasses import replace
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
cli = replace(real(), job_command=(sys.executable, "-P", {str(program)!r}))
sys.exit(invoke(sys.argv[1:], cli))
"""
    report = str(ground.root / "report.json")
    options = ["check", "--platform", "--metadata", str(ground.metadata), "--report", report]
    command = [sys.executable, "-P", "-c", code, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for(mark.exists, "the job")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + number
    assert "not tried" in said
    found = results(ground)
    assert found["storage.put"]["result"] == "PASS"
    assert {found[name]["reason"] for name in ("job.load", "job.cancel", "tables.rows")} == {"stopped"}
    assert not list(Path(ground.lake).iterdir())


def test_what_can_not_be_removed_is_named(bucket_ground: Ground, way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    """Deletes are refused from some time on."""
    ground = replace(bucket_ground, environ={**bucket_ground.environ, "AWS_ENDPOINT_URL": way.endpoint})
    way.faults.append(Fault("answer", method="POST", status=403, code="AccessDenied"))
    way.faults.append(Fault("answer", method="DELETE", status=403, code="AccessDenied"))
    assert quick(ground) == 1
    shown = capsys.readouterr().out
    found = results(ground)
    assert (found["cleanup"]["result"], found["cleanup"]["code"]) == ("FAIL", "PLATFORM_NOT_REMOVED")
    assert f"Remove it with `aws s3 rm --recursive {ground.lake}/{FOLDER}/" in shown
    assert found["storage.put"]["cause"] == "STORAGE_DENIED"
    assert found["storage.listing"]["reason"] == "failed"


@pytest.mark.parametrize("options", [["--report", "x"], ["--minutes", "3"]])
def test_options_of_the_platform_need_it(
    options: list[str], ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.write()
    assert invoke(["check", "--metadata", str(ground.metadata), *options], ground.cli) == 2
    assert f"[OPTION_INVALID] {options[0]} without --platform" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["metadata", "nowhere/x.json", "metadata/gddl.yaml"])
def test_a_file_that_can_not_be_written_or_is_no_report_is_refused_first(
    name: str, ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.write()
    settings = (ground.metadata / "gddl.yaml").read_bytes()
    options = ["--metadata", str(ground.metadata), "--report", str(ground.root / name)]
    assert invoke(["check", "--platform", *options], ground.cli) == 2
    shown = capsys.readouterr()
    assert "[PATH_UNUSABLE]" in shown.err
    assert shown.out == ""
    assert (ground.metadata / "gddl.yaml").read_bytes() == settings
    assert not Path(ground.lake).exists()


def test_a_report_replaces_an_older_one(ground: Ground) -> None:
    (ground.root / "report.json").write_text('{"form": 1, "checks": []}')
    assert quick(ground) == 1
    assert "cleanup" in results(ground)


def test_a_report_that_can_not_be_written_is_shown(
    ground: Ground, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, after minutes of checks."""

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(command, "everything", lambda *_, **__: monkeypatch.setattr(Path, "write_text", full))
    assert quick(ground) == 1
    shown = capsys.readouterr().err
    assert "No space left on device. Remedy: copy what follows." in " ".join(shown.split())
    assert '"form": 1' in shown


def test_all_is_removed_where_nobody_reads_the_output(ground: Ground) -> None:
    """As with `| head`: the pipe is closed at the first outcome."""
    ground.write()

    class Gone(Screen):
        def record(self, value: object) -> None:
            assert Path(ground.lake, FOLDER).exists(), value
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    options = ["--metadata", str(ground.metadata), "--report", str(ground.root / "report.json"), "--json"]
    assert invoke(["check", "--platform", *options], replace(ground.cli, screen=Gone())) == 1
    assert not list(Path(ground.lake).iterdir())


def test_a_second_signal_does_not_interrupt_the_removal(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = command.removed

    def everything(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def removed(*args: Any, **settings: Any) -> Any:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        return remove(*args, **settings)

    monkeypatch.setattr(command, "outcomes_of", everything)
    monkeypatch.setattr(command, "removed", removed)
    assert quick(ground) == 130
    assert results(ground)["cleanup"]["result"] == "PASS"


def test_wrong_metadata_makes_nothing(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", "--platform", "--metadata", str(ground.metadata)], ground.cli) == 2
    assert "[METADATA_MISSING]" in capsys.readouterr().err
    assert list(ground.root.iterdir()) == []


def test_check_alone_does_not_import_it(ground: Ground) -> None:
    ground.write()
    code = """
import sys
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
assert invoke(sys.argv[1:], real()) in (0, 1)
print(sorted(name for name in sys.modules if "platform_check" in name))
"""
    command = [sys.executable, "-P", "-c", code, "check", "--metadata", str(ground.metadata)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_it_needs_no_airflow(ground: Ground) -> None:
    ground.write()
    code = """
import sys
sys.modules["airflow"] = None
from dataclasses import replace
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
sys.exit(invoke(sys.argv[1:], replace(real(), job_command=(sys.executable, "-c", "pass"))))
"""
    options = ["check", "--platform", "--metadata", str(ground.metadata), "--report", str(ground.root / "report.json")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *options], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert results(ground)["storage.listing"]["result"] == "PASS"


def test_a_reader_without_rights_is_refused_on_a_disk() -> None:
    """As another user than root, who may read everything."""
    if os.geteuid() != 0:
        pytest.skip("it becomes another user, which only root can")
    with tempfile.TemporaryDirectory(prefix="gddl-check-") as folder:
        Path(folder).chmod(0o777)
        code = f"""
import os, sys
from pathlib import Path
from tests.platform_check.ground import Ground, outcomes
made = Ground(Path({folder!r})).context()
Path({folder!r}, "lake").mkdir()
os.chmod(Path({folder!r}, "lake"), 0o777)
os.setgid(65534)
os.setuid(65534)
print(outcomes(made, "storage.denied")["storage.denied"])
"""
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert "state='PASS'" in done.stdout, done.stdout + done.stderr
    assert "refused with STORAGE_DENIED" in done.stdout


@pytest.mark.parametrize(
    ("root", "command"),
    [
        ("/data/lake/_gddl_check/a", "rm -r /data/lake/_gddl_check/a"),
        ("/data/my lake/_gddl_check/a", "rm -r '/data/my lake/_gddl_check/a'"),
        ("/data/$HOME;x #/a", "rm -r '/data/$HOME;x #/a'"),
        ("s3://bucket/my lake/a", "aws s3 rm --recursive 's3://bucket/my lake/a/'"),
    ],
)
def test_the_command_that_removes_a_folder_names_that_folder_alone(root: str, command: str) -> None:
    """Without quotes a shell would take `/data/my lake` for two paths, and remove the first."""
    assert by_hand(root) == f"Remove it with `{command}`"
