"""The file that is published has no name, id, address or text of the platform, the metadata or the environment."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.tools.platform_check import report
from airflow_gddl.tools.platform_check.checks import CHECKS, REASONS, FoundError, Outcome, failed, not_tried
from tests.harness.examples import at_random
from tests.platform_check.ground import Ground

pytestmark = pytest.mark.core
PAGE = Path(__file__).parents[2] / "docs" / "platforms" / "tested.md"
RUNS = PAGE.parent / "runs"
SECRET = st.from_regex(r"[a-z]{3}qz[a-z0-9]{6,12}", fullmatch=True)
"""Something that a person would not publish: a letter pair in it is in no word of the file."""


def words() -> st.SearchStrategy[list[str]]:
    return st.lists(SECRET, min_size=11, max_size=11, unique=True)


def context(root: Path, names: list[str]) -> Any:
    """What a check works with, with these names wherever a platform or a user has some."""
    bucket, path, account, host, user, runner, mail, key, table, profile, owner = names
    environ = {
        "AWS_ENDPOINT_URL": f"https://{host}.example.org:9000",
        "AWS_ACCESS_KEY_ID": key.upper(),
        "AWS_SECRET_ACCESS_KEY": f"{key}/{account}",
        "AWS_PROFILE": profile,
        "USER": user,
        "EMAIL": f"{mail}@example.org",
        "DATABRICKS_HOST": f"https://{account}.cloud.example.com",
        "HOME": f"/home/{user}",
    }
    made = Ground(root).context()
    changes = {
        "runner": runner,
        "runners": {runner: {"role": f"arn:aws:iam::{account}:role/{user}", "tags": {"owner": mail}}},
        "tables": tuple(replace(one, table=f"{table}.{table}", owner=owner) for one in made.loaded.tables),
    }
    return replace(
        made,
        loaded=replace(made.loaded, **changes),
        root=f"s3://{bucket}/{path}/{user}-{key}",
        cli=replace(made.cli, environ=environ),
    )


def said_by(names: list[str]) -> st.SearchStrategy[Outcome]:
    """Outcomes of any check, whose texts, codes and reasons hold the names."""
    text = st.sampled_from(names).map(lambda name: f"AccessDenied for {name} at s3://{name}/x, request {name}")
    errors = st.one_of(
        text.map(FoundError),
        st.tuples(text, st.sampled_from(names)).map(lambda pair: FoundError(pair[0], pair[1].upper())),
        st.tuples(st.sampled_from(names), text).map(lambda pair: FatalError(pair[0].upper(), pair[1], where=pair[1])),
        text.map(ValueError),
    )
    checks, seconds = st.sampled_from(sorted(CHECKS)), st.floats(0, 1e4)
    return st.one_of(
        st.builds(failed, checks, errors, seconds),
        st.builds(Outcome, check=checks, state=st.just("PASS"), finding=text, seconds=seconds),
        st.builds(Outcome, check=checks, state=st.just("NOT TRIED"), finding=text,
                  reason=st.one_of(st.sampled_from(sorted(REASONS)), st.sampled_from(names))),
    )  # fmt: skip


@settings(max_examples=at_random(200))
@given(st.data())
def test_nothing_of_a_platform_is_in_the_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    names = data.draw(words())
    outcomes = data.draw(st.lists(said_by(names), min_size=1, max_size=10))
    made = context(tmp_path_factory.mktemp("ground"), names)
    written = report.text(report.report(made, outcomes)).lower()
    assert [name for name in names if name in written] == []
    values = [*made.cli.environ.values(), made.root, str(made.loaded.tables[0].table)]
    assert [value for value in values if value.lower() in written] == []


def test_versions_are_numbers_alone(monkeypatch: pytest.MonkeyPatch, ground: Ground) -> None:
    monkeypatch.setattr(report, "installed_version", lambda name: f"4.1.2+company.{name}.1")
    monkeypatch.setattr(report, "__version__", "0.1.0.dev3+company")
    content = report.report(ground.context(), [])
    assert set(content["packages"].values()) == {"4.1.2"}
    assert content["airflow_gddl"] == "0.1.0"
    assert re.fullmatch(r"3\.\d+\.\d+", content["python"])


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "default"),
        ({"AWS_ENDPOINT_URL": " "}, "default"),
        ({"AWS_ENDPOINT_URL": "https://x.example.org"}, "own"),
        ({"AWS_ENDPOINT_URL_S3": "https://x.example.org"}, "own"),
        ({"AWS_ENDPOINT": "https://x.example.org"}, "own"),
        ({"AWS_ENDPOINT_URL": "x"}, "own"),
    ],
)
def test_each_variable_that_names_an_endpoint_counts(environ: dict[str, str], said: str, ground: Ground) -> None:
    """A file from another store must not say that Amazon's S3 was tried."""
    made = ground.context()
    there = replace(made, root="s3://bucket/lake/id", cli=replace(made.cli, environ=environ))
    assert report.report(there, [])["endpoint"] == said


