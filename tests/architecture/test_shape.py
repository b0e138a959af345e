"""Names that say nothing, what may not be silenced without saying why, and calls that are not safe."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("airflow_gddl", "spark_jobs", "dags", "benchmarks", "devtools")
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
SILENCED = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:)")
WITH_REASON = re.compile(r"#\s*(noqa:[ A-Z0-9,]+|type:\s*ignore\[[a-z, -]+\]|pragma: [a-z ]+)\s*[-#]?\s*\w.{8,}")


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def unexplained(path: Path) -> Iterator[str]:
    """Comments that silence a tool and don't say why."""
    if not SILENCED.search(path.read_text()):  # most files have none, and words take their time
        return
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT and SILENCED.match(token.string) and not WITH_REASON.match(token.string):
                yield f"{path}:{token.start[0]} {token.string}"


def unsafe_starts(source: str) -> Iterator[int]:
    """Lines that start this Python without `-P`: a folder of the working directory could stand in for a package."""
    for node in ast.walk(ast.parse(source)) if "sys.executable" in source else ():
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else []
        for part, after in zip_longest(parts, parts[1:]):
            if (
                isinstance(part, ast.Attribute)
                and ast.unparse(part) == "sys.executable"
                and not (isinstance(after, ast.Constant) and after.value == "-P")
            ):
                yield part.lineno


def int96_at_risk(source: str) -> Iterator[int]:
    """Lines that read parquet with INT96 timestamps as nanoseconds, which 64 bits hold from 1677 to 2262 only."""
    for node in ast.walk(ast.parse(source)) if "pq." in source else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pq.ParquetFile", "pq.read_table"):
            given = {keyword.arg for keyword in node.keywords}
            yield from () if "coerce_int96_timestamp_unit" in given else (node.lineno,)


def test_there_is_something_to_measure() -> None:
    assert {"airflow_gddl/cli/main.py", "spark_jobs/plan/planned_batch.py"} <= {
        named(path) for path in modules(*FOLDERS)
    }


def test_names_say_what_is_inside() -> None:
    assert [named(path) for path in modules(*FOLDERS) if path.stem in VAGUE or path.parent.name in VAGUE] == []


def test_what_is_silenced_says_why() -> None:
    assert [line for path in modules(*FOLDERS, "tests") for line in unexplained(path)] == []


def test_python_is_started_without_the_working_directory() -> None:
    found = {named(path): list(unsafe_starts(path.read_text())) for path in modules("airflow_gddl", "spark_jobs")}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert list(unsafe_starts("run([sys.executable, '-m', 'x'])\nrun((sys.executable, '-P', 'x'))")) == [1]


def test_parquet_is_read_with_times_of_all_years() -> None:
    found = {named(path): list(int96_at_risk(path.read_text())) for path in modules("airflow_gddl", "spark_jobs")}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert list(int96_at_risk("pq.ParquetFile(x)\npq.read_table(x, coerce_int96_timestamp_unit='us')")) == [1]


def test_a_bare_silencer_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    lines = (
        "x = 1  # noqa: S101",
        "y = 1  # noqa: S101 - the reason is written here",
        "z = 1  # type: ignore",
        "w = 1",
    )
    path.write_text("\n".join(lines))
    assert list(unexplained(path)) == [f"{path}:1 # noqa: S101", f"{path}:3 # type: ignore"]
