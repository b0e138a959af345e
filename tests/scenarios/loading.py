"""Reads `scenario.yaml` files: YAML as people expect it, without its traps."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from airflow_gddl.contract.codec import decode
from tests.scenarios.model import Scenario, check

HERE = Path(__file__).parent


class ScenarioError(Exception):
    """A scenario that can't be run as written."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # the one in C is not everywhere
    """Only null, true, false and plain numbers are not text (no dates, no octals, no `no`); no key comes twice."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way of declaring it


for _tag, _form, _first in (
    ("null", r"null|", ["n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)\.[0-9]+", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form})$"), _first)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            raise ScenarioError(f"{key!r} comes twice{key_node.start_mark}")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str, name: str) -> Scenario:
    """Raises ScenarioError or FatalError with the path to what is wrong."""
    data = yaml.load(text, _Loader)  # noqa: S506, TID251 - a SafeLoader
    if not isinstance(data, dict):
        raise ScenarioError(f"{name}: not a mapping")
    scenario = decode(Scenario, {**data, "name": name})
    if problems := check(scenario):
        raise ScenarioError(f"{name}: {'; '.join(problems)}")
    return scenario


@cache
def load_all(folder: Path = HERE) -> tuple[Scenario, ...]:
    """All scenarios below the folder, by name."""
    paths = sorted(folder.glob("*/scenario.yaml"))
    return tuple(parse(path.read_text(encoding="utf-8"), path.parent.name) for path in paths)
