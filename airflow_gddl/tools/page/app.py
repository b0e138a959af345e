"""The page's web application: static files are public, API responses need Airflow's authentication.

Static files contain no data, as those of Airflow's UI; each response is filtered by the user's Airflow permissions.
Actions on a table are requests of the browser to Airflow's REST API as that user: this application is read-only.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import join, log_folder
from airflow_gddl.contract.names import TableNames
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.overview import Span
from airflow_gddl.runtime.state.recording import Records, read_records
from airflow_gddl.runtime.state.status_list import Order, TableQuery
from airflow_gddl.runtime.state.table_status import State, TableStatus
from airflow_gddl.stores import open_store
from airflow_gddl.tools.page import detail
from airflow_gddl.tools.page import responses as answers
from airflow_gddl.tools.page.detail import explained, in_replica
from airflow_gddl.tools.page.reading import TableReader
from airflow_gddl.tools.page.responses import Board, PageSource

QUARANTINE = "GDDL Quarantine"
"""The resource that users must be allowed to read, to see rows in quarantine."""
ROWS = "GDDL Rows"
"""The same for rows of replicas and what happened to a key."""
__all__ = ["GetUserDep", "may_read", "may_read_data", "may_read_rows", "may_trigger", "readable"]


def readable(user: Any, dag_ids: Iterable[str]) -> set[str]:
    """The DAGs that the user may read."""
    by_team: dict[str | None, set[str]] = {}
    wanted = set(dag_ids)
    teams = _teams(wanted)
    for dag_id in wanted:
        by_team.setdefault(teams.get(dag_id), set()).add(dag_id)
    allowed: set[str] = set()
    for team, ids in by_team.items():
        # Only Airflow with teams knows the argument, and only it has any.
        of_team = {} if team is None else {"team_name": team}
        allowed |= get_auth_manager().filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", **of_team)
    return allowed


def may_read(user: Any, dag_id: str | None) -> bool:
    """Null: of a table that no DAG loads, for which the user must be allowed to read any DAG."""
    return _may(user, "GET", None, dag_id)


def may_read_data(user: Any, dag_id: str | None) -> bool:
    """Logs may show rows; users who may read task logs may see them."""
    return _may(user, "GET", DagAccessEntity.TASK_LOGS, dag_id)


def may_read_rows(user: Any, dag_id: str | None, resource: str) -> bool:
    """Rows are data, for users with a permission of its own, `ROWS` or `QUARANTINE`, beside the table's DAG.

    Airflow's simple auth manager has roles only: there they are for those who may trigger the DAG.
    """
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import (  # noqa: PLC0415 - imported when needed
        SimpleAuthManager,
    )

    manager = get_auth_manager()
    if not may_read(user, dag_id):
        return False
    if type(manager).is_authorized_custom_view is SimpleAuthManager.is_authorized_custom_view:
        return _may(user, "POST", DagAccessEntity.RUN, dag_id)
    return bool(manager.is_authorized_custom_view(method="GET", resource_name=resource, user=user))


def may_trigger(user: Any, dag_id: str) -> bool:
    return _may(user, "POST", DagAccessEntity.RUN, dag_id)


def _may(user: Any, method: Any, entity: DagAccessEntity | None, dag_id: str | None) -> bool:
    details = None
    if dag_id is not None:
        team = _teams({dag_id}).get(dag_id)
        details = DagDetails(id=dag_id) if team is None else DagDetails(id=dag_id, team_name=team)
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def _teams(dag_ids: set[str]) -> dict[str, str | None]:
    """The teams of DAGs, where Airflow is configured to have any."""
    from airflow.configuration import conf  # noqa: PLC0415 - only the API server comes here
    from airflow.models.dag import DagModel  # noqa: PLC0415 - imported when needed

    lookup = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    if lookup is None or not conf.getboolean("core", "multi_team", fallback=False):
        return {}
    teams: dict[str, str | None] = lookup(list(dag_ids))
    return teams


def paused_dags() -> frozenset[str]:
    """Ids of all DAGs that are paused."""
    from airflow.models.dag import DagModel  # noqa: PLC0415 - as above
    from airflow.utils.session import create_session  # noqa: PLC0415 - as above

    with create_session() as session:
        return frozenset(dag_id for (dag_id,) in session.query(DagModel.dag_id).filter(DagModel.is_paused))


SHOWN_BYTES = 1024 * 1024
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}$"
"""Pattern of DAG ids and job ids, without path separators."""


def newest_part(lake: str, dag_id: str, job: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The last lines of a job's log: `text`, of the whole `size` in bytes `left_out`, and the log's `place`.

    Raises:
        FileNotFoundError: there is none.
        RetriableError, FatalError: as `Storage`.
    """
    place = join(log_folder(lake, dag_id), f"{job}.log")
    with open_store(environ).open_input(place) as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - SHOWN_BYTES))
        text = log.read(SHOWN_BYTES).decode(errors="replace")
    if size > SHOWN_BYTES:
        text = text.partition("\n")[2]
    return {"place": place, "text": text, "size": size, "left_out": max(0, size - len(text.encode()))}


