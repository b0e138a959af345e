"""The process of one tool of `peers.py`: its order, its answer, and what is timed."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from measuring import Answer, Order, answer, peak_mib, tree_cpu_seconds
from workload import Folders

from airflow_gddl.contract.codec import from_json


@dataclass(frozen=True, kw_only=True)
class PeerOrder(Order):
    """What a tool's process is to do: the full load, then each batch; before that all of it on a tiny workload.

    Attributes:
        tool: one of `peers.PROGRAMS`.
        batches: names of change files, in the order in which they arrive.
    """

    tool: str
    batches: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PeerAnswer(Answer):
    """What it found; `seconds` and `peak_mib` are of all batches and of the whole process.

    Attributes:
        failed: the first line of what the tool said when it gave up; empty: it did not.
        failed_in: `load` or `batches`.
    """

    cpu_seconds: float = 0.0
    load_seconds: float = 0.0
    load_cpu_seconds: float = 0.0
    versions: tuple[str, ...] = ()
    failed: str = ""
    failed_in: str = ""


class Tool(Protocol):
    """One way to bring change files into a table; `Folders` say where both are."""

    versions: tuple[str, ...]

    def start(self, folders: Folders) -> None:
        """Start Spark, if the tool has one."""

    def load(self, folders: Folders) -> None:
        """The full load."""

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        """One batch, which has just landed."""

    def export(self, folders: Folders) -> None:
        """Write the final table as plain parquet."""


def run_tool(make: Callable[[PeerOrder], Tool]) -> None:
    """The main function of a tool's program."""
    order = from_json(PeerOrder, Path(sys.argv[1]).read_text(encoding="utf-8"))
    folders, warm = Folders(Path(order.root)), Folders(Path(order.warm_root))
    tool = make(order)
    found = PeerAnswer(versions=tool.versions)
    phase = "load"
    try:
        tool.start(folders)
        _timed(lambda: tool.load(warm))
        _timed(lambda: _apply_all(tool, warm, [[f.name for f in warm.change_files()]]))
        seconds, cpu = _timed(lambda: tool.load(folders))
        found = replace(found, load_seconds=seconds, load_cpu_seconds=cpu)
        phase = "batches"
        seconds, cpu = _timed(lambda: _apply_all(tool, folders, order.batches))
        found = replace(found, seconds=seconds, cpu_seconds=cpu, peak_mib=peak_mib())
        tool.export(folders)
    except Exception as error:  # noqa: BLE001 - what stops a tool is what is to be shown
        traceback.print_exc()
        said = str(getattr(error, "java_exception", None) or f"{type(error).__name__}: {error}")
        found = replace(found, failed=said.splitlines()[0], failed_in=phase)
    answer(order, found)


def _apply_all(tool: Tool, folders: Folders, batches: Sequence[Sequence[str]]) -> None:
    for names in batches:
        for name in names:
            (folders.landed / name).hardlink_to(folders.waiting / name)
        tool.apply(folders, [folders.landed / name for name in sorted(names)])


def _timed(act: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of this process and all below it."""
    started, cpu = time.perf_counter(), tree_cpu_seconds(os.getpid())
    act()
    return time.perf_counter() - started, tree_cpu_seconds(os.getpid()) - cpu
