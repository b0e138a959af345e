"""Pipelines to Airflow DAGs, with trigger form and doc page, and to task groups of a user's own DAG."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, Asset, Param, TaskGroup, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from airflow_gddl import configuration
from airflow_gddl.assets import table_asset
from airflow_gddl.contract.codes import OPTION_INVALID
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.dags.table_groups import add_group
from airflow_gddl.operators.jobs import (
    MAPPED_TASKS,
    GddlContinuousOperator,
    GddlIncrementalLoadOperator,
    GddlInitialLoadOperator,
    GddlLoadOperator,
    GddlTableOperator,
)
from airflow_gddl.plugins.timetables import cron_timetable
from airflow_gddl.runtime.compiled.keeper import collector_paused
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.sensors.tables import GddlTablesSensor, poll_times
from airflow_gddl.topology.pipelines import CONTINUOUS_POOL, NO_OWNER, Pipeline, Timing, group_of, pool_of_instances
from airflow_gddl.version_compat import without_backfills

_PART = r"[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}"
_TABLE = rf"^([A-Za-z0-9_][A-Za-z0-9_.-]{{0,63}}:)?{_PART}\.{_PART}$"
"""A target, `schema.name` in the source, or `source:schema.name`: see `TableNames`."""
# `format` is not validated where no RFC 3339 validator is installed; the form's date picker uses it.
_MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


_ACTIONS = {
    "run": "Load what has landed",
    "verify": "Verify: compare the replica with its change table",
    "replay": "Replay: process quarantined rows again",
    "dismiss": "Dismiss: leave quarantined rows out for good",
    "rebuild": "Rebuild: make replica and history again from the change table; nothing is lost",
    "reload": "Reload: load again from the files that are there, and from nothing else",
}


def params(*, one_table: bool = False) -> dict[str, Param]:
    """The form's fields, those that rebuild tables last; the same go into `conf` of a REST call.

    Args:
        one_table: of a DAG for one table, which needs no choice of tables. `conf` may name the table all the same.
    """
    fields = {
        "tables": field_of_form(
            [],
            "array",
            "Tables",
            "schema.name or source:schema.name, one a line; empty: all of this DAG. Named tables run even without new "
            "files.",
            items={"type": "string", "pattern": _TABLE},
            maxItems=1000,
        ),
        "action": field_of_form(
            "run",
            "string",
            "Action",
            "Verify, replay and dismiss load no new files. A reload archives what no file holds.",
            enum=list(_ACTIONS),
            values_display=_ACTIONS,
        ),
        "codes": field_of_form(
            [],
            "array",
            "Codes",
            "Replay and dismiss concern only rows quarantined with these codes, one a line. Empty: replay processes "
            "all.",
            items={"type": "string", "pattern": "^[A-Z][A-Z0-9_]{3,63}$"},
            maxItems=100,
        ),
        "reason": field_of_form(None, "string", "Reason", "Of a dismissal, for the record.", maxLength=400),
        "from": _moment(
            "From",
            "Run tables with files modified at or after this moment. A reload reads these files again, and no others.",
        ),
        "to": _moment("To", "The same, before this moment. But for a reload, what was loaded is not loaded twice."),
        **{name: field_of_form(False, "boolean", title, text) for name, (title, text) in _REPAIRS.items()},
    }
    return {name: field for name, field in fields.items() if not one_table or name not in {"tables", "all"}}


def field_of_form(default: Any, kind: str, title: str, description: str, **schema: Any) -> Param:
    """A field of a DAG's form. It takes null: the form marks fields that don't as required."""
    return Param(default, type=["null", kind], title=title, description=description, **schema)


def windows() -> dict[str, Param]:
    """Fields of a verification by windows of time."""
    since = "Compare only rows that were changed in this time, e.g. 24h, by windows; empty: whole tables."
    return {
        "since": field_of_form(None, "string", "Since", since, pattern=r"^([1-9][0-9]{0,6}[smhd])?$"),
        "by": field_of_form("hour", "string", "By", "Length of a window.", enum=["hour", "day"]),
    }


_REPAIRS = {
    "all": (
        "All tables",
        "Run all tables of this DAG, even without new files; needed to rebuild or reload all.",
    ),
    "confirmed": (
        "Confirm the reload",
        "Reload also where rows, columns or changes go; without it the run fails and says which.",
    ),
}
"""Fields that concern tables that are made again."""


def documentation(pipeline: Pipeline) -> str:
    """The DAG's doc page. A pack's page names no table, since it would change with every row."""
    what = f"`{pipeline.tables[0]}`" if pipeline.view == "table" else "a pack of tables"
    if pipeline.is_retired:
        return _RETIRED
    facts = f"source **{pipeline.source}**, tier **{pipeline.tier}**, priority **{pipeline.priority}**"
    if pipeline.timing.kind == "continuous":
        return "\n".join([f"Brings {what} into Delta Lake: {facts}.", "", *_CONTINUOUS])
    lines = [
        f"Brings {what} into Delta Lake: {facts}.",
        "",
        "- **landed** finds tables with new files or changed rows. If there are none, the other tasks are skipped.",
        "- **initial_load** loads those that have no replica yet, and rebuilds; **incremental_load** brings the others",
        "  up to date: side by side, neither waits for the other.",
        *_EACH_TABLE.get(pipeline.view, ()),
        "",
        _RERUN if pipeline.view != "table" else "**Rerun**: trigger it; *Rebuild* makes the table again.",
        *_NO_BACKFILL,
        "",
        "**After a failure**: the task's log names each failed table, the error and the remedy. Retry or clear it: it",
        "resumes where it stopped, and loads no file twice.",
        "",
        "**Results**: a line for each table in the log, a summary in XCom, an event of the table's asset.",
    ]
    return "\n".join(lines)


_RERUN = "**Rerun**: trigger it; *Tables* selects some of them, *Rebuild* makes them again."
_EACH_TABLE: Mapping[str, tuple[str, ...]] = {
    "mapped": (
        "- **new_table** and **table** show each table that had work: red with the reason, or green. Clear one to load",
        "  that table alone.",
    ),
    "group": (
        "- Each table has a **group** with its name that shows what the loads brought: red with the reason, green, or",
        "  skipped without work. Clear a group, or a task in it, to load that table alone. In a run in which no table",
        "  had work, everything stays skipped: trigger the DAG instead.",
    ),
}
_NO_BACKFILL = (
    "",
    "**Files of a time again**: trigger it with the action *reload*, *From* and *To*. *Backfill* is not supported",
    "here: what is loaded follows from the table's ledger, not from a run's date.",
)
_RETIRED = """Other DAGs now load the tables of this DAG. It has no schedule; it exists to finish active runs and to
show its history. It is removed a week after the move or later. Rerun tables with `gddl_rerun`.
"""
_CONTINUOUS = (
    "- **continuous_load** keeps one job running that loads files as they land. It is restarted after its time limit",
    "  or a failure, with growing delays. Changed rows reach it while it runs.",
    "",
    "**Stop**: pause the DAG, then mark the task: the job finishes the batch that it is at.",
    "",
    "**Rerun**: trigger it, with *Rebuild* or another action, and mark the running task: that run comes next.",
    "",
    "**A table that fails** is retried with growing delays while the others are loaded; the status page names it.",
)


def _moment(title: str, description: str) -> Param:
    return field_of_form(None, "string", title, description, format="date-time", pattern=_MOMENT)


OnDag = Callable[[DAG], object]
_ON_FAILURE = "on_failure_callback"


@dataclass(frozen=True, kw_only=True)
class Customization:
    """Arguments of `build_dags` and `build_upkeep_dags`.

    Raises:
        MetadataError: `OPTION_INVALID`: there is no such time zone.

    Attributes:
        default_args: Airflow's, for every task. They take precedence over section [gddl] of Airflow's configuration,
            not over the metadata; a failure callback is called beside that of `notify_connection`.
        on_dag: called with each DAG when it is complete; its result is not used.
        timezone: IANA name of the zone that cron lines and presets are in.
    """

    default_args: Mapping[str, Any] = field(default_factory=dict)
    on_dag: OnDag | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        _ = self.start

    @cached_property
    def start(self) -> datetime:
        """Start date of DAGs: any fixed past moment, since nothing in a DAG may depend on when it is parsed."""
        try:
            return datetime(2024, 1, 1, tzinfo=ZoneInfo(self.timezone))
        except (KeyError, OSError, ValueError) as error:  # unknown, a folder of the database, no name at all
            where, remedy = "timezone of build_dags", "use a name of the IANA database, e.g. Europe/Berlin"
            what = f"no such time zone: {self.timezone!r:.80}"
            raise MetadataError(OPTION_INVALID, what, where=where, remedy=remedy) from error

    @property
    def starts_paused(self) -> bool | None:
        """Null: as `[core] dags_are_paused_at_creation` says."""
        return configuration.is_on("paused_upon_creation") if configuration.text("paused_upon_creation") else None

    def task_defaults(self) -> dict[str, Any]:
        """Arguments of every task: those of section [gddl] that `default_args` leaves out, and the failure callbacks.

        Raises:
            MetadataError: `OPTION_INVALID`.
        """
        configured: dict[str, Any] = {
            "retries": int(configuration.number("retries")),
            "retry_delay": timedelta(seconds=configuration.number("retry_delay_seconds")),
            "weight_rule": "absolute",
        }
        defaults = {name: value for name, value in configured.items() if name not in self.default_args}
        connection = configuration.text("notify_connection") or None
        if connection is not None:
            from airflow_gddl.notifications.webhook import GddlNotifier  # noqa: PLC0415 - imported when needed

            defaults[_ON_FAILURE] = [*_listed(self.default_args.get(_ON_FAILURE)), GddlNotifier(connection=connection)]
        return defaults

    def complete(self, dag: DAG) -> DAG:
        if self.on_dag is not None:
            self.on_dag(dag)
        return dag


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


POLL = timedelta(hours=1)
"""Timeout of polling landing folders or the state of all tables, without a sensor's wait for dependencies."""
_QUEUED = timedelta(hours=1)
"""Time that a run may wait for slots, in addition to a load and one of a cleared instance."""


