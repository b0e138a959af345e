"""The house in figures: modules of the two packages, lines, share of imports, and file names that several have.

    python benchmarks/modules.py [FOLDER]

FOLDER is that of the repository. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path
from statistics import median

from measuring import print_figures

PACKAGES = ("airflow_gddl", "spark_jobs")


def figures(root: Path) -> dict[str, float]:
    """`modules` have lines; `imports` is their share of the lines that are neither blank nor comments alone."""
    texts = {path: path.read_text() for package in PACKAGES for path in (root / package).rglob("*.py")}
    texts = {path: text for path, text in texts.items() if text.strip()}
    lines = [text.count("\n") for text in texts.values()]
    code = sum(
        bool(line.strip()) and not line.strip().startswith("#") for t in texts.values() for line in t.split("\n")
    )
    names = Counter(path.name for path in texts if path.name != "__init__.py")
    shared = [count for count in names.values() if count > 1]
    return {
        "modules": len(texts), "lines": sum(lines), "median": median(lines), "longest": max(lines),
        "imports": round(sum(map(_imports, texts.values())) / code, 3), "shared_names": len(shared),
        "modules_of_shared_names": sum(shared),
    }  # fmt: skip


def _imports(text: str) -> int:
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", default=Path(__file__).parents[1], type=Path)
    found = figures(parser.parse_args().folder)
    for name, value in found.items():
        print(f"{name:24} {value:>10,}")
    print_figures(found, "modules", "lines")


if __name__ == "__main__":
    main()
