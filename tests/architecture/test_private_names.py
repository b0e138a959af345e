"""Tests patch no private name of this project: what they have to change is passed in, or public."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"(?:^|\.)_(?!_)\w+$")
ELSEWHERE = {
    "tests/airflow/test_in_task.py": ("_run_inline_trigger", "Airflow's: what runs a trigger in a test of its DAGs"),
    "tests/airflow/test_rerun.py": (
        "_is_openlineage_provider_accessible, _get_openlineage_parent_info",
        "Airflow's: whether OpenLineage is installed and what it adds to a triggered run",
    ),
    "tests/catalogs/test_glue.py": ("_make_api_call", "botocore's: each call of a client of AWS"),
    "tests/catalogs/test_probe.py": ("_make_api_call", "botocore's: each call of a client of AWS"),
    "tests/unit/test_cluster_check.py": ("_jvm", "PySpark's: where a classic session has its JVM"),
}
"""Test module to the private names of other libraries that it patches, and what they are."""


def patched(tree: ast.Module) -> Iterator[str]:
    """Private names that are replaced: by pytest's or mock's patches, or by an assignment to an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in {"setattr", "delattr", "patch", "object"}:
            names = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
            names += [ast.unparse(part) for part in node.args[:1] if isinstance(part, ast.Attribute)]
            yield from (name.rpartition(".")[2] for name in names if isinstance(name, str) and PRIVATE.search(name))
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                own = isinstance(part, ast.Attribute) and ast.unparse(part.value) in {"self", "cls"}
                if isinstance(part, ast.Attribute) and not own and PRIVATE.search(part.attr):
                    yield part.attr


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("monkeypatch.setattr(module, '_LIMIT', 1)", ["_LIMIT"]),
        ("monkeypatch.setattr('a.b._limit', 1)", ["_limit"]),
        ("monkeypatch.setattr(module._Class, 'run', f)", ["_Class"]),
        ("module._limit = 1", ["_limit"]),
        ("a.b, module._limit = 1, 2", ["_limit"]),
        ("self._x = 1", []),
        ("monkeypatch.setattr(module, 'LIMIT', 1)", []),
        ("monkeypatch.setattr(Part, '__call__', f)", []),
        ("monkeypatch.setattr(sys, 'platform', '_x y')", []),
    ],
)
def test_patches_are_found(source: str, expected: list[str]) -> None:
    assert list(patched(ast.parse(source))) == expected


def test_only_names_of_other_libraries_are_patched() -> None:
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if names := set(patched(ast.parse(path.read_text(encoding="utf-8")))):
            found[path.relative_to(ROOT).as_posix()] = names
    assert found == {path: set(names.split(", ")) for path, (names, _) in ELSEWHERE.items()}
