"""Landing roots with credentials of their own, each on a server that refuses all other credentials."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.codec import from_json, to_document
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.source_access import SourceAccess, announced, connection_text, environ_of, of_path
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.stores import Storage
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.gateway import find_server, serving
from tests.s3.test_commands_on_s3 import Gddl, gddl, gddl_process

__all__ = ["gddl"]

ROLE = "arn:aws:iam::123456789012:role/crm-reader"


@dataclass(frozen=True)
class World:
    """The lake's bucket, and a bucket on a server of its own for the landing of each source."""

    lake: Place
    landings: Mapping[str, Place]

    @property
    def connections(self) -> dict[str, str]:
        return {f"AIRFLOW_CONN_{n.upper()}_AWS": connection_text(p.environ) for n, p in self.landings.items()}

    @property
    def secrets(self) -> list[bytes]:
        places = (self.lake, *self.landings.values())
        return [place.environ["AWS_SECRET_ACCESS_KEY"].encode() for place in places]

    def settings(self) -> str:
        sources = "".join(
            f"  {name}: {{landing: 's3://{place.name}/landing', aws_conn_id: {name}_aws,"
            f" target: '{{source}}_{{schema}}.{{table}}'}}\n"
            for name, place in self.landings.items()
        )
        return f"landing: ../landing\nlake: ../lake\nsources:\n{sources}"

    def metadata(self, sizes: Mapping[str, str]) -> None:
        obstore.put(self.lake.store, "metadata/gddl.yaml", self.settings().encode())
        for name, size in sizes.items():
            row = f"tables:\n  - {{table: s.a, keys: [id], sequence_by: [seq], size: {size}}}\n"
            obstore.put(self.lake.store, f"metadata/tables/{name}.yaml", row.encode())

    def run(self, changed: Mapping[str, str] | None = None) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        environ = {**self.lake.environ, **self.connections, **(changed or {})}
        done = gddl_process(environ, self.lake.name, "run", "--json")
        return done, {line["table"]: line for line in map(json.loads, done.stdout.splitlines())}

    def rows(self, table: str) -> dict[int, str]:
        path = f"{self.lake.roots.lake}/{table.replace('.', '/')}"
        options = Storage(self.lake.environ).options_of(path)
        return {r["id"]: r["v"] for r in pa.table(DeltaTable(path, storage_options=options).scan()).to_pylist()}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Server]]:
    program = find_server()
    if program is None:
        pytest.skip("no S3 server: neither versitygw nor Go to build it with")
    with ExitStack() as stack:
        servers = {}
        for name in ("crm", "erp"):
            root = tmp_path_factory.mktemp(name)
            servers[name] = Server(stack.enter_context(serving(program, root)), root / "buckets")
        yield servers


@pytest.fixture
def world(place: Place, others: Mapping[str, Server]) -> World:
    made = World(place, {name: server.place() for name, server in others.items()})
    for landing in made.landings.values():
        delivery.deliver(landing, ["a"])
    return made


BOTH = {"crm_s.a": ("succeeded", "one"), "erp_s.a": ("succeeded", "many")}


def test_tasks_of_spark_read_each_source_with_its_own_credentials(world: World, tmp_path: Path) -> None:
    """The lake is a folder: Spark itself has no credentials at all, and no client of S3."""
    world.metadata({"crm": "small", "erp": "large"})
    changed = {"GDDL_LAKE": str(tmp_path / "lake"), "GDDL_WITHOUT_SPARK": ""}
    done, found = world.run(changed)
    assert {table: (r["status"], r["tasks"]) for table, r in found.items()} == BOTH, done.stderr
    for table in ("crm_s/a", "erp_s/a"):
        read = pa.table(DeltaTable(tmp_path / "lake" / table).scan()).to_pylist()
        assert {r["id"]: r["v"] for r in read} == delivery.ROWS
    kept = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert [path for path in kept if any(secret in path.read_bytes() for secret in world.secrets)] == []
    assert not any(secret.decode() in done.stdout + done.stderr for secret in world.secrets)


