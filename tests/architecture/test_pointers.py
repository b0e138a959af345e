"""Names of modules, classes and functions in docstrings and comments exist."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("airflow_gddl", "spark_jobs", "devtools", "benchmarks", "tests")
_POINTER = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
_FILES = (
    ".bak",
    ".conf",
    ".csv",
    ".gz",
    ".json",
    ".jsonl",
    ".parquet",
    ".py",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
    ".zip",
)
_OTHERS = (
    # Tables, fields of rows and of events.
    "_gddl.", "a.b", "column_descriptions.", "database.table", "error.message", "options.", "ops.", "public.", "s.t",
    "sales.", "schema.name", "schema.table", "shop.", "source.",
    # Settings of services.
    "add.fields", "airflow.", "binary.handling.", "data.query.", "datatype.", "delete.tombstone.",
    "path.format", "provide.", "spark.", "unavailable.",
    # Classes of others that no module imports, and a placeholder.
    "CHAP_Tasks.", "Class.field", "DAG.test", "DataType.", "DebeziumEngine.", "RowGroupMetaData.",
    "SqlServerOffsetContext.", "org.apache.",
)  # fmt: skip
"""Beginnings of names that are no pointers."""


@dataclass(frozen=True)
class Module:
    """What can be named in a module.

    Attributes:
        top: what its top level defines or imports.
        names: these, and every argument and variable in it.
        imported: names to the dotted ones of what is imported.
        taken: attributes that it reads or writes of variables.
        classes: by name, their attributes and the names of their bases.
    """

    top: frozenset[str]
    names: frozenset[str]
    classes: Mapping[str, tuple[frozenset[str], tuple[str, ...]]]
    imported: Mapping[str, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()


@functools.cache
def modules() -> Mapping[str, Module]:
    """By dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = _module(ast.parse(path.read_text()))
    return found


def _module(tree: ast.Module) -> Module:
    nodes, imported = list(ast.walk(tree)), {}
    for node in nodes:
        origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            imported[alias.asname or alias.name] = origin + alias.name
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    classes = {node.name: (_attributes(node), tuple(ast.unparse(base) for base in node.bases))
               for node in defined if isinstance(node, ast.ClassDef)}  # fmt: skip
    values = (
        node for one in tree.body if not isinstance(one, ast.FunctionDef | ast.ClassDef) for node in ast.walk(one)
    )
    top = {node.name for node in defined} | imported.keys()
    top |= {node.id for node in values if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    taken = {node.attr for node in nodes if isinstance(node, ast.Attribute)
             and not (isinstance(node.value, ast.Name) and node.value.id in imported)}  # fmt: skip
    return Module(frozenset(top), frozenset(names | top), classes, imported, frozenset(taken))


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


@functools.cache
def libraries() -> frozenset[str]:
    """First parts of names that modules import from elsewhere, and Python's own."""
    imported = (name for module in modules().values() for name in module.imported.values())
    return frozenset({name.split(".")[0] for name in imported} | sys.stdlib_module_names | set(dir(builtins))) - {
        *PACKAGES
    }


def resolves(pointer: str, here: Module) -> bool:
    """Whether a dotted name leads to something of this project, of a library, or of an argument or a variable."""
    parts = pointer.split(".")
    if any(parts[0] in module.classes for module in modules().values()):
        return _has(parts[0], parts[1])
    if (at := here.imported.get(parts[0])) is not None and at.split(".")[0] not in PACKAGES:
        return True
    for end in range(len(parts), 0, -1):
        for name in endings().get(".".join(parts[:end]), ()):
            module, rest = modules().get(name, NOTHING), parts[end:]
            if not rest or (rest[0] in module.top and (len(rest) == 1 or _has(rest[0], rest[1]))):
                return True
    if parts[0] in here.names and here.imported.get(parts[0]) is None:
        return parts[1] in attributes_of_values()
    return parts[0] in libraries()


@functools.cache
def attributes_of_values() -> frozenset[str]:
    """What classes of this project define, and what modules take of any value."""
    own = (name for module in modules().values() for attributes, _ in module.classes.values() for name in attributes)
    return frozenset(own).union(*(module.taken for module in modules().values()))


NOTHING = Module(frozenset(), frozenset(), {})


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
    here = replace(NOTHING, names=frozenset({"table_schema"}))
    dead = ("plan.enforcement", "TableSchema.nothing", "rules.live.folded", "key_rows.highest", "merge.decided")
    assert [pointer for pointer in dead if resolves(pointer, here)] == []
    assert resolves("plan.table_schema.TableSchema", here)
    assert resolves("table_schema.keys", here)
    assert resolves("erasure.highest", here)


_BARE = re.compile(r"`([a-z]\w*_\w*)(?:\([^`]*\))?`")
_NO_CODE = re.compile(r'"""[\s\S]*?"""|#.*')
_OF_OTHERS = {"pg_attribute", "pg_type", "server_version_num", "to_thread"}


@functools.cache
def _words() -> frozenset[str]:
    """Words of code and of texts that are no docstrings, and names of modules."""
    words = {part for name in modules() for part in name.split(".")}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        words.update(re.findall(r"\w+", _NO_CODE.sub("", path.read_text())))
    return frozenset(words)


@pytest.mark.parametrize("package", ["airflow_gddl", "spark_jobs"])
def test_names_without_a_module_are_somewhere_in_the_code(package: str) -> None:
    found = [(path, line, name) for path in sorted((ROOT / package).rglob("*.py")) for line, text in _texts(path)
             for name in _BARE.findall(text)]  # fmt: skip
    assert len(found) > 100
    assert [one for one in found if one[2] not in _words() | _OF_OTHERS] == []