_RUNS, _TABLES, _SECONDS = 300, 200, 30.0


@dataclass
class RecordCache:
    """Serves the newest records of a table; thread-safe.

    They are read again after 30 s, and when the lake's state has a newer load.
    """

    _kept: OrderedDict[tuple[str, str], tuple[float, Any, Records]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, board: Board, roots: Roots, one: TableStatus, *, fresh: bool) -> Records:
        """Records of one table, from the cache if younger than 30 s.

        Args:
            fresh: read them now.

        Raises:
            GddlError: as `read_records`.
        """
        key = roots.lake, one.row.table
        newest = one.record.newest
        with self._lock:
            read_at, of_newest, records = self._kept.get(key, (0.0, None, None))
        if records is not None and not fresh and of_newest == newest and 0 <= board.now - read_at < _SECONDS:
            return records
        records = read_records(roots, one.row.table, _RUNS, board.environ)
        with self._lock:
            self._kept[key] = board.now, newest, records
            self._kept.move_to_end(key)
            while len(self._kept) > _TABLES:
                self._kept.popitem(last=False)
        return records


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
LogName = Annotated[str, Query(pattern=NAME)]


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


class OverviewQuery(ListQuery):
    """The list's parameters, whose order and page do not matter, and how far back."""

    span: Span = "day"


class KeyQuery(BaseModel):
    """A table, and a key of it: key column to its value as text."""

    name: str = Field(max_length=300)
    key: dict[Annotated[str, Field(max_length=300)], Annotated[str, Field(max_length=10_000)]] = Field(max_length=100)


_ABOUT = """What the page of all tables shows, with the permissions of the user that Airflow knows: by the cookie of
its UI, or by `Authorization: Bearer` with a token of Airflow's API. Fields may be added within a version; none is
renamed, removed or given another meaning."""


def build_app(source: PageSource) -> FastAPI:
    app = FastAPI(
        title="GDDL tables", version="1", description=_ABOUT, docs_url=None, redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )  # fmt: skip
    app.middleware("http")(_with_headers)
    _add_answers(app, source)
    _add_details(app, source)
    _add_log(app, source)
    _add_rows(app, source)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.get("/", include_in_schema=False)(_index)
    return app


def _add_answers(app: FastAPI, source: PageSource) -> None:
    records = RecordCache()

    # Plain functions, not coroutines: FastAPI runs them in threads, since the lake may be slow.
    @app.get("/api/v1/tables")
    def tables(user: GetUserDep, list_query: Annotated[ListQuery, Query()]) -> dict[str, Any]:
        """A page of the tables that the user may see: `rows`, numbers by state, source, tier and owner,
        `troubles` of the metadata, and which of their DAGs are `paused`.
        """
        board = source.board()
        everything = may_read(user, None)
        seen = _seen(board, user)
        found = answers.table_list(
            board, seen, list_query.query(), list_query.page, list_query.size, all_problems=everything
        )
        return {**found, "paused": sorted(paused_dags() & {one.row.dag_id for one in seen})}

    @app.get("/api/v1/overview")
    def overview(user: GetUserDep, overview_query: Annotated[OverviewQuery, Query()]) -> dict[str, Any]:
        """Throughput, failures, lag and durations of these tables over a day or two weeks, and by source and owner."""
        board = source.board()
        return answers.overview_of(board, _seen(board, user), overview_query.query(), overview_query.span)

    @app.get("/api/v1/table")
    def table(user: GetUserDep, name: Name, *, fresh: bool = False) -> dict[str, Any]:
        """One table: its row, its state, its last runs, and the commands of its repairs. `fresh`: read the records
        anew.
        """
        board, roots, one = _found(source, user, name)
        seen = _names(board, user)
        about = detail.about(board, one, seen, lambda: records.of(board, roots, one, fresh=fresh))
        dag_id = one.row.dag_id
        # The DAG of an invalid row is the one that loaded the table before.
        runs = dag_id is not None and not one.row.problems
        spec, _ = source.settings(one.row)
        return {
            **about,
            "may_trigger": runs and may_trigger(user, str(dag_id)),
            "paused": dag_id in paused_dags(),
            "keys": None if spec is None else list(spec.keys),
        }


