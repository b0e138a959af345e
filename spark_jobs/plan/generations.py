"""Generations of files: one full load and the changes after it; told by times, or by the change table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

from airflow_gddl.contract.spec import Generations
from spark_jobs.plan.planned_batch import (
    GenerationFloor,
    LandedFile,
    PlannedFile,
)
from spark_jobs.plan.sequence import greater, sort_key

Certainty = Literal["certain", "inferred", "unknown"]
TimedFile = LandedFile | PlannedFile
NEAR = timedelta(minutes=1)
FAR = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Inference:
    """Generations inferred from the times of files.

    Attributes:
        openings: modification times from which files belong to generation 2, 3, ...
        older: change files older than some load file.
        sample: one of these, and the newest load file; empty when there is none.
    """

    certainty: Certainty = "certain"
    openings: tuple[str, ...] = ()
    older: int = 0
    sample: tuple[str, ...] = ()


CERTAIN = Inference()


def infer(files: Iterable[TimedFile], said: Generations = "auto") -> Inference:
    """Generations of a landing folder of which nothing was ingested.

    A change file that is older than a load file by up to a minute was written during the load. One that is older than
    every load file by a day or more belongs to the load that was there before. Anything else could be either.

    Args:
        said: `generations` of the row. `auto`: as above; `one`: all files belong to one generation; `by_time`: each
            load that comes after change files opens one.
    """
    listed = list(files)
    loads = sorted((f for f in listed if f.kind == "load"), key=lambda f: f.modified)
    newest = loads[-1].modified if loads else ""
    older = sorted((f for f in listed if f.kind == "change" and f.modified < newest), key=lambda f: f.modified)
    if not older or said == "one":
        return CERTAIN
    if said == "by_time":
        return Inference(openings=_openings(listed))
    inference = Inference(certainty="inferred", older=len(older), sample=(older[0].path, loads[-1].path))
    if _between(older[0], loads[-1]) <= NEAR:
        return inference
    if _between(older[-1], loads[0]) >= FAR:
        return replace(inference, openings=(loads[0].modified,))
    return replace(inference, certainty="unknown")


def of_times(files: Sequence[TimedFile], generation: int) -> dict[str, int]:
    """The generation of each file by the times of all; the newest one is at least `generation`."""
    openings = infer(files, "by_time").openings
    added = max(generation - 1 - len(openings), 0)
    return {file.path: generation_at(file.modified, openings) + added for file in files}


def generation_at(modified: str, openings: Sequence[str]) -> int:
    """The generation of a file that was last modified then."""
    return 1 + sum(opening <= modified for opening in openings)


def _between(earlier: TimedFile, later: TimedFile) -> timedelta:
    return datetime.fromisoformat(later.modified) - datetime.fromisoformat(earlier.modified)


def _openings(files: Sequence[TimedFile]) -> tuple[str, ...]:
    """Each load file that comes after change files opens a generation, with those that follow it at once."""
    ordered = sorted(files, key=lambda f: (f.modified, f.kind != "load"))
    runs = [(kind, next(group).modified) for kind, group in groupby(ordered, key=lambda f: f.kind)]
    return tuple(first for number, (kind, first) in enumerate(runs) if kind == "load" and number > 0)


@dataclass(frozen=True, kw_only=True)
class RecordedFile:
    """What the change table holds of one file and generation.

    Attributes:
        applied_at: when the newest batch with rows of it was planned, ISO 8601 UTC.
        batch: greatest number of a batch with rows of it.
        read_by: id of the newest batch that has read it; `position`: of one of its rows there.
        rows: how many there are.
        min_sequence, max_sequence: JSON form; null for full-load rows.
        max_commit_ts: newest commit time, ISO 8601 UTC; null for full-load rows, and where no change has one.
    """

    path: str
    generation: int
    applied_at: str
    batch: int = 0
    read_by: str = ""
    position: int = 0
    rows: int = 0
    max_sequence: str | None = None
    min_sequence: str | None = None
    max_commit_ts: str | None = None


@dataclass(frozen=True)
class Recorded:
    """What the change table knows of generations."""

    rows: Sequence[RecordedFile]

    @property
    def generation(self) -> int:
        return max((row.generation for row in self.rows), default=1)

    def newest(self) -> Mapping[str, RecordedFile]:
        """The newest generation's row of each file."""
        return {row.path: row for row in sorted(self.rows, key=lambda row: row.generation)}

    def highest_before(self, generation: int) -> str | None:
        """The greatest sequence of the generations before one; None: none."""
        highest: str | None = None
        for row in self.rows:
            highest = greater(highest, row.max_sequence) if row.generation < generation else highest
        return highest

    def floors(self, generations: int) -> tuple[GenerationFloor, ...]:
        """What was ingested before each of so many generations."""
        floors = []
        for number in range(1, generations + 1):
            times = (row.max_commit_ts for row in self.rows if row.generation < number)
            floors.append(GenerationFloor(self.highest_before(number), max(filter(None, times), default=None)))
        return tuple(floors)

    def lowest_of(self, generation: int) -> str | None:
        """The least sequence of a generation; None: none."""
        sequences = [
            row.min_sequence for row in self.rows if row.generation == generation and row.min_sequence is not None
        ]
        return min(sequences, key=sort_key, default=None)

    def opened_at(self, generation: int) -> str:
        """When the first batch with rows of a generation was planned; empty when there are none."""
        return min((row.applied_at for row in self.rows if row.generation == generation), default="")


def reconstruct(files: Sequence[TimedFile], recorded: Recorded) -> dict[str, int]:
    """The generation of each file, once the ledger is lost.

    Rows of a file that the change table holds state its generation. A file written after the batch that took it is
    newer than these rows: a load file of the current generation then opens one, as it does with a ledger. Change
    files of which there are no rows belong to the generation that was current when they were written.
    """
    known, current = recorded.newest(), recorded.generation
    stale = {f.path for f in files if f.path in known and _is_after(f.modified, known[f.path].applied_at)}
    opening = [
        f.modified for f in files if f.path in stale and f.kind == "load" and known[f.path].generation == current
    ]
    opened = {g: _opening_time(g, files, known, stale) or recorded.opened_at(g) for g in range(2, current + 1)}
    if opening:
        opened[current + 1] = min(opening)
    newest = max(opened, default=current)

    def generation(file: TimedFile) -> int:
        if file.path in known and file.path not in stale:
            return known[file.path].generation
        if file.kind == "load":
            return newest
        return max((g for g, since in opened.items() if not _is_after(since, file.modified)), default=1)

    return {file.path: generation(file) for file in files}


def _opening_time(
    generation: int, files: Sequence[TimedFile], known: Mapping[str, RecordedFile], stale: set[str]
) -> str | None:
    """When the first load file of a generation was written; null when none is left as it was."""
    loads = (f for f in files if f.kind == "load" and f.path in known and f.path not in stale)
    return min((f.modified for f in loads if known[f.path].generation == generation), default=None)


def _is_after(one: str, other: str) -> bool:
    return datetime.fromisoformat(one) > datetime.fromisoformat(other)
