"""How long Airflow takes to parse, serialise and store many tables: this package, a loop of DAGs, dag-factory.

See README.md beside this file. The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from airflow_fleet import Fleet, write_empty
from airflow_parsing import Parsed, prepare, process
from measuring import WrongResultError, print_figures

_TABLES, _LOADS, _RUNS, _ENOUGH_SECONDS = 10_000, 7, 3, 60.0
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Side:
    """Attributes: `seconds` beyond those of an empty folder."""

    parsed: Parsed
    seconds: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="1: 10,000 tables")
    options.add_argument(
        "--view", choices=("table", "group", "mapped", "pack"), default="pack", help="what Airflow shows"
    )
    options.add_argument("--only-ours", action="store_true", help="leave the other sides out")
    options.add_argument("--pack", type=int, metavar="TABLES", help="instead: one source of so many small tables")
    asked = options.parse_args()
    if asked.pack:
        fleet = Fleet(asked.pack, asked.view, sources=1, medium=None)
    else:
        fleet = Fleet(max(20, round(_TABLES * asked.scale)), asked.view)
    with tempfile.TemporaryDirectory(prefix="gddl-parse-") as folder:
        figures = measure(fleet, Path(folder), only_ours=asked.only_ours)
    print_figures(figures, "dags", "metadata_us_per_row", "peak_mib")


def measure(fleet: Fleet, root: Path, *, only_ours: bool) -> Mapping[str, float | None]:
    empty = quickest(root / "empty", write_empty(root / "empty"))
    tell("an empty folder", empty, 0.0)
    ours_dags = fleet.write_ours(root / "ours")
    ours = Side(parsed := quickest(root / "ours", ours_dags), parsed.seconds - empty.seconds)
    tell("this package", ours.parsed, ours.seconds)
    read = check_tables(fleet, root / "ours", ours_dags, ours.parsed)
    parses = parse_cpu(root, ours_dags / "gddl.py", ours.parsed)
    extra = worker_load_extra_ms(root, ours_dags / "gddl.py", ours.parsed)
    ratios: dict[str, float | None] = {"loop": None, "factory": None, "by_hand": None}
    if not only_ours:
        by_hand = fleet.write_by_hand(root / "by_hand", root / "ours" / "metadata", read["dags"])
        ratios["by_hand"] = round(cpu_ratio(root, ours_dags, by_hand, empty.cpu_seconds), 3)
        for name, write in (("loop", fleet.write_loop), ("factory", fleet.write_factory)):
            other = quickest(root / name, write(root / name))
            check_loop(fleet, other)
            tell(name, other, other.seconds - empty.seconds)
            ratios[name] = round(ours.seconds / (other.seconds - empty.seconds), 3)
    return {
        "tables": fleet.tables,
        "dags": len(ours.parsed.dags),
        "seconds": round(ours.seconds, 2),
        "cpu_seconds": round(ours.parsed.cpu_seconds - empty.cpu_seconds, 2),
        **{f"{what}_parse_cpu_seconds": round(seconds, 2) for what, seconds in parses.items()},
        "ratio_to_dag_per_table": ratios["loop"],
        "ratio_to_dag_factory": ratios["factory"],
        "cpu_ratio_to_same_dags": ratios["by_hand"],
        "worker_load_extra_ms": round(extra, 1),
        "metadata_us_per_row": round(read["milliseconds"] * 1000 / fleet.tables, 2),
        "peak_mib": round(ours.parsed.peak_mib, 1),
    }


def quickest(root: Path, dags: Path) -> Parsed:
    """The quickest of up to three runs, each in a home of its own: what else a machine does only adds."""
    found: list[Parsed] = []
    while len(found) < _RUNS and sum(parsed.seconds for parsed in found) < _ENOUGH_SECONDS:
        found.append(process(root / f"{len(found)}", dags))
    return min(found, key=lambda parsed: parsed.seconds)


def cpu_ratio(root: Path, ours: Path, other: Path, empty: float) -> float:
    """CPU seconds beyond an empty folder by those of another folder with the same DAGs: in turn, the least of each."""
    spent: dict[Path, list[float]] = {ours: [], other: []}
    dags: set[frozenset[str]] = set()
    for number, folder in product(range(_RUNS), spent):
        parsed = process(root / f"{number}-{folder.parent.name}", folder)
        spent[folder].append(parsed.cpu_seconds - empty)
        dags.add(parsed.dags)
    sys.stdout.write(f"CPU seconds in turn: {[[round(one, 2) for one in found] for found in spent.values()]}\n")
    if len(dags) > 1:
        raise WrongResultError("the loop has other DAGs")
    return min(spent[ours]) / min(spent[other])


def check_tables(fleet: Fleet, root: Path, dags: Path, parsed: Parsed) -> dict[str, Any]:
    """What a read of the metadata costs, after making sure that every table has its place in a stored DAG."""
    read = child(prepare(root / "read", dags), "read", str(root / "metadata"))
    if sorted(read["tables"]) != sorted(fleet.names):
        raise WrongResultError("a table is in no pipeline, or in two")
    if {dag["dag_id"] for dag in read["dags"]} != parsed.dags:
        raise WrongResultError(f"{len(read['dags'])} pipelines, {len(parsed.dags)} stored DAGs")
    return read


def check_loop(fleet: Fleet, parsed: Parsed) -> None:
    if parsed.dags != {f"table_{n}" for n in range(fleet.tables)}:
        raise WrongResultError(f"{len(parsed.dags)} stored DAGs instead of {fleet.tables}")


def parse_cpu(root: Path, file: Path, parsed: Parsed) -> dict[str, float]:
    """CPU of parses of the DAG file, in processes of their own: the first, a later one, and one after a changed row."""
    environ, rows = prepare(root / "parse", file.parent), root / "ours" / "metadata" / "tables" / "s0.yaml"
    cold = parsed_cpu(environ, file, parsed)
    unchanged = statistics.median(parsed_cpu(environ, file, parsed) for _ in range(_RUNS))
    changed = []
    for number in range(_RUNS):
        rows.write_text(rows.read_text().replace("t0, keys: [id", f"t0, keys: [id{number}, id", 1))
        os.utime(rows, (time.time() - 60, time.time() - 60 + number))  # a file of this moment would wait
        changed.append(parsed_cpu(environ, file, parsed))
    found = {"cold": cold, "unchanged": unchanged, "changed": statistics.median(changed)}
    sys.stdout.write(f"CPU seconds of a parse: {', '.join(f'{what} {cpu:.2f}' for what, cpu in found.items())}\n")
    return found


def parsed_cpu(environ: Mapping[str, str], file: Path, parsed: Parsed) -> float:
    answer = child(environ, "parse", str(file))
    if set(answer["dags"]) != parsed.dags or answer["errors"]:
        raise WrongResultError(f"{len(answer['dags'])} DAGs, {len(parsed.dags)} stored; {answer['errors']}")
    return float(answer["cpu_seconds"])


def worker_load_extra_ms(root: Path, file: Path, parsed: Parsed) -> float:
    """Median load of a pack's and of a table's DAG, the slower one, beyond that of an empty file."""
    environ = prepare(root / "load", file.parent)
    first = {dag_id.partition(".")[0]: dag_id for dag_id in sorted(parsed.dags, reverse=True)}
    loads = {dag_id: load_ms(environ, file, dag_id) for dag_id in first.values()}
    nothing = load_ms(environ, root / "empty" / "dags" / "empty.py", "empty")
    sys.stdout.write(
        f"a worker loads an empty file in {nothing:.1f} ms; {', '.join(f'{v:.1f} ms' for v in loads.values())}\n"
    )
    return max(loads.values()) - nothing


def load_ms(environ: Mapping[str, str], file: Path, dag_id: str) -> float:
    found = [child(environ, "load", str(file), dag_id) for _ in range(_LOADS)]
    if any(answer["dags"] != [dag_id] for answer in found):
        raise WrongResultError(f"a worker of {dag_id} does not load it alone: {found[0]['dags'][:5]}")
    return statistics.median(answer["milliseconds"] for answer in found)


def child(environ: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """
    Raises:
        WrongResultError: it failed, with the end of what it wrote.
    """
    command = [sys.executable, str(HERE / "airflow_worker_load.py"), *arguments]
    done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongResultError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def tell(what: str, parsed: Parsed, beyond: float) -> None:
    count = f"{len(parsed.dags)} DAGs in {parsed.seconds:.1f} s ({beyond:.1f} s beyond an empty folder)"
    sys.stdout.write(f"{what}: {count}, {parsed.peak_mib:.0f} MiB at most\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
