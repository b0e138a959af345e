"""`gddl init` and `gddl check`: a newcomer's first commands."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_gddl import __version__
from airflow_gddl.cli.check import probe_lake, probe_landing
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract import packages
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.metadata.loading import load
from devtools.standalone.home import Home, HomeSettings
from devtools.standalone.supervisor import Standalone, StartRequest
from spark_jobs.spark import jars
from tests.harness.s3_server import Bucket, serving
from tests.unit.metadata_folder import NO_TABLE

FILES = [
    *("metadata/gddl.yaml", "metadata/tables/shop.yaml", "dags/gddl.py", "dags/gddl_metadata_problems.py"),
    *("dags/gddl_upkeep.py", ".airflowignore", "README.md"),
    *("metadata/schema/gddl.json", "metadata/schema/keys.json", "metadata/schema/tables.json"),
]
STEPS = """
Next steps:
  edit metadata/gddl.yaml    # where files land, where tables are kept
  gddl check                 # folders, permissions, connections, versions
  edit metadata/tables/shop.yaml, or gddl onboard SOURCE --write
  gddl validate && gddl run && gddl status
"""


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def checked(self) -> dict[str, tuple[str, str]]:
        """Status and message by subject, of `check --json`."""
        found = [json.loads(line) for line in self.out.splitlines()]
        return {one["subject"]: (one["status"], one["message"]) for one in found}


Gddl = Callable[..., Answer]


@pytest.fixture
def gddl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gddl:
    """Runs a command line in `tmp_path/project`, with a working Java."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)

    home = {"AIRFLOW_HOME": str(tmp_path / "airflow")}

    def run(*arguments: str, **environ: str) -> Answer:
        around = CliContext(
            environ={"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "java"), **home, **environ},
            now=lambda: datetime(2024, 1, 2, 12, tzinfo=UTC),
            new_id=lambda: "aa",
            job_command=JOB,
        )
        status = invoke(arguments, around)
        shown = capsys.readouterr()
        return Answer(status, shown.out, shown.err)

    return run


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_empty_project_is_made_once_and_its_sample_row_is_sound(gddl: Gddl) -> None:
    answer = gddl("init")
    assert (answer.status, answer.out) == (0, "".join(f"wrote {name}\n" for name in FILES) + STEPS)
    made = contents(Path())
    assert sorted(made) == sorted(FILES)
    assert gddl("validate").out == NO_TABLE
    again = gddl("init")
    assert (again.status, again.out) == (2, "")
    assert again.err == (
        "[FOLDER_TAKEN] metadata/gddl.yaml already exists; nothing was written. Remedy: name another folder, e.g. "
        "`gddl init my-project`, or continue with this one: `gddl check`\n"
    )
    assert contents(Path()) == made
    rows = Path("metadata/tables/shop.yaml")
    rows.write_text(rows.read_text().replace("#  - ", "  - "))
    assert [(row.table, row.keys) for row in load("metadata", {}).tables] == [
        ("shop.order_lines", ("order_id", "line_no")),
        ("shop.orders", ("id",)),
    ]


def test_the_dag_files_are_those_of_this_project(gddl: Gddl) -> None:
    gddl("init", "sub")
    own = Path(__file__).parents[2] / "dags"
    assert {path.name: path.read_text() for path in own.glob("*.py")} == {
        path.name: path.read_text() for path in Path("sub/dags").glob("*.py")
    }


@pytest.mark.parametrize("there", ["metadata/tables/nyc.yaml", "dags/gddl.py"])
def test_metadata_and_dags_that_are_there_are_never_touched(gddl: Gddl, there: str) -> None:
    Path(there).parent.mkdir(parents=True)
    Path(there).write_text("mine")
    assert gddl("init").status == 2
    assert contents(Path()) == {there: "mine"}


def test_a_readme_that_is_there_is_kept(gddl: Gddl) -> None:
    Path("README.md").write_text("mine")
    answer = gddl("init")
    assert answer.status == 0
    assert "kept  README.md\n" in answer.out
    assert Path("README.md").read_text() == "mine"


def test_check_tries_every_part_and_reports_it(gddl: Gddl) -> None:
    gddl("init")
    Path("landing/shop/orders").mkdir(parents=True)
    Path("landing/shop/orders/LOAD00000001.parquet").touch()
    Path("metadata/tables/shop.yaml").write_text(
        "tables:\n- {table: shop.orders, keys: id, options: {verify_connection: GDDL_SOURCE_SHOP}}\n"
    )
    answer = gddl("check", GDDL_SOURCE_SHOP="sqlite:///shop.db")
    here = Path.cwd()
    packages = ("pyspark", "delta-spark", "deltalake", "pyarrow")
    assert answer.out.splitlines() == [
        f"ok      airflow-gddl: {__version__}, Python {platform.python_version()}",
        f"ok      Airflow: {version('apache-airflow')}",
        "ok      metadata: 1 enabled table",
        f"ok      landing: {here}/landing can be listed",
        f"ok      lake: {here}/lake does not exist yet; the first run can create it",
        f"ok      runner local: {', '.join(f'{name} {version(name)}' for name in packages)}",
        f"ok      Java: 17.0.1, {here.parent}/java/bin/java",
        "ok      connection GDDL_SOURCE_SHOP: sqlite at shop.db answers",
        "everything works",
    ]
    assert (answer.status, answer.err) == (0, "")
    assert not Path("lake").exists()
    Path("lake").mkdir()
    assert gddl("check", "--json").checked["lake"] == ("ok", f"{here}/lake can be written")
    assert list(Path("lake").iterdir()) == []


def test_check_refuses_packages_that_the_job_refuses(gddl: Gddl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "everything works", and the first run failed."""
    gddl("init")
    real, pair = packages.installed_version, {"pyspark": "4.3.0", "delta-spark": "4.1.0"}
    monkeypatch.setattr(packages, "installed_version", lambda name: pair.get(name) or real(name))
    answer = gddl("check", "--json")
    status, found = answer.checked["runner local"]
    assert (answer.status, status) == (1, "failed")
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.1.0")
    with pytest.raises(FatalError) as of_job:
        jars.delta()
    assert found == str(of_job.value)
    assert "run `pip install 'pyspark==4.2.*' 'delta-spark==4.4.*'`" in found


@pytest.mark.parametrize("runner", ["local", "glue"])
def test_check_looks_for_the_key_of_masks_where_jobs_run_here(gddl: Gddl, runner: str) -> None:
    gddl("init")
    Path("metadata/tables/shop.yaml").write_text("tables:\n- {table: a.b, keys: id, mask: {email: hmac}}\n")
    glue = "runners: {glue: {role: 'arn:a', script: 's3://a', wheel: 's3://a.whl'}}\n"
    roots = "landing: s3://b/landing\nlake: s3://b/lake\n"
    if runner == "glue":
        Path("metadata/gddl.yaml").write_text(f"{roots}runner: glue\n{glue}")
    missing = gddl("check", "--json").checked["mask key"]
    assert missing[0] == {"local": "failed", "glue": "skipped"}[runner]
    assert ("MASK_KEY_MISSING" in missing[1]) == (runner == "local")
    found = gddl("check", "--json", GDDL_MASK_KEY="k" * 32)
    assert found.checked["mask key"] == ("ok", "found")
    assert "kkkk" not in found.out + found.err


def test_check_looks_for_packages_that_rows_and_settings_need(gddl: Gddl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "everything works", and each run warned."""
    gddl("init")
    row = "{table: a.b, keys: id, iceberg: true}"
    Path("metadata/tables/shop.yaml").write_text(f"tables:\n- {row}\n")
    assert gddl("check", "--json").checked["package pyiceberg"] == ("ok", "is installed")
    modules = {"pyiceberg": "iceberg", "opentelemetry.sdk": "otel"}
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    answer = gddl("check", "--json", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    found = {name: finding for name, finding in answer.checked.items() if name.startswith("package ")}
    assert [status for status, _ in found.values()] == ["failed"] * 2
    for (_, message), extra in zip(found.values(), modules.values(), strict=True):
        assert message.startswith("[PACKAGE_MISSING] ")
        assert f"pip install 'airflow-gddl[{extra}]'" in message


@pytest.mark.parametrize("captures", [False, True])
def test_check_looks_for_the_java_that_reads_a_log(captures: bool, gddl: Gddl, tmp_path: Path) -> None:
    """It said "everything works", and each run ended in JAVA_MISSING."""
    gddl("init")
    connected = {"connection": "GDDL_SOURCE_SHOP", **({"capture": {"connector": "postgresql"}} if captures else {})}
    settings = {"landing": "l", "lake": "k", "sources": {"shop": connected}}
    Path("metadata/gddl.yaml").write_text(json.dumps(settings))
    Path("metadata/tables/shop.yaml").write_text("source: shop\ntables:\n- {table: a.b, keys: id, size: small}\n")
    alone = {"GDDL_WITHOUT_SPARK": "1"}
    assert gddl("check", "--json", **alone).checked["Java"][0] == ("ok" if captures else "skipped")
    status, java = gddl("check", "--json", JAVA_HOME="/nowhere", **alone).checked["Java"]
    assert status == ("failed" if captures else "skipped")
    if captures:
        assert "jobs that read a source's log need Java, whatever the tier. Remedy: install a JDK" in java
        assert "GDDL_WITHOUT_SPARK" not in java, "it would not help"


def test_check_continues_after_a_failure(gddl: Gddl, monkeypatch: pytest.MonkeyPatch) -> None:
    gddl("init")
    Path("lake").write_text("a file")
    Path("metadata/tables/shop.yaml").write_text(
        "tables:\n- {table: shop.orders, keys: id, options: {verify_connection: GDDL_SOURCE_SHOP}}\n- {table: x}\n"
    )
    real = packages.installed_version
    monkeypatch.setattr(
        packages,
        "installed_version",
        lambda name: {"apache-airflow": "3.0.2", "deltalake": None}.get(name, real(name)),
    )
    url = "postgresql+psycopg2://me:hunter2@127.0.0.1:1/shop"
    answer = gddl("check", "--json", JAVA_HOME="/nowhere", GDDL_SOURCE_SHOP=url)
    here, checked = Path.cwd(), answer.checked
    assert "hunter2" not in answer.out + answer.err
    assert (answer.status, checked.pop("airflow-gddl")[0]) == (1, "ok")
    status, java = checked.pop("Java")
    assert (status, java.partition(". Remedy")[0]) == (
        "failed",
        "[JAVA_MISSING] JAVA_HOME is '/nowhere', which holds no bin/java",
    )
    status, connection = checked.pop("connection GDDL_SOURCE_SHOP")
    assert status == "failed"
    assert connection.startswith("[SOURCE_UNREACHABLE] the source can't be read: ")
    assert "(postgresql+psycopg2 at 127.0.0.1:1). Remedy: " in connection
    lacks = "a job on this machine needs the package deltalake, which is not installed"
    old = "[AIRFLOW_TOO_OLD] Airflow 3.0.2 is not supported"
    assert checked == {
        "Airflow": ("failed", f"{old}. Remedy: install Airflow 3.0.6 or newer"),
        "metadata": ("failed", "2 problems in the metadata. Remedy: see `gddl validate`"),
        "landing": (
            "failed",
            f"[ROOT_UNUSABLE] there is no folder {here}/landing. Remedy: create it, or correct `landing` in gddl.yaml",
        ),
        "lake": (
            "failed",
            f"[ROOT_UNUSABLE] there is no folder {here}/lake. Remedy: create it, or correct `lake` in gddl.yaml",
        ),
        "runner local": (
            "failed",
            f"[PACKAGE_MISSING] {lacks} ({sys.executable}). Remedy: pip install 'airflow-gddl[spark]'",
        ),
    }


@pytest.mark.parametrize(
    ("lake", "why"), [("../taken/lake", "Not a directory"), ("/proc/lake", "No such file or directory")]
)
def test_check_refuses_a_lake_that_no_run_can_create(gddl: Gddl, lake: str, why: str) -> None:
    gddl("init")
    Path("taken").write_text("a file")
    settings = Path("metadata/gddl.yaml")
    settings.write_text(settings.read_text().replace("lake: ../lake", f"lake: {lake}"))
    root = Path("metadata", lake).resolve()
    status, found = gddl("check", "--json").checked["lake"]
    assert status == "failed"
    assert found == (
        f"[ROOT_UNUSABLE] {root} does not exist and can't be created: can't make a folder in {root.parent}: {why}. "
        f"Remedy: give the user permission to write to {root.parent}, or correct `lake` in gddl.yaml"
    )


@contextmanager
def unity(status: int) -> Iterator[str]:
    """A server that answers every request with this status; its URL."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.headers.get("Authorization") == "Bearer tok" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


TOKEN = {"GDDL_CATALOG_TOKEN": "tok"}
CATALOGS = """
catalogs:
  main: {{kind: unity, url: '{url}', catalog_name: lake, token_env: GDDL_CATALOG_TOKEN, timeout: 1s}}
  old: {{kind: hive, uri: '{metastore}', timeout: 1s}}
  here: {{kind: hive}}
"""


def checked_catalogs(gddl: Gddl, url: str, metastore: str = "thrift://127.0.0.1:1", **environ: str) -> list[object]:
    settings = Path("metadata/gddl.yaml")
    settings.write_text("landing: ../landing\nlake: ../lake\n" + CATALOGS.format(url=url, metastore=metastore))
    found = gddl("check", "--json", **environ).checked
    return [found[f"catalog {name}"] for name in ("main", "old", "here")]


def test_check_tries_each_catalog(gddl: Gddl) -> None:
    gddl("init")
    with unity(200) as url:
        server = url.removeprefix("http://")
        main, old, here = checked_catalogs(gddl, url, f"thrift://{server}", **TOKEN)
        assert main == ("ok", f"{server} has the catalog lake")
        assert old == ("ok", f"{server} accepts connections")
        skipped = "Spark's configuration names the metastore; try `gddl catalog diff`"
        assert here == ("skipped", skipped)
        main, old, _ = checked_catalogs(gddl, url)
    missing = "GDDL_CATALOG_TOKEN holds no token. Remedy: set GDDL_CATALOG_TOKEN where jobs run"
    assert main == ("failed", f"[CATALOG_UNREACHABLE] {missing}")
    refused = "127.0.0.1:1 does not answer: [Errno 111] Connection refused."
    remedy = "Remedy: start it, or correct `uri` of the catalog"
    assert old == ("failed", f"[CATALOG_UNREACHABLE] {refused} {remedy}")
    gone = f"[CATALOG_UNREACHABLE] {server} does not answer: [Errno 111] Connection refused. Remedy: start it, or "
    assert checked_catalogs(gddl, url, **TOKEN)[0] == ("failed", f"{gone}correct `url` of the catalog")


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (
            403,
            "DENIED",
            "grant USE CATALOG to the token's user, or correct the token; see https://github.com/airflow-gddl/airflow-gddl/blob/main/docs/catalogs.md",
        ),
        (404, "REFUSED", "create the catalog, or correct `url` and `catalog_name`"),
        (503, "UNREACHABLE", "try again later, or see the server's log"),
    ],
)
def test_check_says_why_a_catalog_refuses(gddl: Gddl, status: int, code: str, remedy: str) -> None:
    gddl("init")
    with unity(status) as url:
        (found, *_) = checked_catalogs(gddl, url, **TOKEN)
    what = f"Unity Catalog at {url.removeprefix('http://')} answers {status} for the catalog 'lake'"
    assert found == ("failed", f"[CATALOG_{code}] {what}. Remedy: {remedy}")


def test_check_names_a_missing_metadata_folder(gddl: Gddl) -> None:
    answer = gddl("check", "--json")
    assert answer.status == 1
    remedy = "create one with `gddl init`, or set --metadata or GDDL_METADATA"
    what = "[METADATA_MISSING] there is no folder 'metadata'"
    assert answer.checked["metadata"] == ("failed", f"{what}. Remedy: {remedy}")


def test_roots_on_s3_are_listed_and_written() -> None:
    bucket = Bucket()
    with serving(bucket) as url:
        settings = {"ENDPOINT": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1", "ACCESS_KEY_ID": "k"}
        environ = {f"AWS_{name}": value for name, value in {**settings, "SECRET_ACCESS_KEY": "s"}.items()}
        assert probe_landing("s3://bucket/in", environ) == "s3://bucket/in can be listed; there are no files yet"
        bucket.objects["in/shop/orders/LOAD00000001.parquet"] = b""
        assert probe_landing("s3://bucket/in", environ) == "s3://bucket/in can be listed"
        assert probe_lake("s3://bucket/out", environ, "aa") == "s3://bucket/out can be written, read and cleaned"
        assert list(bucket.objects) == ["in/shop/orders/LOAD00000001.parquet"]
        assert "PUT out/_gddl/check/aa" in bucket.requests
        bucket.fail = 403
        with pytest.raises(FatalError) as caught:
            probe_lake("s3://bucket/out", environ, "aa")
    assert caught.value.code == "STORAGE_DENIED"


@pytest.mark.parametrize("name", ["afile", "afile/below"])
def test_init_names_a_folder_that_it_cannot_make(gddl: Gddl, name: str) -> None:
    Path("afile").write_text("")
    answer = gddl("init", name)
    remedy = "name another path, or correct its permissions"
    assert (answer.status, answer.out) == (2, "")
    assert " ".join(answer.err.split()) == f"[PATH_UNUSABLE] {name}/metadata: Not a directory. Remedy: {remedy}"


def test_init_prints_a_command_that_a_shell_takes(gddl: Gddl) -> None:
    assert "\n  cd 'my näme'\n" in gddl("init", "my näme").out


def test_a_demonstration_keeps_what_describes_the_machine(tmp_path: Path) -> None:
    """It fetched JARs again that `GDDL_JARS` has, or failed where Maven Central can't be reached."""
    machine = {"GDDL_JARS": "/jars", "GDDL_SPARK_START_TIMEOUT": "20m", "PATH": "/bin"}
    others = {"GDDL_LAKE": "/other/lake", "GDDL_METADATA": "/other", "AIRFLOW__CORE__EXECUTOR": "x"}
    settings = HomeSettings(dags=tmp_path, port=1)
    order = StartRequest(
        home=Home(tmp_path), settings=settings, environ={**machine, **others}, variables={"GDDL_LAKE": "/own"}
    )
    environ = Standalone(order).environ
    assert environ.items() >= {**machine, "GDDL_LAKE": "/own"}.items()
    assert not environ.keys() & {"GDDL_METADATA", "AIRFLOW__CORE__EXECUTOR"}
