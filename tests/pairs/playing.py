"""Plays an assignment: files land and are loaded, a run may end after a step, a user repairs and erases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.runtime import Observer, Step
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.pairs.model import Lines, Model, line_of
from tests.pairs.options import Assignment, row_of, value
from tests.pairs.source import FILES, Change, Source, file_name, fits, landed


class KilledError(BaseException):
    """The run ends here, as by a signal: nothing handles it."""


@dataclass
class Game:
    """Attributes:
    refused: codes of repairs that were.
    """

    lake: Lake
    port: LocalPort
    given: Assignment
    source: Source
    results: list[JobResult]
    refused: list[str]

    @classmethod
    def of(cls, given: Assignment, root: Path, port: LocalPort, seed: int) -> Game:
        return cls(Lake(root), port, given, lived(given, seed), [], [])

    @property
    def row(self) -> TableSpec:
        """As the catalog gives it to jobs."""
        row = self.source.row
        if not row.shards:
            return row
        landings = {shard: str(self.lake.root / f"landing-{shard}") for shard in row.shards}
        return replace(row, keys=("_source", *row.keys), shard_landings=landings)

    def folders(self) -> list[Path]:
        if self.row.shards:
            return [Path(root) / "s" / "t" for root in self.row.shard_landings.values()]
        return [Path(self.lake.layout(self.row).landing)]

    def land(self, number: int, changes: list[Change], day: int = 1, load: str = "") -> None:
        misfit = bool(value(self.given, "misfits")) and number == 2
        for folder in self.folders():
            landed(self.source, folder, load or file_name(self.source, number, day), changes, misfit=misfit)

    def run(self, kill: str = "", **options: Any) -> JobResult | None:
        """The result; null where the run was killed, or a repair refused."""
        job = self.port.tiered(self.lake.job([self.row], options_of(**options)))
        runtime = replace(self.port.runtime, observe=_killing(kill)) if kill else self.port.runtime
        try:
            (outcome,) = run_job(job, runtime, lambda _: None)
        except KilledError:
            return None
        result = outcome.result
        if result.error is not None and options:
            self.refused.append(result.error.code)
            return None
        assert result.error is None, (result.error, options)  # a run of files never fails here
        self.results.append(result)
        return result


def lived(given: Assignment, seed: int = 1) -> Source:
    """The source of an assignment at the end, but for what depends on how files arrive."""
    names = {"truncated": "truncates", "moved": "moves", "widened": "widens", "narrowed": "narrows"}
    names |= {name: name for name in ("tied", "retyped", "images")}
    happens = {field: value(given, name) for name, field in names.items()}
    source = Source(row_of(given), Random(seed), **happens).lived()  # noqa: S311 - no secret
    if source.row.force_update is not None:
        source.force()
    return source


def _killing(step: str) -> Observer:
    def observe(reported: Step) -> None:
        if reported.step == step:
            raise KilledError(step)

    return observe


def play(given: Assignment, root: Path, port: LocalPort, seed: int = 1) -> Game:
    """Everything that happens to a table."""
    game = Game.of(given, root, port, seed)
    if value(given, "tied"):  # the files of the load arrive the other way round
        game.land(0, game.source.loaded[-1:], load="LOAD00000002.parquet")
        game.run()
    game.land(0, game.source.loaded[: 4 + value(given, "tied")])
    game.run()
    kill = value(given, "killed")
    for number, files in enumerate(arrivals(given, seed)):
        for file in files:
            game.land(file, game.source.files[file - 1])
        if kill and number == 0:
            game.run(kill)
        game.run()
    if value(given, "again"):
        for file in (2, 3, 4):
            game.land(file, game.source.files[file - 1], day=2)
        game.run()
    for _ in range(value(given, "truncated") if game.row.truncate == "hold" else 0):
        game.run(action="release", held="truncate")
        game.run()
    if game.source.late is not None:
        game.land(FILES + 1, [game.source.late], day=3)
        game.run()
    _end(game)
    return game


def arrivals(given: Assignment, seed: int = 1) -> list[list[int]]:
    """Numbers of files by run."""
    numbers, arrival = list(range(1, FILES + 1)), value(given, "arrival")
    if arrival == "at once":
        return [numbers]
    if arrival == "shuffled":
        Random(seed).shuffle(numbers)  # noqa: S311 - no secret
        return [numbers[:2], numbers[2:4], numbers[4:]]
    return [[number] for number in numbers]


def _end(game: Game) -> None:
    given = game.given
    if value(given, "reloaded"):
        rows = [Change(seq=0, op="R", row=row) for row in game.source.rows.values()]
        game.land(0, rows)
        result = game.run()
        if result is not None and any(warning.code == "SWEEP_HELD" for warning in result.warnings):
            game.run(action="release", held="sweep")
    if value(given, "erased"):
        game.run(action="erase", key=_erased_key(game.row))
    repair = value(given, "repair")
    if repair:
        game.run(action=repair, **({"confirmed": True} if repair == "reload" else {}))


def _erased_key(row: TableSpec) -> dict[str, str]:
    known = {"_source": "a", "id": "b", "part": "1"}
    return {name: known[name] for name in row.keys}


def expected(given: Assignment, *, reloads: bool = False, seed: int = 1) -> Model:
    """What the tables must hold.

    Args:
        reloads: the repair has read all files again, in the order of their names.
    """
    source = lived(given, seed)
    source.tied_first = source.row.tie_break == "last_arrival" and not reloads
    model = Model.of(source)
    if value(given, "reloaded"):
        model.reloaded()
        model.is_begun_wide = reloads and any(not fits(row["q"]) for row in source.rows.values())
    return model


def expected_rows(given: Assignment, model: Model) -> Lines:
    """Rows of the replica, with the source of each where there are several."""
    erased, row = bool(value(given, "erased")), model.spec
    found = Lines()
    for shard in row.shards or ("",):
        rows = dict(model.rows)
        if erased and shard in ("", "a"):
            rows.pop("b", None)
        shown = [row for _, row in model.logged] if not row.keys else list(rows.values())
        found.update(line_of({**model.shown(each), "_source": shard}, columns_of(model)) for each in shown)
    return found


def columns_of(model: Model) -> list[str]:
    """Columns that are compared: all but those of the service."""
    shown = sorted(model.shown(dict.fromkeys(("n", "v"))))
    return [*shown, *(["_source"] if model.spec.shards else [])]


def stored_rows(game: Game) -> Lines:
    rows = game.port.read(game.lake.layout(game.row).replica)
    columns = columns_of(Model(game.source))
    return Lines(line_of(row, columns) for row in rows if not row["_gddl"].get("deleted"))


def stored_versions(game: Game) -> Lines:
    rows = game.port.read(game.lake.layout(game.row).history)
    bounds = {"start": "__start_at", "end": "__end_at", "from": "__valid_from", "to": "__valid_to"}
    columns = [*columns_of(Model(game.source)), *bounds]
    return Lines(line_of({**row, **{name: row[stored] for name, stored in bounds.items()}}, columns) for row in rows)
