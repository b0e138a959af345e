"""Measures what docs/comparison.md shows: each part by its benchmark, with commit, machine and date.

    python benchmarks/comparison.py [PART …] [--python hudi=PATH …] [--jar hudi=PATH …]

A part's figures go to docs/figures/PART.json, and from all of these files the tables of the page are written again,
between its markers. `--try` measures at the smallest size and writes nothing; `--page` measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "comparison.md"
FIGURES = ROOT / "docs" / "figures"
_CODE = ("airflow_gddl", "spark_jobs", "benchmarks", "devtools")
"""What is measured, and what measures it."""
_PATH = re.compile(r"(?:/[\w.+-]+){2,}")
"""A path of the machine, as errors of tools have them."""
Record = Mapping[str, Any]
"""A file: `command`, `commit` (null: not on record), `date`, `machine`, `load_average`, `notes` and `figures`."""


@dataclass(frozen=True)
class Part:
    """`small`: arguments that try the command, instead of `arguments`."""

    program: str
    arguments: str
    small: str


_PEERS_SMALL = "--scale 0.001 --tools many_tasks one_task deltalake"
PARTS: Mapping[str, Part] = {
    "peers-plain": Part("peers.py", "--work plain", f"{_PEERS_SMALL} --work plain"),
    "peers-hard": Part("peers.py", "--scale 0.01 --work hard", f"{_PEERS_SMALL} --work hard"),
    "large-merge": Part("large_merge.py", "", "--scale 0.001"),
    "large-merge-one": Part("large_merge.py", "--tasks one", "--scale 0.001 --tasks one"),
    "small-tables": Part("small_tables.py", "--tables 500", "--tables 20 --idle 0 --spark-tables 2"),
    "small-tables-many": Part("small_tables.py", "--tables 10000 --no-spark", "--tables 20 --idle 0 --no-spark"),
    "commit-merge": Part("commit_merge.py", "", "--tables 2 --rows 10000 --changes 400"),
    "initial-load": Part("initial_load.py", "", "--rows 100000 --chunk-rows 50000"),
    "airflow-parse": Part("airflow_parse.py", "", "--scale 0.001"),
    "airflow-run": Part("airflow_run.py", "", "--scale 0.01"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--python", nargs="+", default=(), metavar="NAME=PATH", help="see peers.py")
    parser.add_argument("--jar", nargs="+", default=(), metavar="NAME=PATH", help="see peers.py")
    parser.add_argument("--try", action="store_true", dest="small", help="at the smallest size; write nothing")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page of the files")
    args = parser.parse_args()
    if unknown := [name for name in args.parts if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    peers = [word for name in ("python", "jar") for word in (f"--{name}", *getattr(args, name)) if getattr(args, name)]
    for name in () if args.page else args.parts or PARTS:
        record = measure(name, peers, small=args.small)
        if args.small:
            print(f"{name}: {json.dumps(record)}")
            continue
        FIGURES.mkdir(exist_ok=True)
        (FIGURES / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_page()
    if args.page:
        write_page()


def measure(name: str, peers: Sequence[str], *, small: bool) -> Record:
    """The record of a part, measured now.

    Raises:
        SystemExit: the benchmark failed, or what it measures is no commit.
    """
    part = PARTS[name]
    arguments = shlex.split(part.small if small else part.arguments)
    extra = peers if part.program == "peers.py" else ()
    commit, load = None if small else commit_of_code(), os.getloadavg()[0]
    print(f"{name}: {part.program} {shlex.join(arguments)}; load average {load:.1f}", file=sys.stderr, flush=True)
    command = [sys.executable, str(ROOT / "benchmarks" / part.program), *arguments, *extra]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {part.program} ended with status {done.returncode}; nothing was written for it")
    return {
        "command": f"python benchmarks/{part.program} {shlex.join(arguments)}".rstrip(),
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "load_average": round(load, 1),
        "notes": [],
        "figures": json.loads(_PATH.sub("…", done.stdout.splitlines()[-1])),
    }


def commit_of_code() -> str:
    """
    Raises:
        SystemExit: code differs from the commit, or another copy of the package would be measured.
    """
    changed = git("status", "--porcelain", "--", *_CODE)
    if changed:
        raise SystemExit(f"commit first, so that the figures have a commit; changed:\n{changed}")
    code = "import airflow_gddl, spark_jobs; print(airflow_gddl.__file__, spark_jobs.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    if elsewhere := [file for file in done.stdout.split() if not Path(file).is_relative_to(ROOT)]:
        raise SystemExit(
            f"another copy would be measured: {elsewhere[0]}; set PYTHONPATH={ROOT}, or install it with -e"
        )
    return git("rev-parse", "HEAD")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    """Processor, memory and versions of this machine; no name of it."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    processor = models[0] if models else platform.machine()
    kernel = platform.release().partition("-")[0]
    return f"{os.cpu_count()} cores ({processor}), {gib:.0f} GiB, Linux {kernel}, Python {platform.python_version()}"


