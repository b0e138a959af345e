"""`devtools/requirements/*.txt` pin what `pyproject.toml` asks for, each package with its hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from airflow_gddl.contract.spark_versions import JOB_PACKAGES, check_pair, delta_of_packages, series
from airflow_gddl.runners.descriptor import DELTALAKE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^(\S+)==(\S+?)(?: ; .*)? \\$", re.MULTILINE)
LOCKED = ("demo", "dev", "docs", "first")


def locked(extra: str) -> dict[str, set[str]]:
    """Package to its pinned versions: some have one for older Pythons and one for newer."""
    found: dict[str, set[str]] = {}
    for name, version in PINNED.findall((ROOT / "devtools" / "requirements" / f"{extra}.txt").read_text()):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def asked(extra: str) -> list[Requirement]:
    """What an extra needs, with that of the extras that it names."""
    found = []
    for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
        if canonicalize_name(requirement.name) == PROJECT["project"]["name"]:
            found += [needed for other in requirement.extras for needed in asked(other)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("extra", LOCKED)
def test_every_requirement_is_pinned_within_its_limits(extra: str) -> None:
    pins = locked(extra)
    needed = [*asked(extra), *map(Requirement, PROJECT["project"]["dependencies"]),
              *map(Requirement, PROJECT["build-system"]["requires"])]  # fmt: skip
    wrong = [
        f"{each}: {sorted(pins.get(canonicalize_name(each.name), ()))}"
        for each in needed
        if not any(each.specifier.contains(version) for version in pins.get(canonicalize_name(each.name), ()))
    ]
    assert not wrong, f"run `make lock`: {wrong}"


@pytest.mark.parametrize("extra", LOCKED)
def test_every_package_has_a_hash(extra: str) -> None:
    blocks = re.split(r"\n(?=\S)", (ROOT / "devtools" / "requirements" / f"{extra}.txt").read_text().strip())
    assert [block.split("\n")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_jobs_elsewhere_have_the_deltalake_of_the_extra() -> None:
    (own,) = (each for each in asked("spark") if each.name == "deltalake")
    assert Requirement(DELTALAKE) == own


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    makefile = (ROOT / "Makefile").read_text()
    tested = dict(re.findall(r"(\S+?)==(\S+)", makefile.partition("FLOORS := ")[2].partition("test-floors:")[0]))
    needed = [
        *asked("cli"),
        *asked("spark"),
        *map(Requirement, PROJECT["project"]["dependencies"]),
    ]
    stated = {each.name: each.specifier for each in needed if each.name not in ("delta-spark", "pyspark")}
    lowest = {name: of.version for name, bound in stated.items() for of in bound if of.operator == ">="}
    wrong = [name for name in stated if Version(lowest[name]) != Version(tested.get(name, "0"))]
    assert not wrong


def test_the_image_has_the_airflow_that_is_pinned() -> None:
    (version,) = locked("demo")["apache-airflow"]
    tag = f"apache/airflow:{version}-python3.12"
    for name in ("devtools/Dockerfile", "docker-compose.yaml", ".env.example"):
        assert tag in (ROOT / name).read_text(), name


def test_packages_that_gddl_check_asks_for_come_with_their_extra() -> None:
    assert set(JOB_PACKAGES) <= {requirement.name for requirement in asked("spark")}


def test_pandas_is_one_that_spark_supports() -> None:
    """PySpark up to 4.2 warns of pandas 3; a fresh installation without the lock took it."""
    for extra in ("spark", "local", "first", "test"):
        (bound,) = {str(each.specifier) for each in asked(extra) if each.name == "pandas"}
        assert (SpecifierSet(bound).contains("2.3.3"), SpecifierSet(bound).contains("3.0.0")) == (True, False)


# What the releases on PyPI ask for themselves, as of 2026-11-30.
PYSPARKS = ("4.0.0", "4.0.1", "4.0.2", "4.0.3", "4.0.4", "4.0.5", "4.1.0", "4.1.1", "4.1.2", "4.1.3", "4.1.4",
            "4.2.0", "4.2.1", "4.3.0")  # fmt: skip
DELTAS = {"4.0.0": ">=4.0.0", "4.0.1": ">=4.0.0", "4.1.0": ">=4.0.1", "4.2.0": ">=4.0.1,<=4.1.1"} | dict.fromkeys(
    ("4.3.0", "4.3.1"), ">=4.0.1,<=4.1.1"
) | dict.fromkeys(("4.4.0", "4.4.1"), ">=4.0.1,<=4.2.0")  # fmt: skip


def allowed(package: str, versions: Iterable[str]) -> list[str]:
    (bound,) = (each.specifier for each in asked("spark") if each.name == package)
    return sorted((version for version in versions if bound.contains(version)), key=Version)


def test_whatever_is_resolved_first_the_extra_gives_a_pair_that_fits() -> None:
    """Every pair that the packages' own metadata allows, since pins of other packages may exclude the newest of either.
    Open bounds gave uv pyspark 4.3.0 with delta-spark 4.1.0, whose own bound has no upper end."""
    sparks, deltas = allowed("pyspark", PYSPARKS), allowed("delta-spark", DELTAS)
    assert (sparks[-1], deltas[-1]) == ("4.2.1", "4.4.1"), "Spark 4.3 has no Delta yet"
    pairs = [(spark, delta) for spark in sparks for delta in deltas if SpecifierSet(DELTAS[delta]).contains(spark)]
    assert len(pairs) > 30
    for spark, delta in pairs:
        jars = delta_of_packages(spark, delta)
        check_pair(spark, jars, "")


def test_the_lanes_are_within_the_bounds_and_fit() -> None:
    """Lock, floors and lanes of other Sparks; the newest are played by the workflow `newest.yml`."""
    makefile = (ROOT / "Makefile").read_text()
    pairs = re.findall(r"pyspark==(\S+) delta-spark==(\S+)", makefile)
    newest = {series(spark): spark for spark in allowed("pyspark", PYSPARKS)}
    assert set(newest.values()) <= {spark for spark, _ in pairs}, "a lane has the newest patch of each series"
    for extra in ("demo", "dev"):
        pairs += [(*locked(extra)["pyspark"], *locked(extra)["delta-spark"])]
    for spark, delta in pairs:
        assert (allowed("pyspark", [spark]), allowed("delta-spark", [delta])) == ([spark], [delta])
        delta_of_packages(spark, delta)