def test_the_file_says_what_became_of_each_check(ground: Ground) -> None:
    outcomes = [
        Outcome(check="storage.put", state="PASS", seconds=1.26, finding="s3://bucket"),
        failed("job.load", FatalError("S3_UNREACHABLE", "no answer"), 2.0),
        failed("job.cancel", FoundError("it went on", "COMPANY_CODE"), 2.0),
        not_tried("job.resume", "failed"),
    ]
    content = json.loads(report.text(report.report(ground.context(), outcomes)))
    assert (content["form"], content["store"], content["endpoint"], content["runner"]) == (1, "local", "none", "local")
    assert content["results"] == {"PASS": 1, "FAIL": 2, "NOT TRIED": 1}
    names = ("check", "result", "code", "cause", "reason", "seconds")
    assert [tuple(one[name] for name in names) for one in content["checks"]] == [
        ("storage.put", "PASS", "", "", "", 1.3),
        ("job.load", "FAIL", "PLATFORM_CHECK_FAILED", "S3_UNREACHABLE", "", 2.0),
        ("job.cancel", "FAIL", "PLATFORM_CHECK_FAILED", "other", "", 2.0),
        ("job.resume", "NOT TRIED", "", "", "failed", 0.0),
    ]


def rows_of_runs(folder: Path) -> list[str]:
    """The table of tested.md from the files of the folder."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))["results"]
        counts = " | ".join(str(found.get(state, 0)) for state in ("PASS", "FAIL", "NOT TRIED"))
        rows.append(f"| {path.stem} | [{path.name}](runs/{path.name}) | {counts} |")
    return rows


def test_the_page_lists_what_others_ran() -> None:
    part = PAGE.read_text(encoding="utf-8").partition("## Runs by others\n")[2].partition("\n## ")[0]
    shown = [line for line in part.splitlines() if line.startswith("|")][2:]
    assert shown == rows_of_runs(RUNS)
    assert ("There is none yet" in part) == (not shown)


def test_reasons_and_checks_stand_on_the_page() -> None:
    page = (PAGE.parent / "check.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page, re.MULTILINE))
    assert said == {**REASONS, "cleanup": "everything is removed"}
    assert re.findall(r"^\| `(\w+\.\w+|cleanup)`", page, re.MULTILINE) == list(CHECKS)


def test_the_template_of_issues_asks_for_the_file() -> None:
    import yaml  # noqa: PLC0415 - of the command line

    path = PAGE.parents[2] / ".github" / "ISSUE_TEMPLATE" / "it-runs-on.yml"
    form = SimpleNamespace(**yaml.safe_load(path.read_text(encoding="utf-8")))
    asked = {one["id"]: one["attributes"]["label"] for one in form.body if "id" in one}
    assert asked["report"] == "it-runs-on.json"