def records() -> dict[str, Record]:
    """The files of figures, by part."""
    return {name: json.loads(path.read_bytes()) for name in PARTS if (path := FIGURES / f"{name}.json").exists()}


def stamp(record: Record) -> str:
    """When, of what and where a record was measured."""
    if record["commit"] is None:
        return f"**older figures**, on this page since {record['date']}; commit not recorded; {record['machine']}"
    load = f", load average {record['load_average']} before" if record["load_average"] >= 1 else ""
    return f"{record['date']}, commit `{record['commit'][:8]}`, {record['machine']}{load}"


def write_page() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), records()), encoding="utf-8")


def page(text: str, found: Mapping[str, Record]) -> str:
    """The page with the tables of these records between its markers."""
    for name, block in BLOCKS.items():
        before, begin, rest = text.partition(f"<!-- figures: {name} -->\n")
        _, end, after = rest.partition("<!-- end of figures -->\n")
        if not begin or not end:
            raise SystemExit(f"{PAGE} has no markers of {name}")
        lines = block(found)
        text = f"{before}{begin}" + "".join(f"{line}\n" for line in lines) + f"{end}{after}"
    return text


def measured(found: Mapping[str, Record], names: Iterable[str]) -> list[str]:
    """For each of these parts its command, what it worked on, when and where, and its notes."""
    lines = [""]
    for name in names:
        if name in found:
            record = found[name]
            lines.append(" ".join([f"- `{record['command']}`: {_work(record)}{stamp(record)}.", *record["notes"]]))
    return lines


def _work(record: Record) -> str:
    results = record["figures"].get("results")
    if not results:
        return ""
    one = results[0]
    return f"{one['rows']:,} rows, {one['changes']:,} changes in {one['batches']} batches; "


_TOOLS = {
    "many_tasks": "this project, `tasks: many`",
    "one_task": "this project, `tasks: one`",
    "one_task_vectors": "this project, `tasks: one`, with deletion vectors",
    "deltalake": "`DeltaTable.merge` by hand",
    "deltalite": "the upsert of deltalite, without sequences",
    "merge_tuned": "one tuned MERGE a batch",
    "hudi_dms": "Hudi's data source, `AWSDmsAvroPayload`",
    "hudi_event_time": "the same, `EVENT_TIME_ORDERING`",
    "merge_plain": "one plain MERGE a file",
    "auto_cdc": "AUTO CDC of open Spark",
}


def _peers(found: Mapping[str, Record]) -> list[str]:
    plain, hard = (_by_tool(found.get(name)) for name in ("peers-plain", "peers-hard"))
    lines = [
        "| tool | `plain`: CPU s | seconds | changes/s | full load, CPU s | result | `hard`: result |",
        "|---|---|---|---|---|---|---|",
    ]
    for tool, label in _TOOLS.items():
        one, other = plain.get(tool, {}), hard.get(tool, {})
        if one or other:
            versions = f" ({', '.join(one['versions'])})" if one.get("versions") else ""
            cells = [f"{one[name]:,}" if name in one else "" for name in _OF_TOOL]
            lines.append(f"| {' | '.join([label + versions, *cells, _status(one), _status(other)])} |")
    return [*lines, *measured(found, ("peers-plain", "peers-hard"))]


_OF_TOOL = ("cpu_seconds", "seconds", "changes_per_second", "load_cpu_seconds")


def _by_tool(record: Record | None) -> dict[str, Record]:
    return {} if record is None else {one["tool"]: one for one in record["figures"]["results"]}


def _status(one: Record) -> str:
    return str(one.get("status", "not measured")).replace("|", "\\|").replace("\n", " ")[:200]


