"""Rows that a Databricks SQL warehouse gives, by the workspace's API for statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.platform_check.checks import FoundError, NotTriedError, Row, unended
from airflow_gddl.runners.interface import Connections

WAREHOUSE = "DATABRICKS_WAREHOUSE_ID"
"""Variable, of Databricks' own tools, that names a warehouse: it is started where it is stopped."""
_RUNNER, _CONNECTION = "databricks", "databricks_conn_id"
_HOST = "DATABRICKS_HOST"
POLL_SECONDS, _QUERY_SECONDS, _PATIENCE_SECONDS = 1.0, 600.0, 60


def is_workspace_known(runner: str, url: str | None, environ: Mapping[str, str]) -> bool:
    """Whether the jobs' own workspace, or that of the environment, can be asked.

    Args:
        url: of the catalog: the environment may name a workspace that knows nothing of it.
    """
    host = environ.get(_HOST, "").strip()
    return runner == _RUNNER or (bool(host) and _server(host) == _server(url or ""))


def _server(url: str) -> str:
    """Its name without the port, which one of both may leave out; the SDK takes a host without a scheme, too."""
    return urlsplit(url if "://" in url else f"https://{url}").hostname or ""


def connect(runner: str, declared: Mapping[str, Any], connections: Connections) -> Any:
    """The SDK's client of the workspace of the jobs; of that of the environment where jobs run elsewhere.

    Raises:
        NotTriedError: `no-package`.
        FatalError: `CONNECTION_UNUSABLE`.
    """
    try:
        with needed_by("tables.databricks_sql", install="airflow-gddl[databricks]"):
            from databricks.sdk import WorkspaceClient  # noqa: PLC0415 - an extra that only this check needs
            from databricks.sdk.config import Config  # noqa: PLC0415 - as above
    except FatalError as error:
        raise NotTriedError("no-package", f"{error.what}; {error.remedy}") from error
    name = str(declared.get(_CONNECTION) or "databricks_default")
    access = connections.login(_RUNNER, name) if runner == _RUNNER else None
    given = {} if access is None else {"host": access.host or None, **access.login}
    try:
        config = Config(
            product="airflow-gddl", http_timeout_seconds=30, retry_timeout_seconds=_PATIENCE_SECONDS, **given
        )
        client = WorkspaceClient(config=config)
    except ValueError as error:
        what = f"no way to log in to Databricks: {str(error).partition(chr(10))[0]}"[:400]
        raise FatalError("CONNECTION_UNUSABLE", what, remedy="set DATABRICKS_HOST and DATABRICKS_TOKEN") from error
    if access is not None:  # the SDK has no setting for them
        client.api_client._api_client._session.proxies.update(access.proxies)  # noqa: SLF001 - see above
    return client


def warehouse(client: Any, environ: Mapping[str, str]) -> str:
    """Id of the warehouse that the user named, else of the first by name that runs.

    Raises:
        NotTriedError: `no-warehouse`.
        GddlError: `PLATFORM_UNREACHABLE`, `PLATFORM_REFUSED`.
    """
    if named := environ.get(WAREHOUSE, "").strip():
        return named
    with _translated():
        found = list(client.warehouses.list())
    running = sorted((one.name or "", one.id) for one in found if one.state and one.state.value == "RUNNING")
    if not running:
        raise NotTriedError("no-warehouse", f"{len(found)} are there")
    return str(running[0][1])


def query(
    client: Any, sql: str, warehouse_id: str, seconds_left: float, sleep: Callable[[float], None] = time.sleep
) -> Sequence[Row]:
    """Rows of a statement, as text.

    Args:
        seconds_left: until the check is to end; a statement that did not end then is cancelled.

    Raises:
        FoundError: the statement failed.
        NotTriedError: `time`.
        GddlError: `PLATFORM_UNREACHABLE`, `PLATFORM_REFUSED`.
    """
    statements = client.statement_execution
    with _translated():
        answer = statements.execute_statement(sql, warehouse_id, wait_timeout="0s")
        number = answer.statement_id
        try:
            answer = _ended(statements, answer, seconds_left, sleep)
            rows = [*_rows(answer.result)]
            chunk = answer.result.next_chunk_index if answer.result else None
            while chunk is not None:
                result = statements.get_statement_result_chunk_n(number, chunk)
                rows += _rows(result)
                chunk = result.next_chunk_index
        except BaseException:  # else it would keep the warehouse from stopping by itself
            with suppress(Exception):
                statements.cancel_execution(number)
            raise
    return rows


def _ended(statements: Any, answer: Any, seconds_left: float, sleep: Callable[[float], None]) -> Any:
    """The answer once the statement has succeeded."""
    until = time.monotonic() + min(seconds_left, _QUERY_SECONDS)
    while (state := answer.status.state.value) in ("PENDING", "RUNNING"):
        if time.monotonic() >= until:
            raise unended("statement", seconds_left=seconds_left, most=_QUERY_SECONDS)
        sleep(POLL_SECONDS)
        answer = statements.get_statement(answer.statement_id)
    if state != "SUCCEEDED":
        said = answer.status.error.message if answer.status.error else ""
        raise FoundError(f"the statement is {state}: {said}"[:400])
    return answer


def _rows(result: Any) -> Iterator[Row]:
    return (tuple(row) for row in (result.data_array if result else None) or ())


@contextmanager
def _translated() -> Iterator[None]:
    from databricks.sdk import errors  # noqa: PLC0415 - see `connect`
    from databricks.sdk.errors.base import DatabricksError  # noqa: PLC0415 - as above

    passing = (errors.InternalError, errors.TemporarilyUnavailable, errors.TooManyRequests)
    try:
        yield
    except OSError as error:  # the SDK's errors are some, too
        what = f"Databricks: {type(error).__name__}: {error}"[:400]
        if isinstance(error, passing) or not isinstance(error, DatabricksError):
            raise RetriableError("PLATFORM_UNREACHABLE", what, remedy="try again later") from error
        remedy = "grant CAN USE on the warehouse, USE SCHEMA and SELECT to the user of the login"
        raise FatalError("PLATFORM_REFUSED", what, remedy=remedy) from error
