"""DAGs for maintenance and verification, with a task for each tier, for reruns, and the watch for late tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from airflow_gddl import configuration
from airflow_gddl.dags.factory import (
    POLL,
    Customization,
    OnDag,
    field_of_form,
    of_run,
    params,
    schedule_of,
    windows,
    workers,
)
from airflow_gddl.operators.jobs import (
    GddlFindOperator,
    GddlNewTablesOperator,
    GddlRefusedOperator,
    GddlUpkeepOperator,
    GddlWatchOperator,
    Upkeep,
)
from airflow_gddl.topology.pipelines import NO_OWNER, Pipeline, Timing, timing
from airflow_gddl.version_compat import without_backfills

DAGS: dict[str, tuple[Upkeep, str]] = {
    "gddl_maintenance": (
        "maintain",
        "Compacts small files and removes unreferenced ones; readers see no change.",
    ),
    "gddl_verify": (
        "verify",
        "Compares each replica with its changes, and with its source where a connection is named.",
    ),
}
"""Action and doc page by DAG id."""
WATCH, RERUN, NEW_TABLES = "gddl_watch", "gddl_rerun", "gddl_new_tables"
_LONGEST = timedelta(hours=24)
"""That the tables of a tier may be maintained or compared."""


_RERUN_PAGE = """Reruns tables by name, independent of the DAG that loads them.

Trigger it with *Tables*; the other fields are those of the tables' own DAGs. **find** finds these, **rerun** triggers a
run of each: its link leads there. **refused** fails where no DAG loads one of the tables, and names it.
Over REST: `POST /api/v2/dags/gddl_rerun/dagRuns` with
`{"logical_date": null, "conf": {"tables": ["shop.orders"]}}`.
"""


def build_upkeep_dags(
    metadata_dir: str | Path | None = None,
    *,
    beside: str | Path | None = None,
    default_args: Mapping[str, Any] | None = None,
    on_dag: OnDag | None = None,
    timezone: str = "UTC",
) -> dict[str, DAG]:
    """The DAGs by id, a task for each tier that has tables; none where there are no tables, and no source asks for
    proposals of new ones.

    The watch exists only where alerts are configured, the look for new tables only where a source asks for it.

    Args:
        metadata_dir, beside: see `factory.build_dags`.
        default_args, on_dag, timezone: see `Customization`.

    Raises:
        GddlError: Airflow's configuration of this package is wrong (`OPTION_INVALID`, `CACHE_UNUSABLE`).
    """
    running = get_parsing_context().dag_id
    notifies = bool(configuration.text("alert_notifiers") or configuration.text("notify_connection"))
    # The metadata, which has the prefix of ids, is not read when another DAG runs.
    wanted = [
        name
        for name in (*DAGS, RERUN, *([WATCH] if notifies else []), NEW_TABLES)
        if running is None or running.endswith(name)
    ]
    if not wanted:
        return {}
    metadata = configuration.metadata_place(metadata_dir, beside)
    compiled = configuration.compiled_metadata(metadata, parsing=True)
    tiers = {pipeline.tier: pipeline for pipeline in compiled.pipelines()}
    prefix, proposes = compiled.settings_of_dags()
    wanted = [name for name in wanted if (proposes if name == NEW_TABLES else tiers)]
    custom = Customization(default_args=default_args or {}, on_dag=on_dag, timezone=timezone)
    common = _Common(metadata=metadata, prefix=prefix, custom=custom)
    other = {WATCH: _watch, RERUN: _rerun, NEW_TABLES: _new_tables}
    made = [other[name](common, name) if name in other else _dag(name, common, tiers) for name in wanted]
    if running is None:
        compiled.note_upkeep(dag.dag_id for dag in made)
    return {dag.dag_id: custom.complete(dag) for dag in made if running in (None, dag.dag_id)}


@dataclass(frozen=True, kw_only=True)
class _Common:
    """Values shared by these DAGs; `prefix` begins their ids."""

    metadata: str
    prefix: str
    custom: Customization


def _rerun(common: _Common, _: str) -> DAG:
    """A stable address of every table: its DAG is found at run time."""
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator  # noqa: PLC0415 - only here

    metadata = common.metadata
    page = _RERUN_PAGE.replace(RERUN, f"{common.prefix}{RERUN}")
    with _empty(common, RERUN, None, page, POLL) as dag:
        find_task = GddlFindOperator(task_id="find", metadata=metadata)
        rerun = TriggerDagRunOperator.partial(
            task_id="rerun", map_index_template="{{ task.trigger_dag_id }}"
        ).expand_kwargs(find_task.output)
        refused = GddlRefusedOperator(task_id="refused", found_by="find")
        rerun >> refused
    form = {name: field for name, field in params().items() if name != "all"}
    object.__setattr__(dag, "params", ParamsDict(form))
    return dag


def _watch(common: _Common, _: str) -> DAG:
    page = "Sends alerts for tables that become late, fail or recover, and for invalid rows, also while nothing loads."
    with _empty(common, WATCH, "watch_schedule", page, POLL) as dag:
        GddlWatchOperator(task_id="look", metadata=common.metadata)
    return dag


def _new_tables(common: _Common, _: str) -> DAG:
    page = "Looks for tables without a metadata row at sources that ask for it (`new_tables` in gddl.yaml), and"
    page += " proposes their rows. Trigger it with *Accept* or *Ignore* to decide on some."
    with _empty(common, NEW_TABLES, "watch_schedule", page, POLL) as dag:
        GddlNewTablesOperator(task_id="look", metadata=common.metadata)
    object.__setattr__(dag, "params", ParamsDict(_decisions()))
    return dag


def _decisions() -> dict[str, Param]:
    """The form's fields; without any of them, the DAG looks."""
    names: dict[str, Any] = {"items": {"type": "string", "maxLength": 400}, "maxItems": 200}
    texts = {
        "accept": "source:schema.name, one a line: write the proposed rows into the metadata folder, or show them.",
        "ignore": "source:schema.name, one a line: never propose these.",
        "keys": "Key columns of the only table that is accepted, one a line; empty: those that were found.",
    }
    return {name: field_of_form([], "array", name.capitalize(), text, **names) for name, text in texts.items()}


