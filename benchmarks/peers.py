"""Other tools on the same change files: this project, MERGE by hand, deltalake, deltalite, Spark's AUTO CDC, Hudi.

    python benchmarks/peers.py [--scale 0.02] [--work plain] [--tools NAME …] [--python hudi=PATH] [--jar hudi=PATH]

Each tool has a process of its own; they run one after the other, batch by batch, and each final table is compared with
what the files alone say. Tools that need another Spark than this project's take its Python by `--python` and their JAR
by `--jar`; benchmarks/README.md has the commands. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import peers_work
import pyarrow as pa
import pyarrow.parquet as pq
import truth
import workload
from measuring import print_figures, run_child, say
from peers_tool import PeerAnswer, PeerOrder
from peers_work import Work
from workload import Folders

from spark_jobs.spark import jars

_ROWS, _CHANGES_PER_FILE = 2_000_000, 50_000
_LEAST_ROWS, _LEAST_CHANGES = 2_000, 200
_OWN = ("many_tasks", "one_task", "one_task_vectors")
PROGRAMS: Mapping[str, str] = {
    "many_tasks": "peers_delta.py",
    "one_task": "peers_delta.py",
    "one_task_vectors": "peers_delta.py",
    "merge_plain": "peers_delta.py",
    "merge_tuned": "peers_delta.py",
    "deltalake": "peers_deltalake.py",
    "deltalite": "peers_deltalake.py",
    "auto_cdc": "peers_auto_cdc.py",
    "hudi_dms": "peers_hudi.py",
    "hudi_event_time": "peers_hudi.py",
}
"""Tools in the order in which they run, and the program of each."""
_ELSEWHERE = {"deltalite": "deltalite", "auto_cdc": "auto_cdc", "hudi_dms": "hudi", "hudi_event_time": "hudi"}
"""Tools that need a Python of their own, and its name for `--python` and `--jar`."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A tool on a workload; `status` is `equal`, `N rows wrong`, `failed: …` or `not run: …`."""

    tool: str
    work: Work
    status: str
    answer: PeerAnswer
    load_average: float

    @property
    def line(self) -> str:
        if not self.answer.seconds:
            return f"{self.work.name:6} {self.tool:16} {self.status}"
        return (
            f"{self.work.name:6} {self.tool:16} {self.answer.seconds:7.1f} s {self.answer.cpu_seconds:7.1f} CPU s "
            f"{self.work.changes / self.answer.seconds:9,.0f} changes/s {self.answer.peak_mib:7,.0f} MiB  "
            f"load {self.answer.load_seconds:6.1f} s {self.answer.load_cpu_seconds:6.1f} CPU s  {self.status}"
        )

    @property
    def document(self) -> dict[str, object]:
        found = self.answer
        figures = {} if not found.seconds else {
            "seconds": round(found.seconds, 1),
            "cpu_seconds": round(found.cpu_seconds, 1),
            "changes_per_second": round(self.work.changes / found.seconds),
            "load_seconds": round(found.load_seconds, 1),
            "load_cpu_seconds": round(found.load_cpu_seconds, 1),
            "peak_mib": round(found.peak_mib),
        }  # fmt: skip
        return {
            "work": self.work.name, "tool": self.tool, "status": self.status, **figures,
            "rows": self.work.base.rows, "changes": self.work.changes, "batches": len(self.work.batches),
            "versions": list(found.versions), "load_average": round(self.load_average, 1),
        }  # fmt: skip


