"""Credentials by name: connections to source databases, and the key of masks."""

from __future__ import annotations

import hmac
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_gddl.contract.codes import (
    MASK_KEY_MISSING,
    SOURCE_CONNECTION_MISSING,
    SOURCE_CONNECTION_REFUSED,
    SOURCE_DRIVER_MISSING,
    SOURCE_REFUSED,
    SOURCE_ROWS_HIDDEN,
    SOURCE_TEXT_INVALID,
    SOURCE_UNREACHABLE,
)
from airflow_gddl.contract.errors import FatalError, RetriableError

LENT_PREFIX = "GDDL_SOURCE_"
"""Prefix of variables and Airflow connections that rows may name, in any case."""
# By SQLAlchemy's name of the driver, or of the database alone: its default driver.
_PACKAGES = {
    "postgresql": "psycopg2-binary",
    "postgresql+psycopg2": "psycopg2-binary",
    "postgresql+psycopg": "'psycopg[binary]'",
    "mysql": "mysqlclient, or pip install pymysql and write mysql+pymysql://",
    "mysql+pymysql": "pymysql",
    "mariadb": "mysqlclient, or pip install pymysql and write mariadb+pymysql://",
    "mariadb+pymysql": "pymysql",
    "mariadb+mariadbconnector": "mariadb",
    "mssql": "pyodbc",
    "mssql+pyodbc": "pyodbc",
    "mssql+pymssql": "pymssql",
    "oracle": "oracledb, and write oracle+oracledb://",
    "oracle+oracledb": "oracledb",
    "db2": "ibm_db_sa",
    "db2+ibm_db": "ibm_db_sa",
}
LENT = "GDDL_SOURCE_CONNECTIONS"
"""The variable that lists others, separated by commas."""


def url_of(sqlalchemy: Any, name: str, environ: Mapping[str, str]) -> Any:
    """The connection of this name: a variable that holds an SQLAlchemy URL, or Airflow's `AIRFLOW_CONN_<NAME>`.

    The caller must be trusted with the environment; for names from metadata or the lake use `lent_url_of`.

    Args:
        sqlalchemy: the module, installed only where databases are read.

    Returns:
        An `sqlalchemy.engine.URL`.

    Raises:
        FatalError: `SOURCE_CONNECTION_MISSING`, without its content.
    """
    written = environ.get(name) or environ.get(f"AIRFLOW_CONN_{name.upper()}")
    problem = "is not set" if not written else "is neither a URL nor an Airflow connection"
    way = ""
    try:
        if written and written.lstrip().startswith("{"):
            return _of_json(sqlalchemy, json.loads(written))
        if written:
            url = sqlalchemy.engine.make_url(written)
            # After an unescaped @ comes the rest of the password, which driver messages would show.
            if not any("@" in (part or "") for part in (url.host, url.database)):
                return url.set(drivername=_driver(url.drivername))
            problem = "has more than one @"
            way = ", @ in its password written as %40"
    except (ValueError, TypeError, KeyError, sqlalchemy.exc.ArgumentError):
        pass  # reported below, without a cause that might show the content
    raise FatalError(
        SOURCE_CONNECTION_MISSING,
        f"the connection {name!r} {problem}",
        remedy=f"set {name} to an SQLAlchemy URL{way}, or AIRFLOW_CONN_{name.upper()}",
    )


