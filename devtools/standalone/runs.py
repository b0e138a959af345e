"""DAG runs of a standalone Airflow: start, follow, report failures."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from airflow_gddl.contract.codes import DEMO_FAILED
from airflow_gddl.contract.errors import FatalError
from devtools.standalone.supervisor import RefusedError, Standalone

_ENDED = ("success", "failed")
_LOG_LINES = 20
_RUN_SECONDS = 3600.0


@dataclass(frozen=True)
class RunRef:
    """One run of a DAG."""

    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"dags/{quote(self.dag_id, safe='')}/dagRuns/{quote(self.run_id, safe='')}"


@dataclass
class Runs:
    """Args: `report` is called with a line whenever a task changes its state."""

    airflow: Standalone
    report: Callable[[str], None]
    _seen: dict[tuple[RunRef, str], str] = field(default_factory=dict)

    def create_pools(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Create those that are not there yet."""
        existing = {pool["name"] for pool in self.airflow.rest.get("pools", limit=100)["pools"]}
        for name in sorted(pools.keys() - existing):
            self.airflow.rest.post("pools", {"name": name, **pools[name]})

    def wait_for(self, dag_ids: Collection[str], seconds: float | None = None) -> None:
        """Wait until these DAGs exist, and unpause them.

        Raises:
            FatalError: `DEMO_FAILED`.
        """
        self.airflow.wait(f"the DAGs {', '.join(dag_ids)}", lambda: set(dag_ids) <= self.dags().keys(), seconds)
        for dag_id, dag in self.dags().items():
            if dag_id in dag_ids and dag["is_paused"]:
                self.airflow.rest.patch(f"dags/{quote(dag_id, safe='')}", {"is_paused": False})

    def dags(self) -> dict[str, Any]:
        """DAGs that are scheduled, by id."""
        return {dag["dag_id"]: dag for dag in self.airflow.rest.get("dags", limit=100)["dags"]}

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> RunRef:
        """Start one run, however often a busy server has to be asked.

        Raises:
            FatalError: `DEMO_FAILED`.
        """
        run = RunRef(dag_id, f"manual__{datetime.now(UTC).isoformat()}_{secrets.token_hex(4)}")
        body = {"dag_run_id": run.run_id, "logical_date": None, "conf": dict(conf or {})}
        self.airflow.wait(f"a run of {dag_id} to be accepted", lambda: self._accepted(run, body))
        return run

    def _accepted(self, run: RunRef, body: Mapping[str, Any]) -> bool:
        """
        Raises:
            RetriableError: no answer; the run may have been started.
        """
        try:
            self.airflow.rest.post(f"dags/{quote(run.dag_id, safe='')}/dagRuns", body)
        except RefusedError as error:
            # The id is of this call alone: an earlier request, which got no answer, has started the run.
            if error.status != HTTPStatus.CONFLICT:
                raise
        return True

    def first(self, dag_id: str, seconds: float = 10) -> RunRef:
        """The run that a new DAG's schedule starts; one of ours when it starts none in so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.airflow.rest.get(f"dags/{quote(dag_id, safe='')}/dagRuns", limit=1)["dag_runs"]
            if found:
                return RunRef(dag_id, found[0]["dag_run_id"])
            time.sleep(1)
        return self.trigger(dag_id)

    def finish(self, runs: Iterable[RunRef], seconds: float = _RUN_SECONDS) -> None:
        """Wait until all have succeeded.

        Raises:
            FatalError: `DEMO_FAILED`, with what the failed tasks said.
        """
        for run, state in self.wait_ended(runs, seconds).items():
            if state == "failed":
                remedy = f"look at it: {self.airflow.rest.url}/dags/{run.dag_id}/runs/{run.run_id}"
                raise FatalError(DEMO_FAILED, f"{run.dag_id} failed\n{self.said(run)}", remedy=remedy)

    def wait_ended(self, runs: Iterable[RunRef], seconds: float = _RUN_SECONDS) -> dict[RunRef, str]:
        """Each run's state once all have ended: `success` or `failed`."""
        open_ = list(runs)
        states: dict[RunRef, str] = {}

        def ended() -> bool:
            for run in open_:
                states[run] = self.airflow.rest.get(run.path)["state"]
                self._follow(run)
            return all(state in _ENDED for state in states.values())

        self.airflow.wait(f"runs of {', '.join(run.dag_id for run in open_)}", ended, seconds)
        return states

    def tasks(self, run: RunRef) -> dict[str, str]:
        """Task to state, mapped ones with their index; a task that was not scheduled yet is `none`."""
        return {_name(task): task["state"] or "none" for task in self._instances(run)}

    def _instances(self, run: RunRef) -> list[dict[str, Any]]:
        """All pages: a DAG with a group for each table has more tasks than one holds."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.airflow.rest.get(f"{run.path}/taskInstances", limit=100, offset=len(found))
            found += page["task_instances"]
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def said(self, run: RunRef) -> str:
        """Last log lines of its failed tasks."""
        lines: list[str] = []
        for task in self._instances(run):
            if task["state"] == "failed":
                path = f"{run.path}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
                content = self.airflow.rest.get(path, map_index=task["map_index"])["content"]
                lines += [f"{_name(task)}:", *_texts(content)[-_LOG_LINES:]]
        return "\n".join(lines)

    def _follow(self, run: RunRef) -> None:
        for task, state in self.tasks(run).items():
            if self._seen.get((run, task), "none") != state:
                self._seen[run, task] = state
                self.report(f"{run.dag_id}: {task} {state.replace('_', ' ')}")


def _name(task: Mapping[str, Any]) -> str:
    if task["map_index"] < 0:
        return str(task["task_id"])
    return f"{task['task_id']} {task['rendered_map_index'] or task['map_index']}"


def _texts(content: Any) -> list[str]:
    """Lines of a log as the API gives it: structured, or plain text."""
    if isinstance(content, str):
        return content.splitlines()
    events = (event if isinstance(event, dict) else {"event": event} for event in content)
    return [line for event in events for line in (*str(event.get("event", "")).splitlines(), *_raised(event))]


def _raised(event: Mapping[str, Any]) -> list[str]:
    """The exception of an event, without those that it was raised from."""
    first = next(iter(event.get("error_detail") or ()), None)
    return [] if first is None else f"{first['exc_type']}: {first['exc_value']}".splitlines()
