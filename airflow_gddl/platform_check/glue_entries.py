"""Entries of a database of a Glue Data Catalog, and the rows that Athena reads of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from airflow_gddl.cli.check import aws_keys
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec, code_of_glue
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.platform_check.checks import FoundError, Row, unended

_POLL_SECONDS, _ANSWER_SECONDS, _QUERY_SECONDS = 1.0, 30, 300.0


class GlueEntries:
    """See `catalog_entries.Entries`. Entries of Delta and of Iceberg tables differ in nothing that is asked here."""

    def __init__(self, spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> None:
        self._spec, self._database, self._environ = spec, database, environ
        self._at = {} if spec.catalog_id is None else {"CatalogId": spec.catalog_id}

    @property
    def by_hand(self) -> str:
        account = f" --catalog-id {self._spec.catalog_id}" if self._at else ""
        return f"`aws glue delete-database --name {self._database}{account}`"

    def tables(self) -> Mapping[str, str] | None:
        glue = self._client("glue")
        with _translated("glue:GetTables"):
            try:
                pages = glue.get_paginator("get_tables").paginate(DatabaseName=self._database, **self._at)
                found = [table for page in pages for table in page["TableList"]]
            except glue.exceptions.EntityNotFoundException:
                return None
        return {table["Name"]: str(table.get("StorageDescriptor", {}).get("Location", "")) for table in found}

    def drop_table(self, name: str) -> None:
        glue = self._client("glue")
        with _translated("glue:DeleteTable"), suppress(glue.exceptions.EntityNotFoundException):
            glue.delete_table(DatabaseName=self._database, Name=name, **self._at)

    def drop_database(self) -> None:
        glue = self._client("glue")
        with _translated("glue:DeleteDatabase"), suppress(glue.exceptions.EntityNotFoundException):
            glue.delete_database(Name=self._database, **self._at)

    def query(self, sql: str, output: str, seconds_left: float) -> Sequence[Row]:
        """Rows that Athena gives.

        Args:
            output: folder of the store in which it may leave its results.
            seconds_left: until the check is to end; a query that did not end then is stopped.

        Raises:
            FoundError: the query failed.
            NotTriedError: `time`.
            GddlError: as `catalog_entries.Entries`.
        """
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
        raise unended("query", seconds_left=seconds_left, most=_QUERY_SECONDS)

    def _client(self, service: str) -> Any:
        with needed_by(f"the catalog kind {self._spec.kind}", install="airflow-gddl[glue]"):
            import boto3  # noqa: PLC0415 - an extra that only this catalog needs
            from botocore.config import Config  # noqa: PLC0415 - as above
        environ, wait = self._environ, seconds(self._spec.timeout)
        region = self._spec.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        session = boto3.Session(**aws_keys(environ), region_name=region)
        endpoint = self._spec.endpoint if service == "glue" else environ.get("AWS_ENDPOINT_URL_ATHENA")
        read = wait if service == "glue" else max(wait, _ANSWER_SECONDS)
        config = Config(connect_timeout=wait, read_timeout=read, retries={"total_max_attempts": 3})
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
