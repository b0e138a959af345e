"""DuckDB over Arrow: the relational steps as SQL text. A connection a thread, one core each, times in UTC."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from spark_jobs.plan.types import ArrayType, MapType, SqlType, StructType
from spark_jobs.rules.limits import LIMITS

_LOCAL = threading.local()
_ALIVE: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
_HELD: list[duckdb.DuckDBPyConnection] = []
_LOCK = threading.Lock()


_LOCKED = (
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",
)


def _hold() -> None:
    """A forked process drops what other threads held, and whoever drops a connection there waits for threads that it
    does not have: it dies, or hangs before it has become the program that it was to be, such as Spark's JVM."""
    with _LOCK:
        _HELD.extend(_ALIVE)


os.register_at_fork(before=_hold, after_in_parent=_HELD.clear)


def quoted(name: str) -> str:
    """A column by its very name."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def listed(names: Iterable[str], of: str = "") -> str:
    """Columns separated by commas, of a relation where one is named."""
    return ", ".join(f"{of}.{quoted(n)}" if of else quoted(n) for n in names)


def packed(names: Iterable[str], of: str = "") -> str:
    """A struct of columns; compares null-safe with IS NOT DISTINCT FROM."""
    parts = [f"{quoted(n)}: {of}.{quoted(n)}" if of else f"{quoted(n)}: {quoted(n)}" for n in names]
    return "{" + ", ".join(parts) + "}"


_DUCK = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "void": "INT"}


@functools.cache
def duck_type(kind: SqlType) -> str:
    """A type as DuckDB spells it."""
    if isinstance(kind, ArrayType):
        return f"{duck_type(kind.element)}[]"
    if isinstance(kind, MapType):
        return f"MAP({duck_type(kind.key)}, {duck_type(kind.value)})"
    if isinstance(kind, StructType):
        return f"STRUCT({', '.join(f'{quoted(f.name)} {duck_type(f.type)}' for f in kind.fields)})"
    return _DUCK.get(str(kind), str(kind))


def null(kind: SqlType) -> str:
    """A null of a type."""
    return f"CAST(NULL AS {duck_type(kind)})"


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's connection: it can neither read files nor load extensions, and no statement changes that."""
    found: duckdb.DuckDBPyConnection | None = getattr(_LOCAL, "connection", None)
    if found is None:
        found = duckdb.connect(config={"threads": 1})
        found.execute("SET TimeZone = 'UTC'")
        found.execute("SET python_enable_replacements = false")
        if LIMITS.query_bytes is not None:  # what is larger fails, rather than to go to some folder's disk
            found.execute(f"SET memory_limit = '{LIMITS.query_bytes // 1024}KiB'")
            found.execute("SET temp_directory = ''")
        for setting in _LOCKED:
            found.execute(f"SET {setting}")
        with _LOCK:
            _ALIVE.add(found)
        _LOCAL.connection = found
    return found


def query(statement: str, relations: Mapping[str, pa.Table]) -> pa.Table:
    """Rows of a statement over named Arrow tables."""
    duck = connection()
    for name, rows in relations.items():
        duck.register(name, rows)
    try:
        return duck.sql(statement).to_arrow_table()
    finally:
        for name in relations:
            duck.unregister(name)