def _empty(common: _Common, name: str, option: str | None, page: str, longest: timedelta = _LONGEST) -> DAG:
    """DAG without tasks; `option` names its schedule (None: manual only), and `longest` is the task timeout."""
    custom = common.custom
    written = configuration.text(option) if option else ""
    when = timing(written, name) if written else Timing(kind="never")
    return DAG(
        dag_id=f"{common.prefix}{name}",
        # As tables have it, but that a new DAG's first run is the next one, not the one that would have been before.
        schedule=schedule_of(when, custom.timezone, run_immediately=timedelta(0)),
        catchup=False,
        max_active_runs=1 if option else 16,
        dagrun_timeout=of_run(longest),
        is_paused_upon_creation=custom.starts_paused,
        tags=["gddl", "upkeep"],
        doc_md=page,
        **without_backfills(),
        default_args={
            "owner": NO_OWNER,
            "priority_weight": 1,
            "execution_timeout": longest,
            **custom.default_args,
            **custom.task_defaults(),
        },
    )


def _dag(name: str, common: _Common, tiers: dict[str, Pipeline]) -> DAG:
    action, page = DAGS[name]
    option = "maintenance_schedule" if action == "maintain" else "verify_schedule"
    with _empty(common, name, option, f"{page}\n\nTrigger it with *Tables* to process only some.") as dag:
        for tier, pipeline in sorted(tiers.items()):
            of_tier = {"tier": tier, "pool": pipeline.pool, **workers(pipeline)}
            GddlUpkeepOperator(task_id=f"{action}_{tier}", metadata=common.metadata, action=action, **of_tier)
    # As in `factory.build_dag`: tasks have no copies of it.
    object.__setattr__(
        dag, "params", ParamsDict({"tables": params()["tables"], **(windows() if action == "verify" else {})})
    )
    return dag
