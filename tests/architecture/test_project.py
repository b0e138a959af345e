"""The repository as strangers find it: sizes of files, metadata of the wheel, workflows that name what exists."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LARGEST = 500_000
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def listed() -> list[Path]:
    """Files under version control, and those that would be with the next commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def too_large(paths: list[Path]) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in paths if path.stat().st_size > LARGEST}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked source distribution has no history")
def test_no_file_is_too_large() -> None:
    found = listed()
    assert ROOT / "pyproject.toml" in found
    assert too_large(found) == {}


def test_a_large_file_is_seen(tmp_path: Path) -> None:
    for name, size in (("small", LARGEST), ("large", LARGEST + 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert too_large(sorted(tmp_path.iterdir())) == {"large": LARGEST + 1}


def commands(workflow: Path) -> str:
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    return "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])


def matrix(workflow: Path, job: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"][job]["strategy"]["matrix"]
    return found


def test_workflows_call_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for path in WORKFLOWS for name in re.findall(r"\bmake ([a-z-]+)", commands(path))}
    assert {"lint", "test-quick", "test-spark", "test-airflow-oldest", "package", "docs", "test-deep"} <= called
    assert {"dev", "test-first"} <= called, "the environment of a first change"
    assert {"test-floors", "test-newest"} <= called, "lanes of libraries beside the lock"
    assert called <= targets


def test_workflows_run_every_lane_and_every_python() -> None:
    lanes = set(re.findall(r"^PINS_([\d.]+) :=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    ci, nightly = ROOT / ".github/workflows/ci.yml", ROOT / ".github/workflows/nightly.yml"
    assert {entry["lane"] for entry in matrix(ci, "spark")["include"]} == lanes
    assert {entry["python"] for entry in matrix(ci, "spark")["include"]} == pythons
    assert set(matrix(ci, "quick")["python"]) == pythons
    assert (set(matrix(nightly, "spark")["lane"]), set(matrix(nightly, "spark")["python"])) == (lanes, pythons)


DOOR = ("demo-embedded", "demo-check", "newcomer")
"""What a stranger does first; each makes its environment."""


def test_ci_begins_with_the_front_door() -> None:
    """In a copy of the tracked files, before any environment of developers is made."""
    script = (ROOT / ".ci" / "run").read_text()
    begun = re.compile(r"^(?:enter|make --no-print-directory) ([a-z-]+)", re.MULTILINE)
    assert begun.findall(script) == [*DOOR, "test", "test-wide"]
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"make {command}" in contributing for command in DOOR)
    releasing = (ROOT / ".github/RELEASING.md").read_text()
    first = releasing.partition("## Each time\n1. ")[2].partition("\n2. ")[0]
    assert [line.strip() for line in first.splitlines() if line.strip().startswith("make ")] == [
        "make demo-embedded",
        "make newcomer",
    ]


def test_the_first_change_of_a_contributor_names_what_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## A first change")[2].partition("\n## ")[0]
    paths = re.findall(r"`([\w./]+\.(?:py|md))`", page)
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path).exists()] == []
    module, name = re.findall(r"pytest (\S+) -k (\w+)", page)[0]
    shown = (ROOT / module).read_text()
    assert "CRON_STEP" in shown.partition(f"def {name}")[2].partition("\ndef ")[0]
    assert "def _steps" in (ROOT / "airflow_gddl/metadata/advice.py").read_text()


def test_the_front_door_opens_on_every_python_by_both_installers() -> None:
    workflow = ROOT / ".github/workflows/ci.yml"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert matrix(workflow, "door") == {"python": pythons, "installer": ["pip", "uv"]}
    steps = yaml.safe_load(workflow.read_text())["jobs"]["door"]["steps"]
    assert [step["run"].split()[1] for step in steps if "run" in step] == list(DOOR)


def test_actions_are_pinned_by_the_hash_of_a_commit() -> None:
    used = [line for path in WORKFLOWS for line in re.findall(r"uses: (.+)", path.read_text())]
    assert len(used) > 30
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+)+", line)] == []


def test_a_release_attests_all_that_it_publishes() -> None:
    package = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["package"]
    attested = [step["with"] for step in package["steps"] if step.get("uses", "").startswith("actions/attest@")]
    assert [one["subject-path"] for one in attested] == ["dist/*", "dist/*"]
    assert attested[1]["sbom-path"] == "build/sbom.json"
    assert "$(VENV)-package/bin/cyclonedx-py" in (ROOT / "Makefile").read_text()


def test_a_release_needs_no_token_and_publishes_what_was_checked() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "package"
    assert "secrets." not in "".join(path.read_text() for path in WORKFLOWS)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert form["blank_issues_enabled"] is False
        return
    assert {"name", "description", "body"} <= set(form)
    fields = [entry for entry in form["body"] if entry["type"] != "markdown"]
    assert len({entry["id"] for entry in fields}) == len(fields)
    assert all(entry["attributes"]["label"] for entry in fields)


def test_owners_own_what_is_there() -> None:
    lines = [
        line.split() for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert [place for place, *_ in lines if place != "*" and not (ROOT / place.strip("/")).exists()] == []
    assert all(owner.startswith("@") for _, *owners in lines for owner in owners)
