"""The load of tables in a user's own DAG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import invalid_option
from airflow_gddl.operators.execution import LoadExecution
from airflow_gddl.operators.jobs import GddlLoadOperator
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.run_request import from_params, requested, requests_of
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, observe
from airflow_gddl.triggers import utc_now

_WORK = "work"
"""Key of the XCom that holds the work of a try while it is deferred."""


class TablesLoad(LoadExecution):
    """Loads tables, in one job for each DAG that loads them otherwise, one job after the other.

    If tables fail, events of the others are sent by these DAGs.
    """

    operator: GddlLoadOperator

    def run(self) -> Any:
        self.operator.metadata = configuration.own_metadata_place(self.operator.metadata)
        return super().run()

    @property
    def run_key(self) -> str:
        """The DAGs of the tables have runs with the same ids."""
        return f"{self.operator.dag_id}@{self.context['run_id']}"

    def decide(self) -> Iterator[Loading]:
        for dag_id, work in sorted((self._decided() if self.begun is None else self._kept()).items()):
            yield self.loading(self.document(dag_id), work, "initial" if work.initial else "increments")

    def _decided(self) -> dict[str, PipelineWork]:
        """The work by the DAG that loads the tables otherwise."""
        operator, directory = self.operator, configuration.directory_of(self.operator.metadata)
        names = requested(directory, operator.tables, operator.select, operator.exclude)
        confs, refused = requests_of({"tables": names, "action": "rebuild" if operator.rebuild else "run"}, directory)
        if refused:
            raise refused[0]
        works = {}
        for dag_id, conf in confs.items():
            document = self.document(dag_id)
            environ = configuration.environ_of(document)
            question = Question(run=self.run_key, now=utc_now(), form=from_params(conf))
            work = observe(document, question, environ, configuration.following(environ))
            marks = {**work.initial, **work.increments}
            first = operator.rebuild
            works[dag_id] = replace(work, initial=marks if first else {}, increments={} if first else marks)
        self.context["ti"].xcom_push(key=_WORK, value={dag_id: plain(work) for dag_id, work in works.items()})
        return works

    def _kept(self) -> dict[str, PipelineWork]:
        ti = self.context["ti"]
        stored = ti.xcom_pull(task_ids=self.operator.task_id, key=_WORK, map_indexes=ti.map_index)
        if not stored:
            raise invalid_option("the work of this try was lost", "clear the task")
        return {dag_id: decode(PipelineWork, work) for dag_id, work in stored.items()}

    def load(self, loading: Loading) -> Loading:
        """See `LoadExecution.load`; of a resumed try, loads before the one that it waited for are done."""
        if self.begun is None or set(self.begun.tables) & loading.marks.keys():
            return super().load(loading)
        return loading