def of_task(pipeline: Pipeline, continuous_hours: float) -> timedelta | None:
    """As its tier's `run_timeout` says; a continuous job has its hours, and that time for its last batch.

    None: no timeout, for a job without a time limit (`continuous_hours` = 0).
    """
    longest = timedelta(seconds=pipeline.run_timeout)
    if pipeline.timing.kind != "continuous":
        return longest
    return timedelta(hours=continuous_hours) + longest if continuous_hours > 0 else None


def of_run(longest: timedelta | None) -> timedelta | None:
    """Of a DAG whose tasks may each take so long; null for null."""
    return None if longest is None else 2 * longest + _QUEUED


class MetadataProblems(Exception):  # noqa: N818 - the name is the headline of the import error
    """The metadata has problems; the text is for its author."""


def raise_problems(metadata_dir: str | Path | None = None, *, beside: str | Path | None = None) -> None:
    """
    Raises:
        MetadataProblems: naming each invalid row, and files that can't be read.
        FatalError: `CACHE_UNUSABLE`.
    """
    place = configuration.metadata_place(metadata_dir, beside)
    text = problems_text(configuration.compiled_metadata(place, parsing=True))
    if text:
        raise MetadataProblems(f"\n{text}")


def problems_text(compiled: CompiledMetadata) -> str:
    """Why the metadata is not as its author wants it, in lines; empty when it is."""
    state, problems, unbuilt, taken = compiled.state, compiled.problems(), compiled.unbuilt(), compiled.taken()
    lines = []
    if state.stale_since is not None:
        serves = "the last good copy is used" if compiled.pipelines() else "no table is scheduled"
        lines += [f"The metadata can't be read since {state.stale_since}; {serves}:", f"  {state.why}"]
    if state.placement_why:
        lines += ["The DAGs that tables belong to can't be read; the last that were known are used:"]
        lines += [f"  {state.placement_why}"]
    if compiled.cache_trouble:
        lines += ["The compiled metadata is in a temporary folder:", f"  {compiled.cache_trouble}"]
    lines += taken
    if problems:
        lines += [f"{_count(len(problems), 'problem')} in the metadata; every other row is scheduled:"]
        lines += [f"  {problem}" for problem in problems]
    if unbuilt:
        pipelines = _count(len(unbuilt), "pipeline")
        lines += [f"{pipelines} can't be made a DAG; change their rows, the others are scheduled:"]
        lines += [f"  {line}" for line in unbuilt]
    if state.carried:
        lines += [f"{_count(len(state.carried), 'table')} kept as before, because a file can't be read."]
    return "\n".join(lines)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


