"""Glue's Data Catalog and Athena over HTTP, as far as a check asks them; Athena reads the table with delta-rs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from airflow_gddl.simulate.table import read_replica

Answer = Mapping[str, Any]
_COLUMNS = re.compile(r'SELECT (.+) FROM "(\w+)"')


class RefusedError(Exception):
    """Attributes:
    args: the service's code.
    """


@dataclass
class Services:
    """Attributes:
    environ: with which Athena reads tables.
    forgets: tables that are created are not kept.
    loses: Athena leaves the first row out.
    refuses: by operation, the code it is answered with.
    state: of Athena's queries.
    stopped: queries that were stopped.
    """

    environ: Mapping[str, str]
    url: str = ""
    forgets: bool = False
    loses: bool = False
    refuses: dict[str, str] = field(default_factory=dict)
    state: str = "SUCCEEDED"
    stopped: list[str] = field(default_factory=list)
    databases: dict[str, dict[str, Any]] = field(default_factory=dict)
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, operation: str, asked: Mapping[str, Any]) -> Answer:
        if operation in self.refuses:
            raise RefusedError(self.refuses[operation])
        found: Answer = getattr(self, f"_{operation}")(**asked)
        return found

    def _tables(self, name: str) -> dict[str, Any]:
        if name not in self.databases:
            raise RefusedError("EntityNotFoundException")
        return self.databases[name]

    def _GetDatabase(self, Name: str) -> Answer:  # noqa: N802, N803 - Glue's names
        self._tables(Name)
        return {"Database": {"Name": Name}}

    def _CreateDatabase(self, DatabaseInput: Mapping[str, Any]) -> Answer:  # noqa: N802, N803 - Glue's names
        self.databases.setdefault(DatabaseInput["Name"], {})
        return {}

    def _DeleteDatabase(self, Name: str) -> Answer:  # noqa: N802, N803 - Glue's names
        self._tables(Name)
        del self.databases[Name]
        return {}

    def _DeleteTable(self, DatabaseName: str, Name: str) -> Answer:  # noqa: N802, N803 - Glue's names
        if Name not in self._tables(DatabaseName):
            raise RefusedError("EntityNotFoundException")
        del self.databases[DatabaseName][Name]
        return {}

    def _UpdateTable(  # noqa: N802 - Glue's name
        self,
        DatabaseName: str,  # noqa: N803 - Glue's name
        TableInput: dict[str, Any],  # noqa: N803 - Glue's name
        VersionId: str = "1",  # noqa: N803 - Glue's name
        **_: Any,
    ) -> Answer:
        if VersionId != "1":
            raise RefusedError("ConcurrentModificationException")
        self._tables(DatabaseName)[TableInput["Name"]] = TableInput
        return {}

    def _CreateTable(self, DatabaseName: str, TableInput: dict[str, Any]) -> Answer:  # noqa: N802, N803 - Glue's names
        self._tables(DatabaseName).update({} if self.forgets else {TableInput["Name"]: TableInput})
        return {}

    def _GetTable(self, DatabaseName: str, Name: str) -> Answer:  # noqa: N802, N803 - Glue's names
        if Name not in self._tables(DatabaseName):
            raise RefusedError("EntityNotFoundException")
        return {"Table": {**self.databases[DatabaseName][Name], "DatabaseName": DatabaseName, "VersionId": "1"}}

    def _GetTables(self, DatabaseName: str) -> Answer:  # noqa: N802, N803 - Glue's names
        return {"TableList": list(self._tables(DatabaseName).values())}

    def _StartQueryExecution(self, QueryString: str, **asked: Any) -> Answer:  # noqa: N802, N803 - Athena's names
        number = f"q-{len(self.queries)}"
        self.queries[number] = {"sql": QueryString, **asked}
        return {"QueryExecutionId": number}

    def _GetQueryExecution(self, QueryExecutionId: str) -> Answer:  # noqa: N802, N803 - Athena's names
        return {"QueryExecution": {"QueryExecutionId": QueryExecutionId, "Status": {"State": self.state}}}

    def _StopQueryExecution(self, QueryExecutionId: str) -> Answer:  # noqa: N802, N803 - Athena's names
        self.stopped.append(QueryExecutionId)
        return {}

    def _GetQueryResults(self, QueryExecutionId: str, **_: Any) -> Answer:  # noqa: N802, N803 - Athena's names
        query = self.queries[QueryExecutionId]
        read = _COLUMNS.fullmatch(query["sql"])
        assert read is not None, query["sql"]
        names = [name.strip('" ') for name in read[1].split(",")]
        table = self._tables(query["QueryExecutionContext"]["Database"])[read[2]]
        options = {**self.environ, "AWS_ALLOW_HTTP": "true"}
        rows = read_replica(table["StorageDescriptor"]["Location"], options).select(names).to_pylist()
        lines = [names, *([row[name] for name in names] for row in rows[int(self.loses) :])]
        return {"ResultSet": {"Rows": [{"Data": [{"VarCharValue": cell} for cell in line]} for line in lines]}}


@contextmanager
def serving(environ: Mapping[str, str]) -> Iterator[Services]:
    services = Services(environ)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, found = 200, services.answer(self.headers["X-Amz-Target"].partition(".")[2], body)
            except RefusedError as error:
                status, found = 400, {"__type": error.args[0], "message": "refused"}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        services.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield services
        finally:
            server.shutdown()
