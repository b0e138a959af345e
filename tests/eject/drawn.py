"""Histories of tests/pairs that two jobs load: ours to the end, and an ejected job from somewhere in between."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_gddl.contract.names import is_kept
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.eject import Known, files_of, reasons_against
from tests.conftest import LocalPort
from tests.pairs.model import Lines, Model, line_of
from tests.pairs.options import FACTORS, Assignment, completed, row_of
from tests.pairs.playing import Game, columns_of
from tests.pairs.source import FILES, Change

STOPS = ("truncated", "moved", "misfits", "reloaded")
"""Happenings that the ejected job stops at, or does not know by its README."""
_SERVICE = ("transact_seq",)
"""What orders changes of rows without `sequence_by`."""
SPARSE, PORT = 5, "one"


def refused_by(row: TableSpec) -> tuple[str, ...]:
    """Why a row is refused: by what it says, or by its state once changes of these histories have come."""
    is_lacking = not all(is_kept(name, row) for name in row.sequence_by or _SERVICE)
    return (*reasons_against(row), *(["the replica lacks a column that orders changes"] if is_lacking else []))


@dataclass(frozen=True)
class Drawn:
    """A row, what happens to its table, and where the ejected job takes over.

    Attributes:
        seed: of the source, too.
        runs: numbers of the files of each run; `after`: number of runs that ours has made before.
        again: files that come once more under new names: before the ejection, and after it.
        letters: seed of the case of column names in files; null: as the row has it.
        refused: rows that were drawn before and are refused.
    """

    seed: int
    given: Assignment
    runs: tuple[tuple[int, ...], ...]
    after: int
    again: tuple[tuple[int, ...], tuple[int, ...]]
    letters: int | None
    refused: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Drawn:
        rng = Random(f"ejected {seed}")  # noqa: S311 - repeatable by its seed
        refused: dict[str, int] = {}
        while True:
            names = rng.sample([name for name in FACTORS if name not in STOPS], SPARSE)
            given = completed({name: rng.randrange(len(FACTORS[name])) for name in names})
            if given is None:
                continue
            reasons = refused_by(row_of(given))
            if not reasons:
                break
            refused |= {reason: refused.get(reason, 0) + 1 for reason in reasons}
        files, again = list(range(1, FILES + 1)), [1, 2, 3, 4]
        if rng.random() < 0.5:
            rng.shuffle(files)
        cuts = sorted(rng.sample(range(1, FILES), rng.choice([1, 1, 2])))
        runs = tuple(tuple(files[at:to]) for at, to in zip([0, *cuts], [*cuts, FILES], strict=True))
        after = rng.randint(1, len(runs) - 1)
        known = [file for run in runs[:after] for file in run]
        twice = (
            tuple(file for file in again if file in known and rng.random() < 0.4),
            tuple(file for file in again if rng.random() < 0.15),
        )
        return cls(seed, given, runs, after, twice, rng.randrange(99) if rng.random() < 0.5 else None, refused)


@dataclass
class Play:
    """One of two equal lakes.

    Attributes:
        lost: keys of which the ejected job has loaded changes too late, see `_note_lost`.
    """

    drawn: Drawn
    game: Game
    folder: Path
    lost: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, drawn: Drawn, root: Path) -> Play:
        return cls(drawn, Game.of(drawn.given, root, LocalPort(PORT), seed=drawn.seed), root / "job")

    def land(self, number: int, day: int = 1) -> None:
        source = self.game.source
        folder = Path(self.game.lake.layout(self.game.row).landing)
        before = set(folder.iterdir()) if folder.exists() else set()
        self.game.land(number, source.files[number - 1] if number else source.loaded, day)
        if self.drawn.letters is not None:
            rng = Random(f"{self.drawn.letters} {number} {day}")  # noqa: S311 - repeatable by its seed
            for file in set(folder.iterdir()) - before:
                rows = pq.read_table(file)
                pq.write_table(
                    rows.rename_columns([rng.choice((str.upper, str.lower, str))(n) for n in rows.column_names]), file
                )

    def begin(self) -> None:
        """Everything up to the ejection."""
        self.land(0)
        self.game.run()
        kill, repair = (FACTORS[name][self.drawn.given.get(name, 0)] for name in ("killed", "repair"))
        for number, files in enumerate(self.drawn.runs[: self.drawn.after]):
            for file in files:
                self.land(file)
            if kill and number == 0:
                self.game.run(kill)
            self.game.run()
        for file in self.drawn.again[0]:
            self.land(file, day=2)
        self.game.run()
        if FACTORS["erased"][self.drawn.given.get("erased", 0)]:
            keys = {"id": "b", "part": "1"}
            self.game.run(action="erase", key={name: keys[name] for name in self.game.row.keys})
        if repair:
            self.game.run(action=repair, **({"confirmed": True} if repair == "reload" else {}))

    def later(self) -> Iterator[Sequence[tuple[int, int]]]:
        """Files of the runs after the ejection, with the day of their names."""
        for run in self.drawn.runs[self.drawn.after :]:
            yield [(file, 1) for file in run]
        if self.drawn.again[1]:
            yield [(file, 3) for file in self.drawn.again[1]]

    def end(self) -> Lines:
        """Rows once ours has loaded the rest."""
        for files in self.later():
            for file, day in files:
                self.land(file, day)
            self.game.run()
        return self.rows()

    def ejected(self, spark: SparkSession) -> Lines | None:
        """Rows once the ejected job has loaded the rest. None: it stopped at a column whose type has changed."""
        result = self.game.run(action="eject", full_listing=True)
        assert result is not None, self.game.refused
        spec, roots = self.game.row, self.game.lake.roots
        self.folder.mkdir()
        for name, text in files_of(spec, roots, Known(**json.loads(json.dumps(result.details))), "@hourly").items():
            (self.folder / name).write_text(text)
        job = runpy.run_path(str(self.folder / "job.py"))["run"]
        loaded = {file for run in self.drawn.runs[: self.drawn.after] for file in run}
        for files in self.later():
            for file, day in files:
                self.land(file, day)
            try:
                assert job(spark) == len(files)
            except (PySparkException, Py4JJavaError):
                if not FACTORS["retyped"][self.drawn.given.get("retyped", 0)]:
                    raise
                return None
            self._note_lost(loaded, {file for file, _ in files})
        return self.rows()

    def _note_lost(self, loaded: set[int], files: set[int]) -> None:
        """Keys of which files bring changes that are older than what was loaded before, where the job's README says
        that it does not know what these would have told.
        """
        changes = dict(enumerate(self.game.source.files, start=1))
        known: dict[str, list[Change]] = {}
        for change in sorted((c for n in loaded for c in changes[n]), key=lambda c: c.seq):
            known.setdefault(change.row["id"], []).append(change)
        late: dict[str, list[Change]] = {}
        for change in sorted((c for n in files for c in changes[n]), key=lambda c: c.seq):
            late.setdefault(change.row["id"], []).append(change)
        columns = {name for part in changes.values() for change in part for name in change.row}
        for key, came in late.items():
            before = known.get(key, [])
            if before and (_revives(before, came[-1]) or _completes(before, came, columns)):
                self.lost.add(key)
        loaded |= files

    def rows(self) -> Lines:
        spec = self.game.row
        columns = [name for name in columns_of(Model(self.game.source)) if name not in (*spec.mask, *spec.derive)]
        stored = self.game.port.read(self.game.lake.layout(spec).replica)
        rows = [{name.lower(): value for name, value in row.items()} for row in stored]
        return Lines(line_of(row, columns) for row in rows if row["id"] not in self.lost)


def _revives(before: Sequence[Change], last: Change) -> bool:
    """Whether the last change that comes precedes a delete: there are no tombstones."""
    return before[-1].op == "D" and last.op != "D" and last.seq < before[-1].seq


def _completes(before: Sequence[Change], came: Sequence[Change], columns: set[str]) -> bool:
    """Whether a change that comes precedes updates whose files lack a column, and follows what has told its value."""
    told = next((c.seq for c in reversed(before) if c.op != "U" or columns <= c.row.keys()), 0)
    return any(told < change.seq < before[-1].seq and change not in before for change in came)
