"""The connection to a source database, by its name alone: its content comes from the environment and is never shown."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.errors import FatalError


def url_of(sqlalchemy: Any, name: str, environ: Mapping[str, str]) -> Any:
    """The connection of this name: a variable that holds an SQLAlchemy URL, or Airflow's `AIRFLOW_CONN_<NAME>`.

    Args:
        sqlalchemy: the module, which only who reads a database has.

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
            # Behind an @ that is not escaped stands the rest of the password, which every driver's message would show.
            if not any("@" in (part or "") for part in (url.host, url.database)):
                return url.set(drivername=_driver(url.drivername))
            problem = "has more than one @"
            way = ", @ in its password written as %40"
    except (ValueError, TypeError, KeyError, sqlalchemy.exc.ArgumentError):
        pass  # told below, without a cause that might show the content
    raise FatalError(
        "SOURCE_CONNECTION_MISSING",
        f"the connection {name!r} {problem}",
        remedy=f"set {name} to an SQLAlchemy URL{way}, or AIRFLOW_CONN_{name.upper()}",
    )


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
