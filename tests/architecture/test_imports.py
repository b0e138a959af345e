"""Who may import whom: import-linter's contracts, and fresh interpreters that refuse the other side."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from benchmarks.imports import ENTRY_POINTS, imported

ROOT = Path(__file__).parents[2]

IMPORT_ALL = """
import importlib, importlib.abc, pkgutil, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            raise ImportError(f"{name} was imported")
        return None

REFUSED = set(sys.argv[2].split(","))
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[3])
package = importlib.import_module(sys.argv[1])
left_out = tuple(sys.argv[4].split(",")) if sys.argv[4] else ()
found = [package.__name__, *(m.name for m in pkgutil.iter_modules(package.__path__, package.__name__ + "."))]
found = [name for name in found if not name.startswith(left_out)]
names = []
for name in found:
    module = importlib.import_module(name)
    names.append(name)
    if name != package.__name__ and hasattr(module, "__path__"):
        parts = (m.name for m in pkgutil.walk_packages(module.__path__, name + "."))
        names += [part for part in parts if not part.startswith(left_out)]
for name in names:
    importlib.import_module(name)
assert not REFUSED & {name.split(".")[0] for name in sys.modules}
print(len(names), *names)
"""


# What Airflow loads, and what of it imports Airflow.
AIRFLOW = (
    "assets",
    "configuration",
    "dags",
    "example_dags",
    "hooks",
    "links",
    "notifications",
    "operators",
    "plugins",
    "reporting",
    "sensors",
    "tools.page",
    "triggers",
    "version_compat",
)


def import_all(package: str, refused: str, *flags: str, left_out: str = "") -> subprocess.CompletedProcess[str]:
    """Imports every module of a package in a new interpreter in which some others can't be imported."""
    command = [sys.executable, *flags, "-c", IMPORT_ALL, package, refused, str(ROOT), left_out]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("package", "refused", "one", "left_out"),
    [
        ("spark_jobs", "airflow,pydantic", "spark_jobs.plan.planned_batch", ()),
        ("airflow_gddl", "pyspark,delta,py4j,spark_jobs,airflow", "airflow_gddl.cli.main", AIRFLOW),
    ],
)
def test_each_side_imports_without_the_other(package: str, refused: str, one: str, left_out: tuple[str, ...]) -> None:
    done = import_all(package, refused, left_out=",".join(f"{package}.{name}" for name in left_out))
    assert done.returncode == 0, done.stderr
    assert one in done.stdout.split()
    parts = (p.relative_to(ROOT / package) for p in (ROOT / package).rglob("*.py") if "__pycache__" not in p.parts)
    left = tuple(name.replace(".", "/") for name in left_out)
    here = {p for p in parts if not p.as_posix().startswith(left)}
    assert int(done.stdout.split()[0]) == len(here), "a module lies in a folder without __init__.py"


def test_what_airflow_loads_imports_without_spark() -> None:
    pytest.importorskip("airflow")
    code = "import importlib, sys; sys.path.insert(0, sys.argv[1])\n" + "\n".join(
        f"importlib.import_module('airflow_gddl.{name}')" for name in AIRFLOW
    )
    code += "\nprint(sorted({'pyspark', 'delta', 'spark_jobs'} & {name.split('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-W", "ignore", "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_contract_needs_the_standard_library_alone() -> None:
    # -S leaves site-packages out, so whatever isn't the standard library is not there at all.
    done = import_all("airflow_gddl.contract", "pydantic,yaml,obstore,pyspark,airflow", "-I", "-S")
    assert done.returncode == 0, done.stderr
    assert "airflow_gddl.contract.codec" in done.stdout.split()


def test_the_refusal_refuses() -> None:
    done = import_all("airflow_gddl.cli", "typer")
    assert done.returncode != 0
    assert "ImportError: typer was imported" in done.stderr


def test_the_root_package_imports_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import airflow_gddl; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - sys.stdlib_module_names == {"airflow_gddl"}


def test_no_client_of_s3_is_imported_before_a_path_on_s3_is_opened() -> None:
    """What every parse of a DAG file and every trigger would pay for."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import airflow_gddl.metadata.loading, airflow_gddl.runtime.landing.polling, airflow_gddl.runners.descriptor
from airflow_gddl.stores import open_store
found = list(open_store().list(sys.argv[1] + "/docs"))
print(len(found) > 10, "obstore" in sys.modules)
try:
    open_store({"AWS_ENDPOINT_URL": "none"}).read("s3://bucket/x")
except Exception as error:
    print(error.code, "obstore" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["True False", "S3_ENDPOINT_INVALID True"], done.stdout + done.stderr


ROOMS = {
    "airflow", "boto3", "botocore", "croniter", "databricks", "deltalake", "obstore", "openlineage", "pyarrow",
    "pydantic", "pyspark", "requests", "sqlalchemy", "sqlglot",
}  # fmt: skip
"""Packages that are imported when they are needed: clients of vendors, models, parsers, Arrow."""
MOST_MODULES = {
    "gddl --version": 17, "gddl status": 98, "gddl validate": 83, "gddl run": 105, "a job": 18, "a DAG file": 43,
    "the triggerer": 99,
}  # fmt: skip
"""Modules of this project that an entry point imports, by benchmarks/imports.py; see it before you raise one."""


@pytest.mark.parametrize("name", MOST_MODULES)
def test_modules_that_an_entry_point_imports(name: str) -> None:
    pytest.importorskip("airflow")
    found = imported(name, 1)
    names = {module.partition(".")[0] for module in found.modules}
    assert 0 < found.own_modules <= MOST_MODULES[name], found.modules
    assert names & ROOMS <= ({"airflow"} if name in ("a DAG file", "the triggerer") else set())


def test_each_entry_point_is_counted() -> None:
    assert set(MOST_MODULES) == set(ENTRY_POINTS)


def test_a_worker_imports_no_classes_of_rows() -> None:
    """They are as dear as all else that a task's DAG needs."""
    found = imported("a DAG file", 1)
    unwanted = {"contract.table_spec", "contract.spec", "contract.extensions", "metadata.folder", "hooks.aws"}
    assert {f"airflow_gddl.{name}" for name in unwanted} & set(found.modules) == set()


