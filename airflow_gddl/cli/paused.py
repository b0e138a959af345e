"""Paused DAGs, as the Airflow of this Python has them: its metadata database is read, and Airflow is not imported."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from airflow_gddl.cli import airflow_home
from airflow_gddl.contract.packages import installed_version

_SECONDS = 2
"""How long an answer of the database is waited for."""
_QUERY = "SELECT dag_id, is_paused FROM dag"
_SQLITE = "sqlite:///"
UNPAUSE = "airflow dags unpause"


def known_dags(environ: Mapping[str, str], dag_ids: Collection[str]) -> Mapping[str, bool]:
    """Whether each of these DAGs is paused; without those that Airflow does not have.

    Empty where there is no Airflow, or its database does not answer: then nothing is known.
    """
    address = _database(environ)
    if not address or not dag_ids:
        return {}
    try:
        rows = _of_sqlite(address) if address.startswith(_SQLITE) else _of_server(address)
    except Exception:  # noqa: BLE001 - each driver raises its own; what is not known is not said
        return {}
    return {dag_id: paused for dag_id, paused in rows.items() if dag_id in dag_ids}


def _database(environ: Mapping[str, str]) -> str:
    """Empty: none is configured in words, or none is there."""
    if not installed_version("apache-airflow"):
        return ""
    written = airflow_home.written(environ, "database", "sql_alchemy_conn").strip()
    file = airflow_home.home(environ) / "airflow.db"
    return written or (f"{_SQLITE}{file}" if file.is_file() else "")


def _of_sqlite(address: str) -> dict[str, bool]:
    file = Path(address.removeprefix(_SQLITE).partition("?")[0])
    with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_SECONDS)) as database:
        return {str(dag_id): bool(paused) for dag_id, paused in database.execute(_QUERY)}


def _of_server(address: str) -> dict[str, bool]:
    import sqlalchemy as sa  # noqa: PLC0415 - takes longer to import than most commands run

    waits = "timeout" if sa.make_url(address).get_backend_name() == "sqlite" else "connect_timeout"
    engine = sa.create_engine(address, connect_args={waits: _SECONDS}, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return {str(dag_id): bool(paused) for dag_id, paused in connection.execute(sa.text(_QUERY))}


def new_ones_start_paused(environ: Mapping[str, str]) -> bool:
    """Whether DAGs that are new start paused, as far as variables and files of the configuration say."""
    own = airflow_home.written(environ, "gddl", "paused_upon_creation").strip()
    said = own or airflow_home.written(environ, "core", "dags_are_paused_at_creation").strip()
    return said.lower() not in ("false", "f", "0")


def unpause_all(prefix: str = "") -> str:
    """The command that unpauses every DAG of this package.

    Args:
        prefix: the metadata's `dag_prefix`.
    """
    return f"{UNPAUSE} --treat-dag-id-as-regex -y '^{prefix}gddl[._]'"


_NAMED = 3


def starting(environ: Mapping[str, str], dag_ids: Collection[str], prefix: str) -> list[str]:
    """At most one line: the command for those of these DAGs that are paused, or will be once Airflow shows them.

    Args:
        prefix: the metadata's `dag_prefix`.
    """
    known = known_dags(environ, dag_ids)
    held = sorted(dag_id for dag_id in dag_ids if known.get(dag_id, new_ones_start_paused(environ)))
    if not held:
        return []
    if len(held) > _NAMED:
        return [f"{unpause_all(prefix)}    # new DAGs start paused, and a paused DAG loads nothing"]
    if all(dag_id in known for dag_id in held):
        why = "is paused, and a paused DAG loads nothing"
    else:
        why = "starts paused in Airflow, and a paused DAG loads nothing"
    return [f"{'; '.join(f'{UNPAUSE} {dag_id}' for dag_id in held)}    # {'each ' if len(held) > 1 else 'it '}{why}"]
