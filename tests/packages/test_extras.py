"""Each combination of extras that a page names, in an environment of its own: all that it is for works.

What a command, a DAG file, a task or a job needs beyond it is `PACKAGE_MISSING`, with the command that installs it.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.packages import EXTRAS
from tests.harness.lake import Lake, spec_of
from tests.packages.user_environments import (
    ROOT,
    Combination,
    Environment,
    combinations,
    pages,
    wheel,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_DEVELOPERS = {"bench", "dev", "docs", "first", "test"}
"""Extras that are for work on this project; no page tells users to install them."""
PROBE = Path(__file__).with_name("probe.py")
LOST = re.compile(r"\[INTERNAL\]|Traceback|ModuleNotFoundError|ImportError|_BROKEN\]")
REMEDY = re.compile(r"pip\s+install\s+'airflow-gddl\[([^\]]+)\]'")


AT_NIGHT = (
    "[demo]",
    "[airflow]",
    "[emr-serverless]",
    "[glue,iceberg]",
    "[databricks]",
    "[glue]",
    "[openlineage]",
    "[cli] databricks-sdk",
)
"""`demo` is what the front door of CI installs; the others need a platform's client."""


@functools.cache
def named() -> dict[Combination, list[str]]:
    """Combinations of extras and the pages that name each."""
    found: dict[Combination, list[str]] = defaultdict(list)
    for page in pages(ROOT):
        for one in combinations(page.read_text(encoding="utf-8")):
            found[one].append(str(page.relative_to(ROOT)))
    return dict(sorted(found.items()))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("user"))


def test_pages_name_extras_that_exist() -> None:
    known = set(PROJECT["optional-dependencies"])
    unknown = {str(one): places for one, places in named().items() if not known.issuperset(one.extras)}
    assert unknown == {}, "pip would install nothing for them, and warn"


def test_every_extra_is_on_a_page() -> None:
    assert {extra for one in named() for extra in one.extras} == set(PROJECT["optional-dependencies"]) - OF_DEVELOPERS


def test_messages_name_the_extra_that_has_the_package() -> None:
    """`EXTRAS` and pyproject.toml agree."""
    for module, (package, extra) in EXTRAS.items():
        assert package in distributions(extra), module


def distributions(extra: str) -> set[str]:
    """What an extra asks for, with that of the extras that it names."""
    found: set[str] = set()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        found.add(requirement.name)
        for other in requirement.extras if requirement.name == PROJECT["name"] else ():
            found |= distributions(other)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "combination",
    [pytest.param(one, marks=pytest.mark.deep if str(one) in AT_NIGHT else ()) for one in named()],
    ids=str,
)
def test_it_has_what_it_is_for(
    combination: Combination, environment: Environment, project: Path, tmp_path: Path
) -> None:
    environment.install(project, combination)
    done = environment.run(PROBE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["imports"] == {}
    if found["cli"]:
        check_commands(found["commands"])
    else:
        check_missing(environment, tmp_path, "-m", "airflow_gddl.cli.main", "run", extra="cli")
    if found["airflow"]:
        assert found["dags"]["errors"] == {}
        assert {"gddl.shop.lines", "gddl_pack.shop.small.1", "gddl_maintenance"} <= set(found["dags"]["dags"])
    if found["spark"]:
        check_load(environment, tmp_path / "job", combination, cli=found["cli"], demo=found["demo"])
    else:
        check_missing(environment, tmp_path, "-m", "spark_jobs.main", "--spec", "{}", extra="spark")


def test_lanes_can_import_their_tests(environment: Environment, project: Path) -> None:
    """Lanes of other versions have the extra `test` alone: neither Airflow nor clients of clouds."""
    makefile = (ROOT / "Makefile").read_text()
    lanes = makefile[makefile.index("LANE_TESTS :=") : makefile.index("# Many random histories")]
    tests = sorted(set(re.findall(r"\btests/[\w./]+", lanes)))
    assert {"tests/rules", "tests/scenarios", "tests/platforms"} <= set(tests)
    environment.install(project, Combination(("test",)))
    options = ("--collect-only", "--quiet", "-p", "no:cacheprovider", "-W", "ignore")
    done = environment.run("-m", "pytest", *options, *tests, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def check_commands(found: dict[str, Any]) -> None:
    """Every command worked or said in a coded error what it lacks, and that extra exists."""
    lost = {line: one["printed"] for line, one in found.items() if LOST.search(one["printed"])}
    assert lost == {}
    works = [line for line in found if line.split(": ")[-1] in ("gddl init", "gddl validate")]
    assert {line: found[line]["printed"] for line in works if found[line]["status"] != 0} == {}
    assert len(works) == 6, "for each runner, and before"
    plans = {line: one["printed"] for line, one in found.items() if line.endswith("gddl plan")}
    assert len(plans) >= 3
    assert [line for line, printed in plans.items() if "2 tables in 4 DAGs" not in printed] == []
    extras = {extra for one in found.values() for named in REMEDY.findall(one["printed"]) for extra in named.split(",")}
    assert extras <= set(PROJECT["optional-dependencies"])


def check_missing(environment: Environment, folder: Path, *command: str, extra: str) -> None:
    """A command without its packages ends with exit status 2 and one error with the extra that brings them."""
    done = environment.run(*command, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    remedy = rf"Remedy: pip install 'airflow-gddl\[{extra}\]'"
    assert re.fullmatch(rf"\[PACKAGE_MISSING\] .* {remedy}\n", done.stderr), done.stderr


def check_load(environment: Environment, folder: Path, combination: Combination, *, cli: bool, demo: bool) -> None:
    """A table is loaded: of the demo where its data are, by `gddl run`, or by a job alone.

    Spark does it where no other combination has fewer packages for it: each start takes ten seconds of a core.
    """
    folder.mkdir()
    alone = {} if is_smallest(combination) else {"GDDL_WITHOUT_SPARK": "1"}
    if demo:
        done = environment.run("-m", "airflow_gddl.cli.main", "demo", "--scale", "0.001", "--rounds", "1", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every replica equals its source." in done.stdout
        return
    lake, spec = Lake(folder), spec_of("a")
    lake.load(spec)
    if cli:
        assert environment.run("-m", "airflow_gddl.cli.main", "init", cwd=folder).returncode == 0
        (folder / "metadata" / "tables" / "shop.yaml").write_text("source: s\ntables: [{table: s.a, keys: [id]}]\n")
        done = environment.run("-m", "airflow_gddl.cli.main", "run", cwd=folder, more=alone)
    else:
        done = environment.run("-m", "spark_jobs.main", "--spec", to_json(lake.job([spec])), cwd=folder, more=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lake.replica(spec) == {0: "load 0", 1: "load 1", 2: "load 2"}


def is_smallest(combination: Combination) -> bool:
    """Whether no other combination that has `spark`, and the commands where this one has them, is within it."""
    own = all_distributions(combination)
    needed = {"pyspark", "typer"} & own
    return not any(needed <= all_distributions(one) < own for one in named())


def all_distributions(combination: Combination) -> set[str]:
    return {name for extra in combination.extras for name in distributions(extra)}
