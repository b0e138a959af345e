"""The `gddl` command with everything in a bucket, metadata included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import obstore
import pytest

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way

GDDL = (sys.executable, "-c", "import sys; from airflow_gddl.cli.main import main; sys.exit(main())")
ROWS = "tables:\n  - {table: s.a, keys: [id], sequence_by: [seq], freshness: 1h}\n"


@pytest.fixture
def furnished(place: Place) -> Place:
    obstore.put(place.store, "metadata/gddl.yaml", b"landing: ../landing\nlake: ../lake\n")
    obstore.put(place.store, "metadata/tables/s.yaml", ROWS.encode())
    delivery.deliver(place, ["a"])
    return place


Done = subprocess.CompletedProcess[str]
Gddl = Callable[..., Done]


def gddl_process(environ: Mapping[str, str], bucket: str, *arguments: str) -> Done:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [*GDDL, *arguments, "--metadata", f"s3://{bucket}/metadata"]
    return subprocess.run(command, env={**bare, **environ}, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def gddl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gddl:
    """The same in this process, which starts sooner."""

    def command(environ: Mapping[str, str], bucket: str, *arguments: str) -> Done:
        capsys.readouterr()
        given = [*arguments, "--metadata", f"s3://{bucket}/metadata"]
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            status = invoke(given, real())
        reported = capsys.readouterr()
        return Done(given, status, reported.out, reported.err)

    return command


def answers(done: Done) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_command_works_on_s3(furnished: Place, gddl: Gddl) -> None:
    def ask(*arguments: str) -> list[dict[str, Any]]:
        return answers(gddl(furnished.environ, furnished.name, *arguments, "--json"))

    assert ask("validate") == []
    (planned,) = ask("run", "--dry-run")
    assert [batch["mode"] for batch in planned["details"]["batches"]] == ["initial", "incremental"]
    (done,) = ask("run")
    assert (done["status"], done["main"]["rows"], done["tasks"]) == ("succeeded", 2, "one")
    (line,) = ask("status")
    # A run that took all there was is up to date as of now, however old the newest change is.
    assert (line["status"], line["rows"], line["state"]) == ("succeeded", 2, "fresh")
    (verified,) = ask("verify")
    assert verified["status"] == "succeeded"
    delivery.put(furnished, "a", "20240101-000000002", {"Op": ["X"], "seq": [3], "id": [9], "v": ["late"]})
    assert ask("run")[0]["quarantined"] == 1
    (listed,) = ask("errors", "list")
    assert [row["code"] for row in listed["details"]["rows"]] == ["OP_UNKNOWN"]
    replayed = gddl(furnished.environ, furnished.name, "errors", "replay", "--json")
    assert (replayed.returncode, json.loads(replayed.stdout)["status"]) == (1, "succeeded"), "the row is bad as before"
    assert [name.endswith(".log") for name in delivery.objects(furnished, "lake/_gddl/logs")] != []


def test_failed_run_names_its_log_in_the_lake(server: Server, way: Way, furnished: Place) -> None:
    way.faults = [Fault("answer", path="lake/s/a", status=403, code="AccessDenied")]
    environ = {**furnished.environ, "AWS_ENDPOINT_URL": way.endpoint}
    done = gddl_process(environ, furnished.name, "run")
    assert done.returncode == 1, done.stderr
    assert "STORAGE_DENIED" in done.stdout + done.stderr
    (log,) = delivery.objects(furnished, "lake/_gddl/logs")
    assert f"s3://{furnished.name}/{log}" in done.stderr.replace("\n", "")
    assert b"STORAGE_DENIED" in bytes(obstore.get(furnished.store, log).bytes())


def test_credentials_of_a_profile(furnished: Place, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    keys = {name: furnished.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    lines = "".join(f"{name.lower()} = {value}\n" for name, value in keys.items())
    (tmp_path / "credentials").write_text(f"[lab]\n{lines}")
    environ = {name: value for name, value in furnished.environ.items() if name not in keys}
    environ |= {"AWS_PROFILE": "lab", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    (done,) = answers(gddl_process(environ, furnished.name, "run", "--json"))
    assert (done["status"], done["main"]["rows"]) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("changed", "code", "status"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "METADATA_UNREACHABLE", 75),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "S3_CREDENTIALS_REFUSED", 2),
        ({"AWS_PROFILE": "nobodys", "AWS_ACCESS_KEY_ID": ""}, "S3_CREDENTIALS_MISSING", 2),
    ],
)
def test_common_error_is_reported_once(
    furnished: Place, gddl: Gddl, changed: dict[str, str], code: str, status: int
) -> None:
    before = delivery.objects(furnished, "")
    done = gddl({**furnished.environ, **changed}, furnished.name, "run")
    assert done.returncode == status, done.stderr
    assert done.stderr.count(f"[{code}]") == 1, done.stderr
    assert delivery.objects(furnished, "") == before


def test_onboarding_in_a_bucket(place: Place, gddl: Gddl) -> None:
    delivery.deliver(place, ["a", "b"])
    obstore.put(place.store, "metadata/gddl.yaml", b"landing: ../landing\nlake: ../lake\n")
    done = gddl(place.environ, place.name, "onboard", "s", "--write")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "2 new tables", done.stderr
    assert answers(gddl(place.environ, place.name, "validate", "--json")) == []
    keys = bytes(obstore.get(place.store, "metadata/keys/s.yaml").bytes()).decode()
    assert "  s.a: [id]  # measured: unique in all 3 rows of the full load\n" in keys
    again = gddl(place.environ, place.name, "onboard", "s")
    assert (again.returncode, again.stdout) == (0, "nothing to change\n")


def test_missing_bucket_is_reported_once(furnished: Place, gddl: Gddl) -> None:
    done = gddl(furnished.environ, "no-such-bucket", "run")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("[S3_BUCKET_MISSING]") == 1, done.stderr


def test_expired_credentials_are_reported_once(server: Server, way: Way, furnished: Place, gddl: Gddl) -> None:
    before = delivery.objects(furnished, "")
    way.faults = [Fault("answer", status=400, code="ExpiredToken")]
    done = gddl({**furnished.environ, "AWS_ENDPOINT_URL": way.endpoint}, furnished.name, "run")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("[S3_CREDENTIALS_EXPIRED]") == 1, done.stderr
    assert delivery.objects(furnished, "") == before


def test_old_files_of_the_landing_folder_are_moved(server: Server, furnished: Place, gddl: Gddl) -> None:
    """Ages are those of the files that the server keeps."""

    def ask(*arguments: str) -> dict[str, Any]:
        (found,) = answers(gddl(furnished.environ, furnished.name, *arguments, "--json"))
        return found

    delivery.put(furnished, "a", "20240101-000000002", {"Op": ["U"], "seq": [3], "id": [1], "v": ["newer"]})
    retention = f"{{after: 30d, action: move, to: s3://{furnished.name}/ingested}}"
    row = ROWS.replace("freshness: 1h", f"landing_retention: {retention}")
    obstore.put(furnished.store, "metadata/tables/s.yaml", row.encode())
    for file in (server.buckets / furnished.name / "landing").rglob("*.parquet"):
        then = time.time() - (60 if "000000002" not in file.name else 40) * 86_400
        os.utime(file, (then, then))
    assert ask("run")["status"] == "succeeded"
    assert ask("maintain")["details"]["landing"] == {"removed": 1, "kept": 0, "sample": []}
    landed = {"LOAD00000001.parquet", "20240101-000000002.parquet"}
    assert {name.rpartition("/")[2] for name in delivery.objects(furnished, "landing")} == landed
    assert delivery.objects(furnished, "ingested") == ["ingested/s/s/a/generation-1/20240101-000000001.parquet"]
    assert ask("run")["status"] == "skipped"
    other = row.replace(f"s3://{furnished.name}/ingested", "s3://another-bucket/ingested")
    obstore.put(furnished.store, "metadata/tables/s.yaml", other.encode())
    refused = gddl(furnished.environ, furnished.name, "maintain", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (1, "LANDING_RETENTION_REFUSED")


def test_new_tables_are_found_and_added(place: Place, gddl: Gddl) -> None:
    sources = "sources: {crm: {landing: ../landing, new_tables: propose}}"
    obstore.put(place.store, "metadata/gddl.yaml", f"landing: ../other\nlake: ../lake\n{sources}\n".encode())
    obstore.put(place.store, "metadata/tables/crm.yaml", f"source: crm\n{ROWS}".encode())
    delivery.deliver(place, ["a", "b"])
    (proposed,) = answers(gddl(place.environ, place.name, "new-tables", "look", "--json"))
    assert (proposed["table"], proposed["keys"], proposed["standing"]) == ("crm:s.b", ["id"], "proposed")
    landing = gddl(place.environ, place.name, "new-tables", "accept", "crm:s.b", "--json")
    assert (landing.returncode, "[NEW_TABLE_LANDING]" in landing.stderr) == (2, True)
    accept = ("new-tables", "accept", "crm:s.b", "--key", "id", "--json")
    (added,) = answers(gddl(place.environ, place.name, *accept))
    assert added["standing"] == "added"
    assert answers(gddl(place.environ, place.name, "new-tables", "look", "--json")) == [added]
    shown = answers(gddl(place.environ, place.name, "status", "--json"))
    assert sorted(one["table"] for one in shown) == ["s.a", "s.b"]