@pytest.mark.parametrize("module", ["loading", "folder", "settings", "sources", "rows", "files", "json_schema"])
def test_the_metadata_is_imported_without_a_client_of_a_cloud(module: str) -> None:
    code = f"""
import sys
sys.path.insert(0, sys.argv[1])
import airflow_gddl.metadata.{module}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) & ROOMS == set()
    assert "airflow_gddl" in done.stdout.split()


def test_commands_are_imported_without_arrow() -> None:
    """The extra `cli` lacks it; those that need it say so when they are called."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["pyarrow"] = None
from airflow_gddl.cli.commands import COMMANDS
print(*(name for name, command in COMMANDS.items() if command.load(name)))
"""
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert {"check", "onboard", "simulate", "plan", "catalog"} <= set(done.stdout.split()), done.stderr


def test_no_modules_import_each_other() -> None:
    """Neither when they are imported, nor later, nor for their types."""
    graph = grimp.build_graph("airflow_gddl", "spark_jobs", exclude_type_checking_imports=False, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 300
    while free := [name for name, imported in imports.items() if not imported & imports.keys()]:
        imports = {name: imported for name, imported in imports.items() if name not in free}
    assert sorted(imports) == []


def test_import_linter_keeps_every_contract() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept is not None, done.stdout
    assert int(kept[1]) == (ROOT / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")


VENDORS = "clients of vendors are imported in the rooms that open connections"
ROOMS = {
    "airflow_gddl.hooks.databricks",
    "airflow_gddl.operators.lineage",
    "airflow_gddl.runners.aws",
    "airflow_gddl.runners.databricks.jobs",
    "airflow_gddl.runners.databricks.platform",
    "airflow_gddl.runners.databricks.workspace",
    "airflow_gddl.runners.emr_serverless.platform",
    "airflow_gddl.runners.glue.platform",
    "spark_jobs.rooms.sources.capture.engine_process",
}
"""Modules that only the users of a client load. All others import it in the function that opens a connection."""


def imported_on_load(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported when the module itself is: not in functions, and not for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (one.value for one in node.args[:1] if isinstance(one, ast.Constant))
        yield from imported_on_load(node)


def clients_on_load(tree: ast.AST) -> set[str]:
    """Clients of vendors that a module imports when it is loaded: those of import-linter's contract, and providers of
    Airflow that don't come with it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (vendors,) = (contract["forbidden_modules"] for contract in contracts if contract["name"] == VENDORS)
    names = set(imported_on_load(tree))
    providers = {name for name in names if name.startswith("airflow.providers.") and ".standard." not in name}
    return {name.partition(".")[0] for name in names} & set(vendors) | providers


def test_only_rooms_import_a_vendor_s_client_on_load() -> None:
    """Who lacks the package runs every other command. import-linter sees no difference to an import in a function."""
    paths = [path for package in ("airflow_gddl", "spark_jobs") for path in (ROOT / package).rglob("*.py")]
    clients = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): clients_on_load(ast.parse(path.read_text()))
        for path in paths
    }
    assert {module: names for module, names in clients.items() if names and module not in ROOMS} == {}
    assert {module for module in ROOMS if not clients[module]} == set(), "no room any more"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import botocore", {"botocore"}),
        ("try:\n    from boto3 import Session\nexcept ImportError:\n    pass", {"boto3"}),
        ("class A:\n    import sqlalchemy.orm", {"sqlalchemy"}),
        ("boto3 = importlib.import_module('boto3.session')", {"boto3"}),
        ("from airflow.providers.amazon.aws.hooks import x", {"airflow.providers.amazon.aws.hooks"}),
        ("from airflow.providers.standard.operators.x import y", set()),
        ("def f():\n    import botocore", set()),
        ("if TYPE_CHECKING:\n    import botocore", set()),
    ],
)
def test_imports_on_load_are_seen(source: str, found: set[str]) -> None:
    assert clients_on_load(ast.parse(source)) == found