def _by_hand(found: Mapping[str, Record]) -> list[str]:
    lines = ["| measured | here | by hand | |", "|---|---|---|---|"]
    for name in ("large-merge", "large-merge-one"):
        if name in found:
            one = found[name]["figures"]
            tasks = "one" if name.endswith("-one") else "many"
            work = f"{one['changes']:,} changes into {one['rows']:,} rows, `tasks: {tasks}`"
            here, other = (
                f"{one[key]:,.0f} changes/s" for key in ("changes_per_second", "baseline_changes_per_second")
            )
            lines.append(f"| {work} | {here} | {other} | {one['ratio']:.1f} times |")
    small = (name for name in ("small-tables", "small-tables-many") if name in found)
    lines += [_small_tables(found[name]["figures"]) for name in small]
    if "initial-load" in found:
        one = found["initial-load"]["figures"]
        meanwhile = f"{one['kills']} kills and {one['updates']:,} updates"
        work = f"initial load of {one['rows']:,} rows of PostgreSQL, with {meanwhile}"
        lines.append(f"| {work} | {one['rows_per_second']:,} rows/s | not measured | |")
    parts = ("large-merge", "large-merge-one", "small-tables", "small-tables-many", "initial-load")
    return [*lines, *measured(found, parts)]


def _small_tables(one: Record) -> str:
    rounds = f"{one['changes']} changes each in each of {one['rounds']} rounds"
    work = f"{one['tables']:,} tables of {one['rows']:,} rows, {rounds}"
    ratio, here = one["ratio_to_spark_merge"], one["tables_per_second"]
    by_hand = "not run" if ratio is None else f"{here / ratio:.2f} tables/s"
    times = "" if ratio is None else f"{ratio:.1f} times"
    if one["idle_tables"]:
        work += f"; a job of {one['idle_tables']:,} in which nothing is new takes {one['idle_seconds']:.1f} s"
    return f"| {work} | {here:.1f} tables/s | {by_hand} | {times} |"


def _commit(found: Mapping[str, Record]) -> list[str]:
    lines = ["| measured | `commit: direct` | `commit: merge` | |", "|---|---|---|---|"]
    if "commit-merge" in found:
        one = found["commit-merge"]["figures"]
        work = f"{one['tables']:,} tables of {one['table_rows']:,} rows, {one['table_changes']} changes each"
        cells = [f"{one[f'table_{name}_cpu_seconds']:.2f} CPU s a table" for name in ("direct", "merge")]
        work += ", `tasks: one`; their job's start counts"
        lines.append(f"| {work} | {' | '.join(cells)} | {one['table_ratio']} times |")
        work = f"{one['changes']:,} changes into {one['rows']:,} rows, `tasks: many`"
        cells = [f"{one[f'{name}_seconds']:.1f} s" for name in ("direct", "merge")]
        lines.append(f"| {work}, in a warm Spark | {' | '.join(cells)} | {one['ratio']} times |")
    return [*lines, *measured(found, ("commit-merge",))]


def _airflow(found: Mapping[str, Record]) -> list[str]:
    lines = ["| measured | here | a plain loop, a DAG for each table |", "|---|---|---|"]
    if "airflow-parse" in found:
        one = found["airflow-parse"]["figures"]
        tables = f"{one['tables']:,} tables, a tenth of them with a DAG of their own"
        work = f"{tables}: parsed, serialised and stored, beyond an empty folder"
        loop = one["ratio_to_dag_per_table"]
        other = "not run" if loop is None else f"{one['seconds'] / loop:.1f} s"
        lines.append(f"| {work} | {one['seconds']:.1f} s | {other} |")
        lines += [f"| {label} | {one[name]:{form}} | |" for name, label, form in _OF_PARSE if name in one]
    if "airflow-run" in found:
        one = found["airflow-run"]["figures"]
        lines.append(f"| a task that a worker starts, CPU seconds | | {one['task_cpu_seconds']:.1f} s |")
    return [*lines, *measured(found, ("airflow-parse", "airflow-run"))]


_OF_PARSE = (
    ("cpu_seconds", "the same, in CPU seconds of all processes", ".1f"),
    ("cpu_ratio_to_same_dags", "the same, by those of the same DAGs in a plain loop", ".2f"),
    ("cold_parse_cpu_seconds", "of that, the DAG file itself: CPU seconds of its first parse", ".1f"),
    ("unchanged_parse_cpu_seconds", "CPU seconds of a later parse", ".2f"),
    ("changed_parse_cpu_seconds", "CPU seconds of a parse once a row has changed", ".2f"),
    ("worker_load_extra_ms", "milliseconds in which a task's process loads its DAG, beyond an empty file", ".0f"),
)
BLOCKS: Mapping[str, Callable[[Mapping[str, Record]], list[str]]] = {
    "peers": _peers,
    "by-hand": _by_hand,
    "commit": _commit,
    "airflow": _airflow,
}
"""What stands between markers of the page."""


if __name__ == "__main__":
    main()
