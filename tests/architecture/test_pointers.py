"""Names of modules, classes and functions in docstrings and comments exist."""

from __future__ import annotations

import ast
import functools
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("airflow_gddl", "spark_jobs", "devtools", "benchmarks", "tests")
_POINTER = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
_FILES = (".py", ".json", ".jsonl", ".yml", ".zip", ".conf")
_OTHERS = ("schema.name", "schema.table", "database.table", "options.", "source.", "spark.", "unavailable.", "airflow.")
"""Beginnings of names that are no pointers: tables, fields of rows and of events, settings of services."""


@dataclass(frozen=True)
class Module:
    """What can be named in a module.

    Attributes:
        names: what its top level defines or imports, and every argument and variable in it.
        classes: by name, their attributes and the names of their bases.
    """

    names: frozenset[str]
    classes: Mapping[str, tuple[frozenset[str], tuple[str, ...]]]


@functools.cache
def modules() -> Mapping[str, Module]:
    """By dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = _module(ast.parse(path.read_text()))
    return found


def _module(tree: ast.Module) -> Module:
    names = {alias.asname or alias.name for node in ast.walk(tree) for alias in getattr(node, "names", ())
             if isinstance(alias, ast.alias)}  # fmt: skip
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    classes = {node.name: (_attributes(node), tuple(ast.unparse(base) for base in node.bases))
               for node in defined if isinstance(node, ast.ClassDef)}  # fmt: skip
    return Module(frozenset(names | {node.name for node in defined}), classes)


def _attributes(of: ast.ClassDef) -> frozenset[str]:
    methods = {node.name for node in of.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    stored = {node.attr for node in ast.walk(of) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return frozenset(methods | stored | {node.id for node in ast.walk(of) if isinstance(node, ast.Name)})


@functools.cache
def endings() -> Mapping[str, tuple[str, ...]]:
    """Modules and packages by each ending of their names."""
    found: dict[str, set[str]] = {}
    for name in modules():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            for begin in range(end):
                found.setdefault(".".join(parts[begin:end]), set()).add(".".join(parts[:end]))
    return {ending: tuple(names) for ending, names in found.items()}


def _has(of: str, attribute: str) -> bool:
    for module in modules().values():
        for attributes, bases in [module.classes[of]] if of in module.classes else []:
            parents = (base.split("[")[0].split(".")[-1] for base in bases)
            if attribute in attributes or any(_has(parent, attribute) for parent in parents if parent != of):
                return True
    return False


def resolves(pointer: str, here: Module) -> bool:
    """Whether a dotted name leads to something, or begins with nothing of this project."""
    parts = pointer.split(".")
    is_class = any(parts[0] in module.classes for module in modules().values())
    if is_class:
        return _has(parts[0], parts[1])
    if parts[0] in here.names or parts[0] not in endings():
        return True
    for end in range(len(parts), 0, -1):
        for name in endings().get(".".join(parts[:end]), ()):
            module, rest = modules().get(name, Module(frozenset(), {})), parts[end:]
            if not rest or (rest[0] in module.names and (len(rest) == 1 or _has(rest[0], rest[1]))):
                return True
    return False


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, with their lines."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string):
                yield token.start[0], token.string


def dead_pointers(path: Path) -> list[str]:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    dead = []
    for line, text in _texts(path):
        pointers = [p for p in _POINTER.findall(text) if not p.startswith(_OTHERS) and not p.endswith(_FILES)]
        dead += [f"{path.relative_to(ROOT)}:{line}: {p}" for p in pointers if not resolves(p, modules()[name])]
    return dead


@pytest.mark.parametrize("package", PACKAGES)
def test_pointers_in_docstrings_and_comments_resolve(package: str) -> None:
    assert [each for path in sorted((ROOT / package).rglob("*.py")) for each in dead_pointers(path)] == []


def test_dead_pointers_are_found() -> None:
    here = Module(frozenset({"table_schema"}), {})
    assert [p for p in ("plan.enforcement", "TableSchema.nothing", "rules.live.folded") if resolves(p, here)] == []
    assert resolves("plan.table_schema.TableSchema", here)
    assert resolves("table_schema.keys", here)
