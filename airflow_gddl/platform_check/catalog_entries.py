"""Entries that a check makes in a Glue Data Catalog: what is there, what Athena reads of it, and their removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from airflow_gddl.cli.check import aws_keys
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec, code_of_glue
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.platform_check.checks import FoundError, NotTriedError

Row = tuple[str | None, ...]
_POLL_SECONDS, _QUERY_SECONDS = 1.0, 300.0


class Entries(Protocol):
    """Tables of one database of a catalog.

    Raises (every method):
        GddlError: `CATALOG_UNREACHABLE`, `CATALOG_DENIED` or `CATALOG_REFUSED`.
    """

    def tables(self) -> Mapping[str, str]:
        """Location by name; none where there is no such database."""
        ...

    def remove(self) -> None:
        """Remove the database with its tables; not an error where there is none."""
        ...

    def query(self, sql: str, output: str, seconds_left: float) -> Sequence[Row]:
        """Rows that the engine of this catalog gives, as text.

        Args:
            output: folder of the store in which it may leave its results.
            seconds_left: until the check is to end; a query that did not end then is stopped.

        Raises:
            FoundError: the query failed.
            NotTriedError: `time`.
        """
        ...


class GlueEntries:
    """See `Entries`. The engine is Athena."""

    def __init__(self, spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> None:
        self._spec, self._database, self._environ = spec, database, environ
        self._at = {} if spec.catalog_id is None else {"CatalogId": spec.catalog_id}

    def tables(self) -> Mapping[str, str]:
        glue = self._client("glue")
        with _translated("glue:GetTables"):
            try:
                pages = glue.get_paginator("get_tables").paginate(DatabaseName=self._database, **self._at)
                found = [table for page in pages for table in page["TableList"]]
            except glue.exceptions.EntityNotFoundException:
                return {}
        return {table["Name"]: str(table.get("StorageDescriptor", {}).get("Location", "")) for table in found}

    def remove(self) -> None:
        glue = self._client("glue")
        with _translated("glue:DeleteDatabase and glue:DeleteTable"):
            try:
                glue.delete_database(Name=self._database, **self._at)
            except glue.exceptions.EntityNotFoundException:
                return

    def query(self, sql: str, output: str, seconds_left: float) -> Sequence[Row]:
        athena = self._client("athena")
        with _translated("athena:StartQueryExecution, athena:GetQueryExecution and athena:GetQueryResults"):
            started = athena.start_query_execution(
                QueryString=sql,
                QueryExecutionContext={"Database": self._database},
                ResultConfiguration={"OutputLocation": f"{output}/"},
            )["QueryExecutionId"]
            try:
                self._wait(athena, started, seconds_left)
            except BaseException:  # else its result would be written after the folder was removed
                with suppress(Exception):
                    athena.stop_query_execution(QueryExecutionId=started)
                raise
            pages = athena.get_paginator("get_query_results").paginate(QueryExecutionId=started)
            rows = [row["Data"] for page in pages for row in page["ResultSet"]["Rows"]]
        return [tuple(cell.get("VarCharValue") for cell in row) for row in rows[1:]]  # the first has the names

    @staticmethod
    def _wait(athena: Any, query: str, seconds_left: float) -> None:
        until = time.monotonic() + min(seconds_left, _QUERY_SECONDS)
        while time.monotonic() < until:
            status = athena.get_query_execution(QueryExecutionId=query)["QueryExecution"]["Status"]
            if status["State"] == "SUCCEEDED":
                return
            if status["State"] in ("FAILED", "CANCELLED"):
                raise FoundError(f"the query {status['State']}: {status.get('StateChangeReason', '')}")
            time.sleep(_POLL_SECONDS)
        if seconds_left < _QUERY_SECONDS:
            raise NotTriedError("time")
        raise FoundError(f"the query did not end in {_QUERY_SECONDS:.0f} seconds")

    def _client(self, service: str) -> Any:
        with needed_by(f"the catalog kind {self._spec.kind}", install="airflow-gddl[glue]"):
            import boto3  # noqa: PLC0415 - an extra that only this catalog needs
            from botocore.config import Config  # noqa: PLC0415 - as above
        environ, wait = self._environ, seconds(self._spec.timeout)
        region = self._spec.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        session = boto3.Session(**aws_keys(environ), region_name=region)
        endpoint = self._spec.endpoint if service == "glue" else environ.get("AWS_ENDPOINT_URL_ATHENA")
        config = Config(connect_timeout=wait, read_timeout=max(wait, 30), retries={"total_max_attempts": 3})
        return session.client(service, endpoint_url=endpoint, config=config)


@contextmanager
def _translated(rights: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - see `GlueEntries`

    try:
        yield
    except ClientError as error:
        what = str(error)[:400]
        code = code_of_glue(str(error.response.get("Error", {}).get("Code", "")), what)
        raise FatalError(code, what, remedy=f"grant {rights} for databases gddl_check_*") from error
    except BotoCoreError as error:
        raise RetriableError("CATALOG_UNREACHABLE", str(error)[:400], remedy="check region and endpoint") from error


ENTRIES: Mapping[str, Callable[[CatalogSpec, str, Mapping[str, str]], Entries]] = {"glue": GlueEntries}
"""By kind of catalog: those whose entries can be removed again from here."""