def is_lent(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the deployment allows tables to use this connection: by its prefix, or in the list.

    Without this rule, metadata could name any secret of the process.
    """
    if name.upper() == LENT:
        return False
    return name.upper().startswith(LENT_PREFIX) or name in re.split(r"[,\s]+", environ.get(LENT, ""))


def require_lent(name: str, environ: Mapping[str, str]) -> None:
    """Refuse a connection that the deployment does not allow tables to use.

    Raises:
        FatalError: `SOURCE_CONNECTION_REFUSED`.
    """
    if not is_lent(name, environ):
        raise FatalError(
            SOURCE_CONNECTION_REFUSED,
            f"the connection {name!r} is not allowed for tables in this deployment",
            remedy=f"name it {LENT_PREFIX}{name.upper()}, or add {name} to {LENT} where jobs and Airflow run",
        )


def lent_url_of(sqlalchemy: Any, name: str, environ: Mapping[str, str]) -> Any:
    """`url_of` for a name that metadata or the lake gives.

    Raises:
        FatalError: `SOURCE_CONNECTION_REFUSED`, `SOURCE_CONNECTION_MISSING`.
    """
    require_lent(name, environ)
    return url_of(sqlalchemy, name, environ)


def engine_of(sqlalchemy: Any, url: Any) -> Any:
    """An `sqlalchemy.engine.Engine` that keeps no connection; none is made yet.

    Raises:
        FatalError: `SOURCE_DRIVER_MISSING`.
    """
    try:
        # Else a database without an encoding gives texts that the driver reads as ASCII.
        is_encoded = url.get_backend_name() == "postgresql" and not url.get_dialect().is_async
        encoded = {"client_encoding": "utf8"} if is_encoded else {}
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool, future=True, **encoded)
    except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise no_driver(url, error) from error
    if engine.dialect.is_async:
        raise no_driver(url, "it answers to asyncio alone")
    return engine


def no_driver(url: Any, error: Exception | str) -> FatalError:
    """`SOURCE_DRIVER_MISSING`, with the command that installs the driver.

    Args:
        url: an `sqlalchemy.engine.URL`; nothing but its driver's name is shown.
    """
    database = url.drivername.partition("+")[0]
    package = _PACKAGES.get(url.drivername) or _PACKAGES.get(database)
    remedy = f"pip install {package}" if package else "install the package that brings it to SQLAlchemy"
    if package and url.drivername not in _PACKAGES and "and write" not in package:
        remedy += f", and write {database}://"
    return FatalError(SOURCE_DRIVER_MISSING, f"no driver for {url.drivername}: {error}", remedy=remedy)


_HIDDEN = re.compile(r'affected by row-level security policy for table "(.{1,200}?)"')
"""What PostgreSQL says instead of leaving rows out, where `row_security` is off."""
_NO_TEXT = re.compile(r"invalid byte sequence for encoding|has no equivalent in encoding")
"""What PostgreSQL says of a text that is none in the encoding of its database, or has characters that UTF-8 lacks."""
_REFUSED = re.compile(
    r"(?:database|role|user) .{1,200} does not exist|authentication failed|no pg_hba\.conf entry|permission denied"
    r"|access denied for user|unknown database|cannot open database|login failed|ORA-(?:01017|12514|12505|28000)"
    r"|unable to open database file",
    re.IGNORECASE,
)
"""What PostgreSQL, MySQL, SQL Server, Oracle and SQLite say of a database or a user that they don't know or let in."""


def rows_hidden(table: str, user: str, where: str) -> FatalError:
    """`SOURCE_ROWS_HIDDEN`."""
    what = f"row-level security hides rows of {table} from {user}: what it reads is not the table"
    remedy = f"ALTER ROLE {user} BYPASSRLS; or a connection of a user whom no policy of the table concerns"
    return FatalError(SOURCE_ROWS_HIDDEN, what, where=where, remedy=remedy)


def text_refused(said: str, where: str) -> FatalError | None:
    """`SOURCE_TEXT_INVALID`, of what PostgreSQL has said; None: it has said something else."""
    if (found := _NO_TEXT.search(said)) is None:
        return None
    line = said[: found.start()].rpartition("\n")[2].rpartition(":")[2] + said[found.start() :].partition("\n")[0]
    what = f"a text of the source is not valid in UTF-8: {line.strip()}"
    remedy = "correct it in the source: SELECT convert_to(…, 'SQL_ASCII') shows its bytes"
    return FatalError(SOURCE_TEXT_INVALID, what, where=where, remedy=remedy)


def unreachable(url: Any, error: Any) -> FatalError | RetriableError:
    """`SOURCE_REFUSED` where the database answered that it has no such database or user, `SOURCE_ROWS_HIDDEN` where it
    would show a part of the rows, `SOURCE_TEXT_INVALID` where it has a text that is none in UTF-8; else
    `SOURCE_UNREACHABLE`, with host and port.

    Args:
        url: an `sqlalchemy.engine.URL`; no password or query of it is shown.
        error: an `sqlalchemy.exc.DBAPIError`.
    """
    first = str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
    port = f":{url.port}" if url.port else ""
    where = f"{url.drivername} at {url.host}{port}" if url.host else url.drivername
    if hidden := _HIDDEN.search(str(error.orig)):
        return rows_hidden(hidden[1], url.username or "the user", where)
    if (refused := text_refused(first, where)) is not None:
        return refused
    if _REFUSED.search(str(error.orig)):
        remedy = "correct user, password and database of the connection, or the user's rights"
        return FatalError(SOURCE_REFUSED, f"the source refuses the connection: {first}", where=where, remedy=remedy)
    remedy = "check host and port of the connection, that the database runs, and the network; then try again"
    return RetriableError(SOURCE_UNREACHABLE, f"the source can't be read: {first}", where=where, remedy=remedy)


def _of_json(sqlalchemy: Any, fields: Mapping[str, Any]) -> Any:
    return sqlalchemy.engine.URL.create(
        _driver(fields["conn_type"]),
        fields.get("login"),
        fields.get("password"),
        fields.get("host"),
        fields.get("port"),
        fields.get("schema"),
    )


def _driver(name: str) -> str:
    """Airflow's names as SQLAlchemy's; PostgreSQL by whichever of its drivers is here."""
    if name not in ("postgres", "postgresql"):
        return name
    here = [d for d in ("psycopg", "psycopg2") if importlib.util.find_spec(d) is not None]
    return f"postgresql+{here[0]}" if here else "postgresql"


MASK_KEY, MASK_KEY_FILE = "GDDL_MASK_KEY", "GDDL_MASK_KEY_FILE"
_SHORTEST = 16


def mask_key(environ: Mapping[str, str]) -> bytes:
    """Key of `mask: hmac`, from its variable or from the file that a variable names.

    Raises:
        FatalError: `MASK_KEY_MISSING`.
    """
    text, path = environ.get(MASK_KEY, ""), environ.get(MASK_KEY_FILE, "")
    what = f"neither {MASK_KEY} nor {MASK_KEY_FILE} is set"
    if not text and path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            text, what = "", f"{MASK_KEY_FILE} can't be read ({type(error).__name__})"
    key = text.strip().encode()
    if len(key) < _SHORTEST:
        what = f"the key has fewer than {_SHORTEST} bytes" if key else what
        remedy = "set GDDL_MASK_KEY to a random text, e.g. of `openssl rand -hex 32`, where jobs run"
        raise FatalError(MASK_KEY_MISSING, f"a column has mask: hmac, and {what}", remedy=remedy)
    return key


def key_id(environ: Mapping[str, str]) -> str:
    """Tells keys apart and reveals nothing of a random one; empty: there is none."""
    try:
        return digest(mask_key(environ), b"gddl mask key")[:16]
    except FatalError:
        return ""


def digest(key: bytes, value: bytes) -> str:
    """What the column holds instead of the value: HMAC-SHA-256, hexadecimal."""
    return hmac.digest(key, value, "sha256").hex()
