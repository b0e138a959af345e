"""`docs/security.md`: each promise has tests that exist; and those promises that no other test keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.table_spec import TableSpec

ROOT = Path(__file__).parents[2]
PROMISES = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TESTS = (Path(__file__).parent / "security_promises.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TESTS.splitlines() if line.startswith("| ")]
NAMED = re.compile(r"`([a-z0-9_]+/[a-z0-9_]+\.py)::(test_\w+)`")


def functions(path: Path) -> dict[str, str]:
    """Functions of a file to their marks, and those of the file."""
    nodes = ast.parse(path.read_text("utf-8")).body if path.is_file() else []
    of_file = " ".join(
        ast.unparse(node) for node in nodes if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    )
    return {
        node.name: " ".join([of_file, *map(marks_of, node.decorator_list)])
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


def marks_of(decorator: ast.expr) -> str:
    """Empty for parameters: some of them may be of another lane."""
    text = ast.unparse(decorator)
    return "" if text.startswith("pytest.mark.parametrize") else text


def test_every_promise_names_tests_that_exist() -> None:
    rows = ROWS[1:]
    assert len(rows) > 40
    for section, promise, tests in rows:
        named = NAMED.findall(tests)
        assert len(named) == max(1, tests.count("::")), (section, promise)
        for file, function in named:
            assert function in functions(ROOT / "tests" / file), f"{promise}: {file}::{function}"


def test_every_promise_is_tested_each_time() -> None:
    """No test of a promise is expected to fail or left out, and not all of them are of the deep lane."""
    for section, promise, tests in ROWS[1:]:
        marks = [functions(ROOT / "tests" / file)[function] for file, function in NAMED.findall(tests)]
        assert not [text for text in marks if re.search(r"xfail|mark\.skip\b", text)], (section, promise)
        assert not all(re.search(r"mark\.deep\b", text) for text in marks), (section, promise)


def test_every_section_has_promises_with_tests() -> None:
    sections = re.findall(r"^## (.+)$", PROMISES, re.MULTILINE)
    assert sorted({row[0] for row in ROWS[1:]}) == sorted(sections)


_REACHING = re.compile(r"url|uri|host|port|endpoint|server|address|proxy|command|program|script|path|module|class|jar")


def names_of(kind: Any, seen: frozenset[Any] = frozenset()) -> set[str]:
    """Names of a row's fields and of those inside them."""
    if not is_dataclass(kind) or kind in seen:
        return set()
    found = {field.name for field in fields(kind)}
    for hint in get_type_hints(kind).values():
        for inner in (hint, *get_args(hint)):
            found |= names_of(inner, seen | {kind})
    return found


def test_no_field_of_a_row_names_a_host_or_a_program() -> None:
    """Rows choose among what the deployment names: connections, catalogs, tiers, sources."""
    names = names_of(TableSpec)
    for dialect in DIALECTS.built_in.values():
        names |= names_of(DIALECTS.load(dialect.options))
    assert {"table", "catalog", "verify_connection", "csv_columns", "new_column"} <= names
    # `path_format` is a form of time below the table's own landing folder.
    parts = {part for name in names - {"path_format"} for part in name.split("_")}
    assert sorted(part for part in parts if _REACHING.fullmatch(part)) == []


@pytest.mark.parametrize(
    "banned", ["import pickle", "import cloudpickle", "import marshal", "import shelve", "eval('1')"]
)
def test_pickle_is_banned_by_lint(banned: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", "spark_jobs/x.py", "-"]
    found = subprocess.run(command, input=f"{banned}\n", capture_output=True, text=True, cwd=ROOT, check=False)
    assert re.search(r"TID251|S301|S302|S307|S403", found.stdout), found.stdout + found.stderr


def test_the_page_answers_reading_requests_only() -> None:
    """Decorators and calls that add routes, of all modules of the page; what is posted is a key to look for."""
    methods, posted = set(), []
    for path in (ROOT / "airflow_gddl" / "tools" / "page").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                target = node.func.value
                if isinstance(target, ast.Name) and target.id == "app":
                    methods.add(node.func.attr)
                    if node.func.attr == "post":
                        posted += [ast.literal_eval(given) for given in node.args]
    assert methods == {"get", "post", "middleware", "mount"}
    assert posted == ["/api/v1/table/explain"]


def test_packages_are_installed_by_hash() -> None:
    makefile, dockerfile = ((ROOT / name).read_text("utf-8") for name in ("Makefile", "devtools/Dockerfile"))
    assert "--require-hashes --requirement devtools/requirements/$*.txt" in makefile
    installs = [line for line in dockerfile.replace("\\\n", " ").splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        for command in line.split("&&"):
            if "pip install" in command:
                assert "--require-hashes" in command or "--no-deps" in command, command


def test_images_can_be_named_by_content() -> None:
    compose = (ROOT / "docker-compose.yaml").read_text("utf-8")
    dockerfile = (ROOT / "devtools" / "Dockerfile").read_text("utf-8")
    for name in ("AIRFLOW_IMAGE", "POSTGRES_IMAGE", "S3_IMAGE"):
        assert f"`{name}`" in PROMISES
        assert re.search(rf"\$\{{{name}\b", compose + dockerfile), name
