"""What Airflow must let run at once for the rows: settings, worker slots, pools, triggers; and whether it does.

Nothing breaks below these figures: runs wait for each other. They are those of the busiest day, if every poll finds new
files for all tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.capacity.day import Day
from airflow_gddl.capacity.rules import (
    MWAA,
    MWAA_MOST_WORKERS,
    TASK_CPU_SECONDS,
    Figure,
    brief_tasks,
    loads_at_once,
    started_of,
)
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline

PARALLELISM, ACTIVE_TASKS, ACTIVE_RUNS = "core.parallelism", "core.max_active_tasks_per_dag", "gddl.active_runs"
CAPACITY, WORKER_TASKS = "triggerer.capacity", "tasks of all workers"
_LOADS_OF_A_RUN = 2
"""`initial_load` and `incremental_load` run side by side."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """The least value of something that bounds what runs at once.

    Attributes:
        setting: section and option of Airflow with a dot between them, or `WORKER_TASKS`.
        why: what takes as many.
    """

    setting: str
    least: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """What Airflow must have on the busiest day.

    Attributes:
        schedulers: that the figures of one scheduler, and of its triggerer, are for.
        mwaa_class: smallest class of MWAA that is documented for as many DAGs and tasks; None: none is, or jobs would
            run on Airflow's workers.
        mwaa_workers: of that class, for the tasks.
    """

    schedulers: int
    needs: tuple[Need, ...]
    mwaa_class: str | None = None
    mwaa_workers: int | None = None


@dataclass(frozen=True, kw_only=True)
class GivenSettings:
    """What an Airflow has.

    Attributes:
        where: for a message.
        values: by `Need.setting`; what is not in it is not known.
        deferrable: `[gddl] deferrable`: tasks wait in the triggerer, and hold no slot meanwhile.
        dags: that the environment class is documented for; None: not known.
    """

    where: str
    values: Mapping[str, int] = field(default_factory=dict)
    schedulers: int = 1
    deferrable: bool = True
    dags: int | None = None


def parallelism_of(
    day: Day, figures: Mapping[str, Figure], schedulers: int = 1, *, deferrable: bool = True
) -> Parallelism:
    """
    Args:
        figures: by name, of that day: `dags` and `triggers`.
    """
    is_held = not RUNNERS.get(day.metadata.runner).remote or not deferrable
    polls = 0 if deferrable else max(day.starts.per_minute)
    held = loads_at_once(day) if is_held else 0
    tasks = max(1, held + polls + _at_once(brief_tasks(day)))
    needs = [
        Need(
            setting=PARALLELISM,
            least=math.ceil(tasks / schedulers),
            why=f"each of {schedulers} schedulers: loads {held:,}, polls {polls:,}, and starts of other tasks",
        ),
        Need(
            setting=WORKER_TASKS,
            least=tasks,
            why="all schedulers: processes of LocalExecutor, slots of Celery's workers",
        ),
        *_of_dags(day),
        Need(
            setting=CAPACITY,
            least=max(1, math.ceil(figures["triggers"].planned / schedulers)) if deferrable else 1,
            why=f"each of {schedulers} triggerers: polls and deferred loads",
        ),
    ]
    is_remote = RUNNERS.get(day.metadata.runner).remote
    name, workers = _mwaa(round(figures["dags"].planned), tasks) if is_remote else (None, None)
    return Parallelism(schedulers=schedulers, needs=tuple(needs), mwaa_class=name, mwaa_workers=workers)


def _at_once(brief: float) -> int:
    """Tasks that run at once where so many start in a minute, each of which takes little but its start."""
    return math.ceil(brief * TASK_CPU_SECONDS / 60)


def _of_dags(day: Day) -> Iterator[Need]:
    """Airflow's bounds of each DAG."""
    widest = max(day.metadata.pipelines, key=_tasks_of_a_run)
    yield Need(setting=ACTIVE_TASKS, least=_tasks_of_a_run(widest), why=f"loads and tables of {widest.dag_id}")
    if len(day.continuous) < len(day.metadata.pipelines):
        yield Need(setting=ACTIVE_RUNS, least=2, why="a run for one table, beside that of the schedule")


def _tasks_of_a_run(pipeline: Pipeline) -> int:
    """Tasks of a run that are at work at once."""
    return 1 if pipeline.timing.kind == "continuous" else _LOADS_OF_A_RUN + _at_once(started_of(pipeline))


def _mwaa(dags: int, tasks: int) -> tuple[str | None, int | None]:
    """The smallest class, and its workers."""
    for name, made in MWAA.items():
        workers = math.ceil(tasks / made.tasks)
        if dags <= made.dags and workers <= (1 if made.workers == 1 else MWAA_MOST_WORKERS):
            return name, workers
    return None, None


def shortfalls(needed: Parallelism, given: GivenSettings) -> tuple[Need, ...]:
    """The needs that what is set does not meet; what is not known meets them."""
    return tuple(need for need in needed.needs if given.values.get(need.setting, need.least) < need.least)
