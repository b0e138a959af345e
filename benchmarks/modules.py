"""The house in figures: code of the core and of each room, and what a plain row imports.

    python benchmarks/modules.py [FOLDER] [--of PATTERN ...]

FOLDER is that of the repository; `--of` prints the code of these modules alone. Code is lines without docstrings,
comments and blank lines. A room can be deleted (`tests/architecture/test_removable.py`); what remains without all rooms
is the core. The last line of standard output is one JSON object, but for `--of`.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

from measuring import print_figures

PACKAGES = ("airflow_gddl", "spark_jobs")
ROOMS = (
    "airflow_gddl/runners/*/", "airflow_gddl/tools/*",
    "spark_jobs/rooms/sources/*/", "spark_jobs/rooms/features/*",
    "spark_jobs/rooms/actions/*.py", "spark_jobs/rooms/catalogs/*_catalog.py", "spark_jobs/rooms/dialects/*/",
)  # fmt: skip
"""Patterns of folders and modules that sockets find by name."""
IMPORTS = {"job": "spark_jobs.main", "row": "spark_jobs.pipeline", "dag": "airflow_gddl.dags.factory"}
"""What starts a job, what loads a row, and what makes a DAG of it."""


def code_of(text: str) -> int:
    """Lines that hold something other than docstrings and comments."""
    tree = ast.parse(text)
    holders = (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef) and n.body)
    strings = [n.body[0] for n in holders if isinstance(n.body[0], ast.Expr)]
    said = {
        line
        for node in strings
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            held.update(range(token.start[0], token.end[0] + 1))
    return len({line for line in held if text.split("\n")[line - 1].strip()} - said)


def room_of(path: Path, root: Path) -> str:
    """The room of a module; `core` where it has none."""
    for pattern in ROOMS:
        for room in root.glob(pattern.rstrip("/")):
            found = room in path.parents if room.is_dir() else room == path and not pattern.endswith("/")
            if found and room.name != "__init__.py":
                return room.relative_to(root).with_suffix("").as_posix()
    return "core"


def imported(module: str, root: Path) -> int:
    """Own modules that a fresh interpreter imports.

    Raises:
        ImportError: the package is not that of the folder.
    """
    asked = (
        f"import sys, {module}; print({module}.__file__, sum(n.partition('.')[0] in {PACKAGES!r} for n in sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    said = subprocess.run(
        [sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=True, env=environment, cwd=root
    ).stdout.split()
    if root not in Path(said[-2]).parents:
        raise ImportError(f"{module} is imported from {said[-2]}, not from {root}")
    return int(said[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", default=Path(__file__).parents[1], type=Path)
    parser.add_argument("--of", nargs="+", metavar="PATTERN", help="code of these modules alone, by paths below FOLDER")
    given = parser.parse_args()
    root = given.folder.resolve()
    if given.of:
        for pattern in given.of:
            print(f"{pattern:44} {sum(code_of(path.read_text()) for path in root.glob(pattern)):>7,}")
        return
    code: dict[str, int] = defaultdict(int)
    figures = {"modules": 0, "lines": 0}
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        text = path.read_text()
        code[room_of(path, root)] += code_of(text)
        figures["modules"] += bool(text.strip())
        figures["lines"] += text.count("\n")
    for room, count in sorted(code.items(), key=lambda one: -one[1]):
        print(f"{room:44} {count:>7,}")
    figures |= {"code": sum(code.values()), "core_code": code["core"], "rooms": len(code) - 1}
    figures |= {f"{name}_imports": imported(module, root) for name, module in IMPORTS.items()}
    print_figures(figures, "modules", "code")


if __name__ == "__main__":
    main()