@pytest.mark.deep
def test_each_source_is_read_with_its_own_credentials_by_both_engines(world: World) -> None:
    world.metadata({"crm": "small", "erp": "large"})
    done, found = world.run({"GDDL_WITHOUT_SPARK": ""})
    assert {table: (r["status"], r["tasks"]) for table, r in found.items()} == BOTH, done.stderr
    assert [world.rows(table) for table in found] == [delivery.ROWS] * 2
    kept = {name: bytes(obstore.get(world.lake.store, name).bytes()) for name in delivery.objects(world.lake, "")}
    kept |= {"standard output": done.stdout.encode(), "standard error": done.stderr.encode()}
    assert [name for name, data in kept.items() if any(secret in data for secret in world.secrets)] == []


def test_credentials_of_one_source_are_refused_by_the_other(world: World) -> None:
    """Exchanged keys fail their tables, and change no other: there is no second way to a landing root."""
    world.metadata({"crm": "small", "erp": "small"})
    swapped = {**world.landings["crm"].environ, "AWS_ENDPOINT_URL": world.landings["erp"].environ["AWS_ENDPOINT_URL"]}
    done, found = world.run({"AIRFLOW_CONN_ERP_AWS": connection_text(swapped)})
    assert (found["crm_s.a"]["status"], found["erp_s.a"]["status"]) == ("succeeded", "failed"), done.stderr
    assert found["erp_s.a"]["error"]["code"] == "S3_CREDENTIALS_REFUSED"
    for name, place in world.landings.items():
        for other in (world.lake, *(p for n, p in world.landings.items() if n != name)):
            wrong = {**other.environ, "AWS_ENDPOINT_URL": place.environ["AWS_ENDPOINT_URL"]}
            with pytest.raises(FatalError, match="S3_CREDENTIALS_REFUSED"):
                list(Storage(wrong, quick=True).list(f"s3://{place.name}/landing"))


def test_a_missing_connection_fails_its_tables_alone(world: World) -> None:
    """The job's own credentials are never tried in place of missing ones."""
    world.metadata({"crm": "small", "erp": "small"})
    done, found = world.run({"AIRFLOW_CONN_CRM_AWS": ""})
    assert (found["crm_s.a"]["status"], found["erp_s.a"]["status"]) == ("failed", "succeeded"), done.stderr
    error = found["crm_s.a"]["error"]
    assert (error["code"], "AIRFLOW_CONN_CRM_AWS is not set" in error["message"]) == ("SOURCE_ACCESS_MISSING", True)


def test_a_specification_names_references_alone(world: World) -> None:
    world.metadata({"crm": "small"})
    catalog = load(f"s3://{world.lake.name}/metadata", {**world.lake.environ, **world.connections})
    job = JobSpec(run_id="r", roots=catalog.roots, tables=catalog.tables, access=catalog.access)
    written = to_document(job)
    assert from_json(JobSpec, written).access == catalog.access
    assert not any(secret.decode() in written for secret in world.secrets)
    assert "crm_aws" in written


