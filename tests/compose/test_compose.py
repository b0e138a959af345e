"""The compose file holds what it promises: loopback alone, no secret of its own, health checks, commands that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from airflow_gddl.metadata.loading import load
from tests.compose.arrangement import ROOT, SECRETS, MissingError, example, interpolated, services, written
from tests.s3.gateway import BIN

ONCE = {"migrate", "land"}
"""Services that do one thing and end."""


def test_it_is_a_compose_file() -> None:
    """By the specification's own schema (compose-spec.io, Apache-2.0), and each name it refers to exists."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    file = interpolated(written(), example())
    jsonschema.Draft7Validator(schema).validate(file)
    names, volumes = set(file["services"]), set(file["volumes"])
    for service in file["services"].values():
        assert set(service.get("depends_on", {})) <= names
        mounted = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert {name for name in mounted if not name.startswith(".")} <= volumes
        assert all((ROOT / name).is_dir() for name in mounted if name.startswith("."))


def compose() -> list[str] | None:
    """The program, as a plugin of docker's or alone; null when it can't be had. No engine is asked for anything.

    Where neither is packaged, it is built of its own module (`go mod download github.com/docker/compose/v2@v2.40.3`,
    then `go build -o docker-compose ./cmd` in a copy of it).
    """
    for command in (["docker", "compose"], ["docker-compose"], [str(BIN / "docker-compose")]):
        with suppress(OSError):
            said = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
            if said.returncode == 0 and re.match(r"v?[2-9]\.|dev", said.stdout):  # `dev`: built as said above
                return command
    return None


@pytest.mark.parametrize("roots", [{}, {"GDDL_LANDING": "s3://gddl/landing", "GDDL_LAKE": "s3://gddl/lake"}])
def test_compose_itself_reads_it_as_the_tests_do(tmp_path: Path, roots: dict[str, str]) -> None:
    program = compose()
    if program is None:
        pytest.skip("no docker compose of version 2")
    variables = {**example(), **roots}
    (tmp_path / "env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    command = [*program, "--file", str(ROOT / "docker-compose.yaml"), "--env-file", str(tmp_path / "env")]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    said = subprocess.run(
        [*command, "config", "--format", "json"], env=environ, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    found = json.loads(said.stdout)
    ours = services(variables)
    assert found["name"] == "airflow-gddl"
    assert {name: tuple(each.get("command") or ()) for name, each in found["services"].items()} == {
        # It shows a dollar as the file has to write it.
        name: tuple(part.replace("$", "$$") for part in each.command)
        for name, each in ours.items()
    }
    assert {name: each.get("environment") or {} for name, each in found["services"].items()} == {
        name: {key: value.replace("$", "$$") for key, value in each.environ.items()} for name, each in ours.items()
    }
    published = [port for each in found["services"].values() for port in each.get("ports", [])]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_compose_itself_refuses_to_start_without_secrets(tmp_path: Path) -> None:
    program = compose()
    if program is None:
        pytest.skip("no docker compose of version 2")
    command = [
        *program,
        "--file",
        str(ROOT / "docker-compose.yaml"),
        "--env-file",
        str(ROOT / ".env.example"),
        "config",
    ]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    said = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert "see .env.example" in said.stderr


def test_ports_are_on_loopback() -> None:
    ports = [port for service in services(example()).values() for port in service.settings.get("ports", [])]
    assert len(ports) == 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", SECRETS)
def test_it_does_not_start_without_its_secrets(name: str) -> None:
    with pytest.raises(MissingError, match=rf"{name}: see .env.example"):
        services({**example(), name: ""})


def test_the_file_contains_no_secret() -> None:
    assert len(SECRETS) == 6
    fields = re.compile(r"(PASSWORD|SECRET|FERNET|ACCESS_KEY|SECRET_KEY)(_ID)?$")
    for service in written()["services"].values():
        for name, value in service.get("environment", {}).items():
            assert not fields.search(name) or re.fullmatch(r"\$\{[A-Z0-9_]+:\?.*\}", value), name


def test_long_running_services_have_health_checks() -> None:
    found = services(example())
    assert {"postgres", "s3", "api-server", "scheduler", "dag-processor", "triggerer"} < set(found)
    assert {name for name, each in found.items() if "healthcheck" not in each.settings} == ONCE
    waited_for = {
        (other, how["condition"])
        for each in found.values()
        for other, how in each.settings.get("depends_on", {}).items()
    }
    assert {(name, how) for name, how in waited_for if (name in ONCE) != ("completed" in how)} == set()


def test_commands_of_ours_exist() -> None:
    own = [each for each in services(example()).values() if each.settings["image"] == "airflow-gddl"]
    path = str(Path(sys.executable).parent)
    assert {each.command[0] for each in own} == {"airflow", "spark-class", "gddl"}
    assert all(shutil.which(each.command[0], path=path) for each in own)


def test_its_variables_are_settings_that_the_metadata_takes() -> None:
    environ = services(example())["scheduler"].environ
    catalog = load(ROOT / "metadata", environ)
    assert (catalog.runner, catalog.roots.landing, catalog.roots.lake) == (
        "spark_submit",
        "/data/landing",
        "/data/lake",
    )
    assert catalog.runners["spark_submit"]["master"] == "spark://spark-master:7077"
    assert catalog.problems == ()
    cores, memory = catalog.tiers["small"].cores, catalog.tiers["small"].memory
    worker = services(example())["spark-worker"].command
    assert int(worker[worker.index("--cores") + 1]) >= cores
    assert (memory, worker[worker.index("--memory") + 1]) == ("1g", "4g")


def test_everything_that_is_built_is_sent_to_the_builder() -> None:
    """The ignore file lets nothing through but what it names."""
    copied = re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", (ROOT / "devtools" / "Dockerfile").read_text(), re.MULTILINE)
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for line in copied for name in line.split()} == sent
    assert all((ROOT / name).exists() for name in sent)