_LOG = logging.getLogger(__name__)


def build_dags(  # noqa: PLR0913 - what a DAG file may say
    metadata_dir: str | Path | None = None,
    *,
    beside: str | Path | None = None,
    default_args: Mapping[str, Any] | None = None,
    on_dag: OnDag | None = None,
    timezone: str = "UTC",
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> dict[str, DAG]:
    """The DAGs of a metadata folder by DAG id; a worker gets only the one it runs.

    A pipeline that can't be built is omitted, and reported by `dags/gddl_metadata_problems.py`.

    Args:
        metadata_dir: a folder or an `s3://` URL; None: see `configuration.metadata_place`.
        beside: the DAG file, for finding the folder.
        default_args, on_dag, timezone: see `Customization`.
        select: only DAGs with a table that one of these selectors matches, see
            `runtime.table_directory.selected`; empty: all.
        exclude: no DAG with a table that one of these matches.

    Raises:
        GddlError: Airflow's configuration of this package is wrong (`OPTION_INVALID`, `CACHE_UNUSABLE`);
            `OPTION_INVALID`.
        MetadataProblems: the metadata could never be read.
    """
    metadata = configuration.metadata_place(metadata_dir, beside)
    compiled = configuration.compiled_metadata(metadata, parsing=True)
    if compiled.generation is None:  # no table was ever known: without an error, nothing would be seen in Airflow
        raise MetadataProblems(f"\n{problems_text(compiled)}")
    running = get_parsing_context().dag_id
    custom = Customization(default_args=default_args or {}, on_dag=on_dag, timezone=timezone)
    with collector_paused():
        dags, unbuilt = _built(_wanted(compiled, running, select, exclude), Shared.read(metadata, custom))
    if running is None:
        compiled.note_unbuilt(repr((sorted(select), sorted(exclude))), unbuilt)
    return dags


def _built(pipelines: Iterable[Pipeline], shared: Shared) -> tuple[dict[str, DAG], tuple[str, ...]]:
    """DAGs by id, and a line for each pipeline that can't be built."""
    dags, unbuilt = {}, []
    for pipeline in pipelines:
        try:
            dags[pipeline.dag_id] = build_dag(pipeline, shared)
        except Exception as error:  # noqa: BLE001 - an error in one pipeline must not affect the others
            _LOG.exception("%s can't be built", pipeline.dag_id)
            unbuilt.append(f"{pipeline.dag_id}: {type(error).__name__}: {error}"[:500])
    return dags, tuple(unbuilt)


def _wanted(
    compiled: CompiledMetadata, running: str | None, select: Sequence[str], exclude: Sequence[str]
) -> Iterable[Pipeline]:
    """All pipelines that are selected, or in a worker the one whose DAG it runs."""
    if running is None:
        directory = compiled.directory() if select or exclude else None
        if directory is None:
            return compiled.served()
        from airflow_gddl.runtime.table_directory import selected  # noqa: PLC0415 - imported when needed

        chosen = {row.dag_id for row in selected(directory.rows, select)}
        chosen -= {row.dag_id for row in selected(directory.rows, exclude)} if exclude else set()
        return [pipeline for pipeline in compiled.served() if pipeline.dag_id in chosen]
    entry = compiled.entry(running)
    return () if entry is None else (entry,)


_READ_ONCE = ("max_active_tasks", "max_consecutive_failed_dag_runs", "disable_bundle_versioning")
"""Arguments of a DAG that Airflow reads from its configuration when they are left out."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Values shared by the DAGs of a metadata folder, read once: ten of Airflow's options cost as much as a task.

    Attributes:
        form: their params; DAGs may share them, since a process that sets values runs only one DAG.
        form_of_one: the same of DAGs for one table.
        declares_assets: whether tasks name the assets of their table: where DAGs are parsed to be stored. A task that
            runs names none, since Airflow fails one whose asset has the name of another asset.
        each_task: arguments of every task. `waits`: of those that may wait in the triggerer. `polls`: of the sensor.
        of_dag: what Airflow would read from its configuration for each DAG, and which kinds of runs it may have.
        custom: customization of the DAG file.
        running_task: id of the task that this worker runs; None: none, or `on_dag` may ask for any task.
    """

    form: dict[str, Param]
    form_of_one: dict[str, Param]
    declares_assets: bool
    paused: bool | None
    sensor_timeout: timedelta
    continuous_hours: float
    active_runs: int
    each_task: Mapping[str, Any]
    waits: Mapping[str, Any]
    polls: Mapping[str, Any]
    of_dag: Mapping[str, Any]
    custom: Customization
    running_task: str | None

    @classmethod
    def read(cls, metadata: str, custom: Customization) -> Shared:
        usual = DAG("usual", schedule=None)
        waits = {} if "deferrable" in custom.default_args else {"deferrable": configuration.is_deferrable()}
        return cls(
            form=params(),
            form_of_one=params(one_table=True),
            declares_assets=get_parsing_context().dag_id is None,
            paused=custom.starts_paused,
            sensor_timeout=POLL + timedelta(seconds=configuration.number("dependency_wait_seconds")),
            continuous_hours=configuration.number("continuous_hours"),
            active_runs=max(1, int(configuration.number("active_runs"))),
            each_task={"metadata": metadata, **custom.task_defaults()},
            waits=waits,
            polls=poll_times(),
            of_dag={**{name: getattr(usual, name) for name in _READ_ONCE}, **without_backfills()},
            custom=custom,
            running_task=get_parsing_context().task_id if custom.on_dag is None else None,
        )


def build_dag(pipeline: Pipeline, shared: Shared) -> DAG:
    """One pipeline's DAG: landed ► initial_load, incremental_load, or one task for a continuous job.

    It doesn't hold the list of a pack's tables, unless each has a group.
    """
    is_continuous = pipeline.timing.kind == "continuous"
    longest = of_task(pipeline, shared.continuous_hours)
    with DAG(
        dag_id=pipeline.dag_id,
        schedule=None if pipeline.is_retired else schedule_of(pipeline.timing, shared.custom.timezone),
        start_date=shared.custom.start,
        catchup=False,
        max_active_runs=1 if is_continuous else shared.active_runs,
        dagrun_timeout=of_run(longest),
        is_paused_upon_creation=shared.paused,
        tags=[*pipeline.tags, *(["retired"] if pipeline.is_retired else [])],
        doc_md=documentation(pipeline),
        default_args=dict(shared.custom.default_args),
        **shared.of_dag,
    ) as dag:
        # Passed to each task and not to the DAG: default_args of a DAG are serialized and validated again.
        task_arguments: dict[str, Any] = {"pipeline": pipeline.dag_id, "priority_weight": pipeline.weight}
        if pipeline.owner != NO_OWNER or "owner" not in shared.custom.default_args:
            usual = str(shared.custom.default_args.get("owner", NO_OWNER))
            owners = (usual if name == NO_OWNER else name for name in pipeline.owner.split(", "))
            task_arguments["owner"] = ", ".join(sorted(set(owners)))
        task_arguments["execution_timeout"] = longest
        common = {**shared.each_task, **task_arguments}
        if is_continuous:
            loads = {**common, **shared.waits, **AGAIN, **workers(pipeline), "outlets": _assets(pipeline, shared)}
            GddlContinuousOperator(task_id="continuous_load", pool=CONTINUOUS_POOL, **loads)
        else:
            _loads(pipeline, shared, common)
    # Set after the tasks are created: otherwise each has a copy, which Airflow validates dozens of times in each parse.
    # Bypasses the validation of an ordinary assignment, which takes two thirds of the time to build a DAG.
    object.__setattr__(dag, "params", ParamsDict(shared.form_of_one if pipeline.view == "table" else shared.form))
    return shared.custom.complete(dag)


def workers(pipeline: Pipeline) -> dict[str, Any]:
    """Arguments of a task that starts jobs: on which workers of Airflow it runs."""
    arguments: dict[str, Any] = {} if pipeline.queue is None else {"queue": pipeline.queue}
    return {**arguments, "executor_config": dict(pipeline.executor_config)} if pipeline.executor_config else arguments


AGAIN: dict[str, Any] = {
    "retries": 10,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}
"""Retries of a continuous job with growing delays; after the last one the run fails, failure callbacks are called, and
the next run starts."""
INITIAL_TITLE = "initial_load, rebuild"
"""How Airflow shows the task of first loads, since it carries out rebuilds and reloads, too."""


def _loads(pipeline: Pipeline, shared: Shared, common: dict[str, Any]) -> None:
    """landed, and after it initial_load and incremental_load side by side, which load different tables.

    In the view `mapped`, a task after each of them is mapped over its tables; in the view `group`, each table has a
    group of tasks after them.
    """
    of_sensor = {**common, **shared.waits, "execution_timeout": shared.sensor_timeout}
    landed = GddlTablesSensor(task_id="landed", polls=shared.polls, **of_sensor)
    by_table = pipeline.view if pipeline.view in ("group", "mapped") else None
    loads = {**common, **workers(pipeline), "pool": pipeline.pool, "outlets": _assets(pipeline, shared)}
    load_arguments: dict[str, Any] = {"by_table": by_table, **shared.waits, **loads}
    initial = GddlInitialLoadOperator(task_id="initial_load", task_display_name=INITIAL_TITLE, **load_arguments)
    increments = GddlIncrementalLoadOperator(task_id="incremental_load", **load_arguments)
    landed >> [initial, increments]
    each = {**loads, "pool": pool_of_instances(pipeline.pool), "do_xcom_push": False}
    if by_table == "group":
        for table in _grouped(pipeline.tables, shared.running_task):
            add_group(table, landed, (initial, increments), each)
    elif by_table == "mapped":
        for load in (initial, increments):
            mapped_over = GddlTableOperator.partial(
                task_id=MAPPED_TASKS[load.stage],
                map_index_template="{{ task.outcome['table'][:250] }}",
                load=load.task_id,
                stage=load.stage,
                **each,
            )
            mapped_over.expand(outcome=load.output)


def _grouped(tables: Sequence[str], running: str | None) -> Sequence[str]:
    """Tables whose groups are built: all, or for a worker those that its task concerns.

    Args:
        running: task id; None: all. The sensor's task concerns all, a load none, another one that of its group.
    """
    if running in (None, "landed"):
        return tables
    return [table for table in tables if group_of(table) == str(running).partition(".")[0]]


def _assets(pipeline: Pipeline, shared: Shared) -> list[Asset]:
    """Outlets known before a run; the changed tables of a pack are not."""
    declared = pipeline.view == "table" and shared.declares_assets
    return [table_asset(table) for table in pipeline.tables] if declared else []


def schedule_of(timing: Timing, timezone: str, **of_cron: Any) -> Any:
    """Airflow's form of a timing.

    Args:
        timezone: of cron lines.
        of_cron: further arguments of the timetable of a cron line, hashable.
    """
    if timing.kind == "cron":
        return cron_timetable(timing.cron, timezone=timezone, written=timing.written, **of_cron)
    if timing.kind == "assets":
        return [Asset(name) for name in timing.assets]
    return {"once": "@once", "continuous": "@continuous", "never": None}[timing.kind]


class GddlTaskGroup(TaskGroup):
    """A `GddlLoadOperator` for each selected table, or for each DAG that loads some of them otherwise.

    The metadata decides which tasks there are: a new table that is selected is a new version of the DAG.

    Args:
        tables, select, exclude: see `GddlLoadOperator`; not templated, since they are read when the DAG is parsed.
        metadata: folder or `s3://` URL; None: see `configuration.metadata_place`.
        beside: the DAG file, for finding the folder.
        by_table: a task and a job for each table; false: a task for each DAG, whose tables share a job, in the order of
            `depends_on`.
        operator_args: arguments of every `GddlLoadOperator`.

    Raises:
        MetadataProblems: the metadata could never be read.
        MetadataError: `OPTION_INVALID`: no table; `OPTION_INVALID`, `TABLE_AMBIGUOUS`.
    """

    def __init__(  # noqa: PLR0913 - what a DAG file may say
        self,
        group_id: str = "gddl",
        *,
        tables: Sequence[str] = (),
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: str | Path | None = None,
        beside: str | Path | None = None,
        by_table: bool = True,
        operator_args: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        from airflow_gddl.runtime.landing.run_request import loaded_by, requested  # noqa: PLC0415 - when needed

        super().__init__(group_id=group_id, **kwargs)
        place = configuration.metadata_place(metadata, beside)
        compiled = configuration.compiled_metadata(place, parsing=True)
        directory = compiled.directory()
        if directory is None:
            raise MetadataProblems(f"\n{problems_text(compiled)}")
        homes = loaded_by(requested(directory, tables, select, exclude), directory)
        parts: dict[str, list[str]] = {}
        for table, dag_id in homes.items():
            parts.setdefault(table if by_table else dag_id, []).append(table)
        with self:
            for task_id, names in parts.items():
                GddlLoadOperator(task_id=task_id, tables=names, metadata=place, **(operator_args or {}))