class _Sts(BaseHTTPRequestHandler):
    """Answers AssumeRole with the keys of `place`, to callers with the login of `caller`."""

    place: Place
    caller = "AKIDJOB"
    expires = "2099-01-01T00:00:00Z"
    asked: list[dict[str, list[str]]]

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        type(self).asked.append(asked)
        allowed = f"Credential={self.caller}/" in self.headers["Authorization"] and asked.get("ExternalId") == ["x-1"]
        keys = self.place.environ
        body = (
            "<AssumeRoleResponse><AssumeRoleResult><Credentials>"
            f"<AccessKeyId>{keys['AWS_ACCESS_KEY_ID']}</AccessKeyId>"
            f"<SecretAccessKey>{keys['AWS_SECRET_ACCESS_KEY']}</SecretAccessKey><SessionToken></SessionToken>"
            f"<Expiration>{self.expires}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
            if allowed
            else "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not for you</Message></Error></ErrorResponse>"
        )
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def sts(place: Place) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    asked: list[dict[str, list[str]]] = []
    handler = type("Handler", (_Sts,), {"place": place, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_a_role_is_assumed_for_the_landing_root_alone(
    place: Place, sts: tuple[str, list[dict[str, list[str]]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    endpoint, asked = sts
    delivery.deliver(place, ["a"])
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    own = {"AWS_ACCESS_KEY_ID": _Sts.caller, "AWS_SECRET_ACCESS_KEY": "of-the-job", "AWS_REGION": "us-east-1"}
    environ = {**own, "AWS_ENDPOINT_URL_S3": place.environ["AWS_ENDPOINT_URL"]}
    root = f"s3://{place.name}/landing"
    role = SourceAccess(source="crm", landing=root, role_arn=ROLE, external_id="x-1")
    storage = Storage(announced((role,), environ), quick=True)
    assert len(list(storage.list(f"{root}/s/a"))) == 2
    assert [(a["RoleArn"], a["ExternalId"]) for a in asked] == [([ROLE], ["x-1"])]
    with pytest.raises(FatalError, match="S3_CREDENTIALS_REFUSED"):
        storage.write(f"s3://{place.name}/lake/x", b"")
    refused = SourceAccess(source="crm", landing=root, role_arn=ROLE, external_id="x-2")
    with pytest.raises(FatalError, match=rf"S3_CREDENTIALS_MISSING.*{ROLE}.*not for you") as caught:
        list(Storage(announced((refused,), environ), quick=True).list(root))
    assert "of-the-job" not in str(caught.value)


def test_a_role_is_assumed_again_before_its_credentials_expire(
    place: Place, sts: tuple[str, list[dict[str, list[str]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a batch, too: each client asks for credentials as its requests need them."""
    pytest.importorskip("boto3")
    endpoint, asked = sts
    delivery.deliver(place, ["a"])
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    monkeypatch.setattr(_Sts, "expires", (datetime.now(UTC) + timedelta(minutes=4)).isoformat(timespec="seconds"))
    own = {"AWS_ACCESS_KEY_ID": _Sts.caller, "AWS_SECRET_ACCESS_KEY": "of-the-job", "AWS_REGION": "us-east-1"}
    environ = {**own, "AWS_ENDPOINT_URL_S3": place.environ["AWS_ENDPOINT_URL"]}
    root = f"s3://{place.name}/landing"
    role = SourceAccess(source="crm", landing=root, role_arn=ROLE, external_id="x-1")
    storage = Storage(announced((role,), environ), quick=True)
    files = list(storage.list(f"{root}/s/a"))
    assert [len(storage.read(file.path)) for file in files] == [file.size for file in files]
    assert len(asked) > 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "postgres://u:s3cr3t@h", '{"login": "only-s3cr3t"}', '{"conn_type": "aws"}']
)
def test_unusable_content_is_refused_and_not_shown(text: str) -> None:
    access = SourceAccess(source="crm", landing="s3://crm/dms", aws_conn_id="crm_aws")
    with pytest.raises(FatalError, match="SOURCE_ACCESS_MISSING") as caught:
        environ_of(access, {"AIRFLOW_CONN_CRM_AWS": text, "AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own"})
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None


FORMS: dict[str, str] = {
    "JSON": json.dumps(
        {"conn_type": "aws", "login": "K", "password": "s/+", "extra": {"region_name": "eu-west-1", "role_arn": ROLE}}
    ),
    "JSON, its extra as text": json.dumps(
        {"login": "K", "password": "s/+", "extra": json.dumps({"region_name": "eu-west-1", "role_arn": ROLE})}
    ),
    "URI": f"aws://K:s%2F%2B@/?region_name=eu-west-1&role_arn={ROLE.replace(':', '%3A')}",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_connection(form: str) -> None:
    access = SourceAccess(source="crm", landing="s3://crm/dms", aws_conn_id="crm_aws")
    own = {"AWS_SESSION_TOKEN": "own", "AWS_ACCESS_KEY_ID": "own", "AWS_DEFAULT_REGION": "us-east-1", "HOME": "/h"}
    found = environ_of(access, {**own, "AIRFLOW_CONN_CRM_AWS": FORMS[form]})
    assert {name: value for name, value in found.items() if name.startswith("AWS_")} == {
        "AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "s/+", "AWS_REGION": "eu-west-1", "AWS_GDDL_ROLE": ROLE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("s3://crm/dms", True), ("s3://crm/dms/s/a/x.parquet", True), ("s3://crm/dms-2/x", False), ("s3://crm", False),
        ("s3://crm2/dms/x", False), ("/crm/dms/x", False), ("S3://crm/dms/x", False),
    ],
)  # fmt: skip
def test_a_reference_holds_below_its_root_alone(path: str, holds: bool) -> None:
    access = SourceAccess(source="crm", landing="s3://crm/dms", role_arn=ROLE)
    assert (of_path(path, announced((access,), {})) is not None) == holds


Settings = Callable[[str], GddlError]


@pytest.fixture
def refused(tmp_path: Path) -> Settings:
    def read(sources: str) -> GddlError:
        (tmp_path / "gddl.yaml").write_text(
            f"landing: s3://shared/landing\nlake: s3://shared/lake\nsources:\n{sources}"
        )
        with pytest.raises(GddlError, match="SETTINGS_INVALID") as caught:
            load(tmp_path, os.environ)
        return caught.value

    return read


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ("  crm: {aws_conn_id: a}", "landing root of its own"),
        ("  crm: {aws_conn_id: a, landing: 's3://shared/landing'}", "mix with those of landing"),
        ("  crm: {aws_conn_id: a, landing: 's3://shared'}", "mix with"),
        ("  crm: {aws_conn_id: a, landing: 's3://shared/lake/crm'}", "mix with the lake"),
        (
            "  crm: {aws_conn_id: a, landing: 's3://c/x'}\n  erp: {landing: 's3://c/x/y'}",
            "mix with those of source erp",
        ),
        ("  crm: {aws_conn_id: a, role_arn: 'arn:aws:iam::123456789012:role/x', landing: 's3://c/x'}", "stands beside"),
        ("  crm: {role_arn: x, landing: 's3://c/x'}", "not the ARN of a role"),
        ("  crm: {external_id: x, landing: 's3://c/x'}", "belongs to a role"),
        ("  crm: {aws_conn_id: 'a b', landing: 's3://c/x'}", "not a connection's id"),
    ],
)
def test_wrong_settings_are_named(refused: Settings, sources: str, message: str) -> None:
    error = refused(sources)
    assert message in str(error)
    assert "gddl.yaml:4" in str(error)


def test_a_folder_needs_no_credentials(tmp_path: Path) -> None:
    """As in development, where a variable names another place."""
    settings = "landing: /landing\nlake: /lake\nsources:\n  crm: {landing: 's3://crm/dms', aws_conn_id: crm_aws}\n"
    (tmp_path / "gddl.yaml").write_text(settings)
    assert [one.landing for one in load(tmp_path, {}).access] == ["s3://crm/dms"]
    assert load(tmp_path, {"GDDL_SOURCES__CRM__LANDING": "/data/crm"}).access == ()


def test_every_command_reads_with_the_credentials_of_the_source(world: World, gddl: Gddl) -> None:
    world.metadata({"crm": "small"})
    environ = {**world.lake.environ, **world.connections}

    def ask(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in gddl(environ, world.lake.name, *arguments, "--json").stdout.splitlines()]

    assert [line["status"] for line in ask("run")] == ["succeeded"]
    assert [line["status"] for line in ask("verify")] == ["succeeded"]
    (checked,) = [line for line in ask("check") if "crm" in line["subject"]]
    assert (checked["status"], checked["message"]) == ("ok", f"s3://{world.landings['crm'].name}/landing can be listed")