@dataclass
class Peers:
    """All tools on one workload after the other.

    Attributes:
        delta: JARs of Delta.
        pythons, jars: by the names of `_ELSEWHERE`.
    """

    root: Path
    memory: str
    cores: int
    pythons: Mapping[str, str]
    jars: Mapping[str, str]
    delta: str

    def measure(self, work: Work, tools: Sequence[str]) -> list[Result]:
        source = self.root / work.name
        say(f"{work.name}: {work.base.rows:,} rows, {work.changes:,} changes in {len(work.batches)} batches")
        peers_work.write(work, Folders(source))
        found = []
        for tool in tools:
            result = self._measure(tool, work, source)
            say(result.line)
            found.append(result)
        shutil.rmtree(source)
        return found

    def _measure(self, tool: str, work: Work, source: Path) -> Result:
        load_average = os.getloadavg()[0]
        missing = self._missing(tool)
        if missing:
            return Result(
                tool=tool, work=work, status=f"not run: {missing}", answer=PeerAnswer(), load_average=load_average
            )
        folders = Folders(self.root / f"{work.name}-{tool}")
        _borrow(Folders(source), folders)
        warm = Folders(self.root / f"{work.name}-{tool}-warm")
        workload.write(replace(work.base, rows=_LEAST_ROWS, files=1, changes_per_file=_LEAST_CHANGES), warm)
        found = run_child(PROGRAMS[tool], self._order(tool, work, folders, warm), PeerAnswer, self._python(tool))
        status = _status(tool, found, folders)
        if tool in _OWN and status != "equal":
            raise SystemExit(f"{tool}: {status}; see {folders.root}")
        for kept in (folders, warm):
            shutil.rmtree(kept.root)
        return Result(tool=tool, work=work, status=status, answer=found, load_average=load_average)

    def _missing(self, tool: str) -> str:
        name = _ELSEWHERE.get(tool)
        if name is None or name in self.pythons:
            return ""
        return f"no --python {name}=PATH"

    def _python(self, tool: str) -> str:
        return self.pythons[_ELSEWHERE[tool]] if tool in _ELSEWHERE else sys.executable

    def _order(self, tool: str, work: Work, folders: Folders, warm: Folders) -> PeerOrder:
        return PeerOrder(
            phase="run",
            root=str(folders.root),
            warm_root=str(warm.root),
            answer=str(folders.root / "answer.json"),
            cores=self.cores,
            memory=self.memory,
            class_path=self.jars.get(_ELSEWHERE.get(tool, ""), self.delta),
            tasks="one" if tool.startswith("one_task") else "many",
            tool=tool,
            batches=work.batches,
        )


def _borrow(source: Folders, folders: Folders) -> None:
    """A tool's own folders with the same files, by link."""
    for mine, theirs in ((folders.landed, source.load_files()), (folders.waiting, source.change_files())):
        mine.mkdir(parents=True)
        for file in theirs:
            (mine / file.name).hardlink_to(file)


def _status(tool: str, measured: PeerAnswer, folders: Folders) -> str:
    if measured.failed:
        return f"{'not run' if measured.failed_in == 'load' else 'failed'}: {measured.failed}"
    load, changes = (
        pa.concat_tables(pq.read_table(f) for f in files) for files in (folders.load_files(), folders.change_files())
    )
    wrong = truth.count_wrong(truth.exported(folders, tool), truth.expected(load, changes))
    return f"{wrong:,} rows wrong" if wrong else "equal"


def _pairs(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if name not in _ELSEWHERE.values() or not Path(value).exists():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH with a NAME of {sorted(set(_ELSEWHERE.values()))}")
    return name, str(Path(value).absolute())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and changes; 1 is the stated work")
    parser.add_argument("--work", nargs="+", choices=("plain", "hard"), default=("plain", "hard"))
    parser.add_argument("--tools", nargs="+", choices=tuple(PROGRAMS), default=tuple(PROGRAMS))
    parser.add_argument("--python", nargs="+", type=_pairs, default=(), metavar="NAME=PATH")
    parser.add_argument("--jar", nargs="+", type=_pairs, default=(), metavar="NAME=PATH")
    parser.add_argument("--memory", default="4g", help="heap of each JVM")
    parser.add_argument("--cores", type=int, default=2, help="of each Spark")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    rows, changes = (
        max(_LEAST_ROWS, round(_ROWS * args.scale)),
        max(_LEAST_CHANGES, round(_CHANGES_PER_FILE * args.scale)),
    )
    works = [peers_work.plain(rows, changes, args.seed), peers_work.hard(rows, changes, args.seed)]
    with tempfile.TemporaryDirectory(prefix="gddl-peers-") as folder:
        root = Path(folder)
        delta = ":".join(jars.class_path(jars.delta(), root))
        peers = Peers(root, args.memory, args.cores, dict(args.python), dict(args.jar), delta)
        results = [r for work in works if work.name in args.work for r in peers.measure(work, args.tools)]
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}")
    for result in results:
        print(f"{result.line}  [{', '.join(result.answer.versions)}; load average {result.load_average:.1f}]")
    print_figures({"results": [r.document for r in results]}, "seconds", "changes_per_second")


if __name__ == "__main__":
    main()
