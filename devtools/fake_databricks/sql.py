"""SQL warehouses and statements of the fake workspace: one statement reads some columns of one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from databricks.sdk.service.sql import (
    EndpointInfo,
    ListWarehousesResponse,
    ResultData,
    ServiceError,
    State,
    StatementExecutionAPI,
    StatementResponse,
    StatementState,
    StatementStatus,
    WarehousesAPI,
)

from devtools.fake_databricks.workspace import Refusal, arguments_of, invalid

SQL = "/api/2.0/sql/"
_SELECT = re.compile(r"SELECT ((?:`\w+`(?:, )?)+) FROM `(\w+)`\.`(\w+)`\.`(\w+)`")
_STATEMENT = re.compile(r"statements/([\w-]+)(?:/(cancel|result/chunks/(\d+)))?")
Body = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
Read = Callable[[str, str, str], Rows]


@dataclass
class FakeStatement:
    """A statement, whose first poll finds it running."""

    rows: list[list[str]]
    error: str = ""
    state: StatementState = StatementState.PENDING
    polls: int = 0


@dataclass
class FakeSql:
    """Warehouses and statements.

    Attributes:
        read: rows of a table by catalog, schema and name; LookupError: there is none.
        warehouses: states by id.
        started: warehouses that a statement has started.
        chunk_rows: most rows of one chunk of a result.
        hangs: statements never end.
    """

    read: Read
    warehouses: dict[str, State] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    statements: dict[str, FakeStatement] = field(default_factory=dict)
    chunk_rows: int = 10
    hangs: bool = False

    def answer(self, method: str, path: str, body: Body) -> Any:
        """
        Raises:
            Refusal: the request is wrong.
        """
        if (method, path) == ("GET", "warehouses"):
            arguments_of("list", body, WarehousesAPI)
            found = [EndpointInfo(id=name, name=f"warehouse {name}", state=s) for name, s in self.warehouses.items()]
            return ListWarehousesResponse(warehouses=found)
        if (method, path) == ("POST", "statements"):
            return self._execute(arguments_of("execute_statement", body, StatementExecutionAPI))
        asked = _STATEMENT.fullmatch(path)
        if asked is None or (method == "POST") != (asked[2] == "cancel"):
            raise Refusal(404, "ENDPOINT_NOT_FOUND", f"no API {method} {path}")
        if asked[1] not in self.statements:
            raise Refusal(404, "NOT_FOUND", f"The statement {asked[1]} was not found.")
        one = self.statements[asked[1]]
        if asked[2] == "cancel":
            one.state = StatementState.CANCELED
            return None
        return self._chunk(one, int(asked[3])) if asked[3] else self._polled(asked[1], one)

    def _execute(self, asked: Mapping[str, Any]) -> StatementResponse:
        name = asked["warehouse_id"]
        if name not in self.warehouses:
            raise invalid(f"{name} is not a valid endpoint id.")
        if self.warehouses[name] != State.RUNNING:
            self.started.append(name)
            self.warehouses[name] = State.RUNNING
        number = f"01ef-{len(self.statements)}"
        self.statements[number] = self._read(asked["statement"])
        return StatementResponse(statement_id=number, status=StatementStatus(state=StatementState.PENDING))

    def _read(self, statement: str) -> FakeStatement:
        read = _SELECT.fullmatch(statement)
        if read is None:
            return FakeStatement([], "syntax error: it is not the statement that this fake reads")
        names = re.findall(r"\w+", read[1])
        try:
            rows = self.read(read[2], read[3], read[4])
        except LookupError:
            return FakeStatement([], f"The table or view {read[4]} cannot be found.")
        return FakeStatement([[row[name] for name in names] for row in rows])

    def _polled(self, number: str, one: FakeStatement) -> StatementResponse:
        one.polls += 1
        if one.state in (StatementState.PENDING, StatementState.RUNNING):
            is_over = one.polls > 1 and not self.hangs
            ended = StatementState.FAILED if one.error else StatementState.SUCCEEDED
            one.state = ended if is_over else StatementState.RUNNING
        error = ServiceError(message=one.error) if one.state == StatementState.FAILED else None
        result = self._chunk(one, 0) if one.state == StatementState.SUCCEEDED else None
        return StatementResponse(
            statement_id=number, status=StatementStatus(state=one.state, error=error), result=result
        )

    def _chunk(self, one: FakeStatement, number: int) -> ResultData:
        first = number * self.chunk_rows
        last = first + self.chunk_rows
        more = number + 1 if last < len(one.rows) else None
        return ResultData(chunk_index=number, data_array=one.rows[first:last], next_chunk_index=more)
