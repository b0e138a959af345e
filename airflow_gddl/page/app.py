"""The page's web application: static files are public, API responses need Airflow's authentication.

Static files contain no data, as those of Airflow's UI; each response is filtered by the user's Airflow permissions.
Actions on a table are requests of the browser to Airflow's REST API as that user: this application is read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import Roots
from airflow_gddl.contract.table_names import TableNames
from airflow_gddl.page import access, detail, logs
from airflow_gddl.page import responses as answers
from airflow_gddl.page.access import GetUserDep
from airflow_gddl.page.records import RecordCache
from airflow_gddl.page.source import Board, PageSource
from airflow_gddl.runtime.state.board import BoardRow, Order, TableQuery
from airflow_gddl.runtime.state.judging import State

STATIC = Path(__file__).with_name("static")
# No external or inline content; only Airflow's UI may frame the page.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
Name = Annotated[str, Query(max_length=300)]
Code = Annotated[str, Query(max_length=100)]
LogName = Annotated[str, Query(pattern=logs.NAME)]


class ListQuery(BaseModel):
    """Parameters of the list; each of those that are lists may be given several times."""

    state: list[State | Literal["quarantined"]] = Field(default_factory=list)
    source: list[str] = Field(default_factory=list)
    tier: list[str] = Field(default_factory=list)
    priority: list[str] = Field(default_factory=list)
    owner: list[str] = Field(default_factory=list)
    search: str = Field("", max_length=200)
    order: Order = "urgency"
    direction: Literal["up", "down"] = "up"
    page: int = Field(1, ge=1)
    size: int = Field(50, ge=1, le=200)

    def query(self) -> TableQuery:
        return TableQuery(
            search=self.search,
            states=tuple(self.state),
            sources=tuple(self.source),
            tiers=tuple(self.tier),
            priorities=tuple(self.priority),
            owners=tuple(self.owner),
            order=self.order,
            descending=self.direction == "down",
        )


def build_app(source: PageSource) -> FastAPI:
    app = FastAPI(title="GDDL tables", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_with_headers)
    _add_answers(app, source)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.get("/", include_in_schema=False)(_index)
    return app


def _add_answers(app: FastAPI, source: PageSource) -> None:
    records = RecordCache()

    # Plain functions, not coroutines: FastAPI runs them in threads, since the lake may be slow.
    @app.get("/api/tables")
    def tables(user: GetUserDep, asked: Annotated[ListQuery, Query()]) -> dict[str, Any]:
        board = source.board()
        everything = access.may_read(user, None)
        seen = _seen(board, user)
        return answers.table_list(board, seen, asked.query(), asked.page, asked.size, all_problems=everything)

    @app.get("/api/table")
    def table(user: GetUserDep, name: Name, *, fresh: bool = False) -> dict[str, Any]:
        board, roots, one = _found(source, user, name)
        seen = {other.row.table for other in _seen(board, user)}
        about = detail.about(board, one, seen, lambda: records.of(board, roots, one, fresh=fresh))
        dag_id = one.row.dag_id
        # The DAG of an invalid row is the one that loaded the table before.
        runs = dag_id is not None and not one.row.problems
        spec, _ = source.settings(one.row)
        return {
            **about,
            "may_trigger": runs and access.may_trigger(user, str(dag_id)),
            "keys": None if spec is None else list(spec.keys),
        }

    @app.get("/api/table/lake")
    def lake(user: GetUserDep, name: Name) -> dict[str, Any]:
        board, roots, one = _found(source, user, name)
        return detail.in_lake(board, roots, one, *source.settings(one.row))

    @app.get("/api/table/quarantine")
    def quarantine(user: GetUserDep, name: Name, code: Code = "") -> dict[str, Any]:
        board, roots, one = _found(source, user, name)
        if not access.may_read_quarantine(user, one.row.dag_id):
            return {"refused": True}
        return detail.in_quarantine(board, roots, one, source.settings(one.row)[0], code)

    @app.get("/api/log")
    def log(user: GetUserDep, dag_id: LogName, job: LogName) -> dict[str, Any]:
        # A log may contain rows, so it needs permission for the logs of the DAG's tasks.
        board = source.board()
        if board.roots is None or not access.may_read_data(user, dag_id):
            raise HTTPException(404, "no such log")
        try:
            return logs.newest_part(board.roots.lake, dag_id, job, board.environ)
        except FileNotFoundError as error:
            raise HTTPException(404, "no such log: a lake on a worker's own disk can't be read from here") from error
        except GddlError as error:
            raise HTTPException(503, str(error)) from error


def _seen(board: Board, user: Any) -> list[BoardRow]:
    """The tables that the user may see: those whose DAG they may read."""
    dag_ids = {one.row.dag_id for one in board.standings if one.row.dag_id is not None}
    allowed = access.readable(user, dag_ids)
    homeless = any(one.row.dag_id is None for one in board.standings) and access.may_read(user, None)
    return [one for one in board.standings if (homeless if one.row.dag_id is None else one.row.dag_id in allowed)]


def _found(source: PageSource, user: Any, name: str) -> tuple[Board, Roots, BoardRow]:
    """The same response for unknown tables and those that the user may not see."""
    board = source.board()
    one = board.of(name) or _by_other_name(board, user, name)
    if one is None or board.roots is None or not access.may_read(user, one.row.dag_id):
        raise HTTPException(404, "no such table")
    return board, board.roots, one


def _by_other_name(board: Board, user: Any, name: str) -> BoardRow | None:
    """The table by its name in the source, see `TableNames`, among those that the user may see."""
    try:
        target = TableNames(one.row for one in _seen(board, user)).find(name)
    except GddlError as error:
        raise HTTPException(409, str(error)) from error
    return board.of(target) if target is not None else None


async def _index(request: Request) -> Response:
    if not request.url.path.endswith("/"):  # the page's own addresses are relative to its folder
        return Response(status_code=307, headers={"Location": f"{request.url.path}/"})
    return FileResponse(STATIC / "index.html", media_type="text/html")


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    answer = await call_next(request)
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    # Static files are revalidated by ETag; API responses must not be cached.
    answer.headers["Cache-Control"] = "no-store" if "/api/" in request.url.path else "no-cache"
    return answer