def _add_details(app: FastAPI, source: PageSource) -> None:
    """Answers about one table, without rows."""

    @app.get("/api/v1/table/lake")
    def lake(user: GetUserDep, name: Name) -> dict[str, Any]:
        """What the lake holds of a table: versions, columns without those that are masked or left out, ledger,
        catalog.
        """
        board, roots, one = _found(source, user, name)
        _, catalog = source.settings(one.row)
        return detail.in_lake(board, roots, _reader(source, board, roots, one), catalog)

    @app.get("/api/v1/table/lineage")
    def lineage(user: GetUserDep, name: Name) -> dict[str, Any]:
        """Where a table comes from, what the lake makes of it, and the tables that are loaded before and after it.
        DAGs that consume it are in Airflow's API, by the asset of the table's name.
        """
        board, roots, one = _found(source, user, name)
        return detail.lineage_of(board, roots, one, source.settings(one.row)[0], _names(board, user))


def _add_log(app: FastAPI, source: PageSource) -> None:
    @app.get("/api/v1/log")
    def log(user: GetUserDep, dag_id: LogName, job: LogName) -> dict[str, Any]:
        """The newest part of a job's log, for those who may read the logs of the DAG's tasks; 404 else."""
        # A log may contain rows, so it needs permission for the logs of the DAG's tasks.
        board = source.board()
        if board.roots is None or not may_read_data(user, dag_id):
            raise HTTPException(404, "no such log")
        try:
            return newest_part(board.roots.lake, dag_id, job, board.environ)
        except FileNotFoundError as error:
            raise HTTPException(404, "no such log: a lake on a worker's own disk can't be read from here") from error
        except GddlError as error:
            raise HTTPException(503, str(error)) from error


def _add_rows(app: FastAPI, source: PageSource) -> None:
    """Answers with data, which need permissions of their own."""

    @app.get("/api/v1/table/quarantine")
    def quarantine(user: GetUserDep, name: Name, code: Code = "") -> dict[str, Any]:
        """Rows and files in quarantine, newest first; `refused` without the permission `GDDL Quarantine`."""
        board, roots, one = _found(source, user, name)
        if not may_read_rows(user, one.row.dag_id, QUARANTINE):
            return {"refused": True}
        return detail.in_quarantine(_reader(source, board, roots, one), code)

    @app.get("/api/v1/table/rows")
    def rows(user: GetUserDep, name: Name) -> dict[str, Any]:
        """The first 20 rows of the replica; `refused` without the permission `GDDL Rows`."""
        board, roots, one = _found(source, user, name)
        if not may_read_rows(user, one.row.dag_id, ROWS):
            return {"refused": True}
        return in_replica(_reader(source, board, roots, one))

    # The only POST: it changes nothing, but a key in a URL would be in the server's access log.
    @app.post("/api/v1/table/explain")
    def explain(user: GetUserDep, key_query: KeyQuery) -> dict[str, Any]:
        """What happened to one key: its changes in order, and the row; `refused` without the permission `GDDL
        Rows`.
        """
        board, _, one = _found(source, user, key_query.name)
        if not may_read_rows(user, one.row.dag_id, ROWS):
            return {"refused": True}
        quarantine = may_read_rows(user, one.row.dag_id, QUARANTINE)
        return explained(board, one, source.pipeline(one.row), key_query.key, quarantine=quarantine)


def _reader(source: PageSource, board: Board, roots: Roots, one: TableStatus) -> TableReader:
    spec, _ = source.settings(one.row)
    layout = detail.layout_of(roots, one)
    return TableReader(layout=layout, document=source.pipeline(one.row), spec=spec, environ=board.environ)


def _seen(board: Board, user: Any) -> list[TableStatus]:
    """The tables that the user may see: those whose DAG they may read."""
    dag_ids = {one.row.dag_id for one in board.statuses if one.row.dag_id is not None}
    allowed = readable(user, dag_ids)
    homeless = any(one.row.dag_id is None for one in board.statuses) and may_read(user, None)
    return [one for one in board.statuses if (homeless if one.row.dag_id is None else one.row.dag_id in allowed)]


def _names(board: Board, user: Any) -> set[str]:
    """Names of the tables that the user may see."""
    return {one.row.table for one in _seen(board, user)}


def _found(source: PageSource, user: Any, name: str) -> tuple[Board, Roots, TableStatus]:
    """The same response for unknown tables and those that the user may not see."""
    board = source.board()
    one = board.of(name) or _by_other_name(board, user, name)
    if one is None or board.roots is None or not may_read(user, one.row.dag_id):
        raise HTTPException(404, "no such table")
    return board, board.roots, one


def _by_other_name(board: Board, user: Any, name: str) -> TableStatus | None:
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
