"""What an edit of the metadata does to what is deployed: tables, their data, DAGs and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from airflow_gddl.cli.screen import Cell, Screen, counted, number_columns, safe
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_identity import BUILT_FIELDS, COLUMN_FIELDS, Repair, value_of
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.metadata.problems import Problem, show
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.tools.capacity.plan import Plan, ViewChange, changed_views
from airflow_gddl.topology.pipelines import Pipeline

Kind = Literal["new", "removed", "renamed", "changed", "invalid"]
# In `shard_landings`, `shard_origins` and `expressions` is what other fields say; a target is the table's name.
_RESOLVED = (
    "table", "target", "source_table", "landing", "shard_landings", "shard_origins", "expressions", "mask_key_id"
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A field or a setting, and its values as they may be shown; empty: not set."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """One table that the edit changes.

    Attributes:
        table: its name in the lake after the edit; of a removed one, before.
        kind: `invalid`: its row was valid, and has problems now.
        fields: those of its row that differ, defaults applied.
        effects: what happens at the next runs, each a sentence.
        commands: to run after the edit is deployed, in order; without them the table's runs fail.
        dag: id of the DAG that loads it before and after; None: none.
        rows: of the replica, which a rebuild or a reload writes again; None: not known, or it has none.
    """

    table: str
    kind: Kind
    fields: tuple[Change, ...] = ()
    effects: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    dag: tuple[str | None, str | None] = (None, None)
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class MetadataDiff:
    """What `gddl plan --diff --json` prints.

    Attributes:
        revision: that the metadata folder is compared with.
        settings: of `gddl.yaml` that differ.
        tables: those that the edit changes, sorted.
        views: DAG id to what Airflow shows of its tables, before and after; only where these differ.
        cost: by figure, before and after; None: nothing could be planned.
        problems: of the metadata after the edit that were not there before.
        solved: number of problems that were there before, and are no more.
        has_records: false: no record of a run was read from the lake, so that each table counts as loaded.
    """

    revision: str
    settings: tuple[Change, ...] = ()
    tables: tuple[TableChange, ...] = ()
    views: Mapping[str, ViewChange] = field(default_factory=dict)
    cost: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    solved: int = 0
    has_records: bool = True

    @property
    def is_without_records(self) -> bool:
        """Whether something is said of tables that past runs could contradict."""
        return bool(self.tables) and not self.has_records

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(command for table in self.tables for command in table.commands)


@dataclass(frozen=True)
class Deployment:
    """One side of the comparison.

    Attributes:
        plan: null where no table is enabled.
    """

    loaded: LoadedMetadata
    pipelines: Sequence[Pipeline]
    plan: Plan | None

    @property
    def dags(self) -> dict[str, str]:
        """Id of the DAG that loads a table, by table."""
        return {table: pipeline.dag_id for pipeline in self.pipelines for table in pipeline.tables}

    @property
    def views(self) -> dict[str, AirflowView]:
        return {pipeline.dag_id: pipeline.view for pipeline in self.pipelines}


def compare(
    before: Deployment, after: Deployment, records: Mapping[str, TableRecord] | None, revision: str
) -> MetadataDiff:
    """
    Args:
        records: past runs by table; None: not known which tables are loaded, and then all of them may be.
    """
    problems = {_identity(problem) for problem in before.loaded.problems}
    remaining = {_identity(problem) for problem in after.loaded.problems}
    return MetadataDiff(
        revision=revision,
        settings=tuple(_settings(before.loaded, after.loaded)),
        tables=tuple(sorted(_tables(before, after, records), key=lambda one: one.table)),
        views=changed_views(before.views, after.views),
        cost=_cost(before.plan, after.plan),
        problems=tuple(one for one in after.loaded.problems if _identity(one) not in problems),
        solved=len(problems - remaining),
        has_records=records is not None,
    )


def _identity(problem: Problem) -> tuple[object, ...]:
    return problem.code, problem.table, problem.field, problem.value, problem.message, problem.file


def _tables(before: Deployment, after: Deployment, records: Mapping[str, TableRecord] | None) -> Iterator[TableChange]:
    old, new = ({spec.qualified_name: spec for spec in side.loaded.tables} for side in (before, after))
    bad = {problem.table for problem in after.loaded.problems}
    dags = before.dags, after.dags
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        moved = (dags[0].get(was.table) if was else None, dags[1].get(now.table) if now else None)
        if was is None and now is not None:
            loads = "its first load takes all files of its landing folder"
            effect = loads if now.enabled else "it is not loaded: enabled is false"
            yield TableChange(table=now.table, kind="new", effects=(effect,), dag=moved)
        elif now is None and was is not None:
            is_invalid = not bad.isdisjoint((name, was.table, was.name_in_source))
            text = "its metadata row is invalid: it is no longer loaded" if is_invalid else "it is no longer loaded"
            effects = (f"{text}; its tables in the lake stay",)
            yield TableChange(table=was.table, kind="invalid" if is_invalid else "removed", effects=effects, dag=moved)
        elif was is not None and now is not None and (was != now or moved[0] != moved[1]):
            yield _changed(was, now, moved, records)


def _changed(
    was: TableSpec, now: TableSpec, dag: tuple[str | None, str | None], records: Mapping[str, TableRecord] | None
) -> TableChange:
    record = None if records is None else records.get(was.table, TableRecord())
    is_loaded = record is None or record.succeeded is not None or record.rows is not None
    effects, commands = [], []
    for step in _steps(was, now) if is_loaded else ():
        effects.append(step.effect)
        commands.append(step.command)
    if was.enabled != now.enabled:
        effects.append("it is loaded again" if now.enabled else "it is no longer loaded; its tables in the lake stay")
    if dag[0] and dag[1] and dag[0] != dag[1]:
        effects.append(f"DAG {dag[1]} loads it, no longer {dag[0]}")
    if not is_loaded:
        effects.append("it is not loaded yet; its first load uses the new row")
    commands = [one for one in dict.fromkeys(commands) if one]
    if any("gddl reload" in one for one in commands):  # which takes the other changes, too
        commands = [one for one in commands if "gddl rebuild" not in one]
    return TableChange(
        table=now.table,
        kind="renamed" if was.table != now.table else "changed",
        fields=tuple(_fields(was, now)),
        effects=tuple(effects) or ("it holds from the next run on",),
        commands=tuple(commands),
        dag=dag,
        rows=record.rows if record and commands else None,
    )


def _fields(was: TableSpec, now: TableSpec) -> Iterator[Change]:
    for name in (one.name for one in fields(TableSpec) if one.name not in _RESOLVED):
        earlier, later = plain(getattr(was, name)), plain(getattr(now, name))
        if isinstance(earlier, dict) and isinstance(later, dict):
            for key in sorted({*earlier, *later}):
                if earlier.get(key) != later.get(key):
                    yield _shown((name, key), earlier.get(key), later.get(key))
        elif earlier != later:
            yield _shown((name,), earlier, later)
    if was.landing != now.landing:
        yield _shown(("landing",), was.landing, now.landing)
    if was.table != now.table:
        yield _shown(("target",), was.table, now.table)


def _shown(path: tuple[str, ...], before: object, after: object) -> Change:
    texts = ["" if value in (None, (), [], {}) else show(value, path) for value in (before, after)]
    return Change(".".join(path), *texts)


@dataclass(frozen=True)
class _Step:
    effect: str
    command: str


def _steps(was: TableSpec, now: TableSpec) -> Iterator[_Step]:
    """What the data of a loaded table need; jobs refuse the row until then (`spark_jobs.plan.identity`)."""
    if was.table != now.table:
        yield _Step(f"it is loaded again into {now.table}; {was.table} stays, and is no longer written", "")
    if bool(was.shards) != bool(now.shards):
        yield _Step("it needs a new target, into which it is loaded (SHARDS_CHANGED)", "")
    for name in sorted({**BUILT_FIELDS, **COLUMN_FIELDS}):
        built = BUILT_FIELDS.get(name) or COLUMN_FIELDS[name]
        before = value_of(was, name)
        if built.differs(before, value_of(now, name)):
            yield _of_built(now, name, built.repair(before))
    for option in ("types", "log_began"):
        if was.options.get(option) != now.options.get(option):
            yield _of_built(now, f"options.{option}", "rebuild")


_COMMANDS: Mapping[Repair, str] = {"rebuild": "gddl rebuild", "reload": "gddl reload --from-files"}


def _of_built(now: TableSpec, name: str, repair: Repair) -> _Step:
    """Where a field was changed by which the tables were built."""
    fail = "runs fail" if name in BUILT_FIELDS else "runs may fail"
    if name in COLUMN_FIELDS:
        fail += " if the column is stored"
    if now.shards and name != "partition_by":
        return _Step(f"{name}: {fail}; a table with shards has to be loaded into a new target", "")
    again = "they are rebuilt" if repair == "rebuild" else "the table is loaded again from the files that are there"
    effect = f"{name}: its tables are built with the former value; until {again}, {fail}"
    return _Step(effect, f"{_COMMANDS[repair]} --table {now.table}")


def _settings(before: LoadedMetadata, after: LoadedMetadata) -> Iterator[Change]:
    """Settings that differ, those of tiers by field."""
    for name in ("landing", "lake"):
        if getattr(before.roots, name) != getattr(after.roots, name):
            yield _shown((name,), getattr(before.roots, name), getattr(after.roots, name))
    for name in ("runner", "aws_conn_id", "dag_prefix"):
        if getattr(before, name) != getattr(after, name):
            yield _shown((name,), getattr(before, name), getattr(after, name))
    for section in ("tiers", "runners", "catalogs", "landings"):
        yield from _differences((section,), plain(getattr(before, section)), plain(getattr(after, section)), depth=2)


def _differences(path: tuple[str, ...], was: Any, now: Any, depth: int) -> Iterator[Change]:
    if was == now:
        return
    if depth and isinstance(was or {}, dict) and isinstance(now or {}, dict):
        was, now = was or {}, now or {}
        for name in sorted({*was, *now}):
            yield from _differences((*path, name), was.get(name), now.get(name), depth - 1)
    else:
        yield _shown(path, was, now)


def _cost(before: Plan | None, after: Plan | None) -> dict[str, tuple[int | None, int | None]]:
    """Counts of each side's busiest day."""

    def of(plan: Plan | None) -> dict[str, int]:
        return {} if plan is None else {"tables": plan.tables, "dags": plan.dags, "runs": plan.runs}

    was, now = of(before), of(after)
    return {name: (was.get(name), now.get(name)) for name in _COST}


_COST = {"tables": "tables", "dags": "DAGs", "runs": "runs of the busiest day"}
_MOST_IN_COMMENT = 100
"""Tables that a comment names: GitHub takes 65,536 characters."""


def show_diff(screen: Screen, diff: MetadataDiff) -> None:
    """Show what an edit does to what is deployed."""
    screen.say(_headline(diff), "bold")
    for setting in diff.settings:
        screen.spans([Cell(f"  gddl.yaml {setting.name}  ", "cyan"), Cell(_arrow(setting))])
    for one in diff.tables:
        screen.say("")
        screen.spans([Cell(one.table, "bold"), Cell(f"  {one.kind}", _KINDS[one.kind])])
        for changed in one.fields:
            screen.spans([Cell(f"  {changed.name}  ", "dim"), Cell(_arrow(changed))])
        for effect in one.effects:
            screen.say(f"  {effect}")
        for command in one.commands:
            screen.spans([Cell("  run  ", "bold yellow"), Cell(command), Cell(_of_rows(one), "dim")])
    if diff.views:
        screen.say("")
    for dag_id, views in diff.views.items():
        screen.say(as_shown(dag_id, views))
    rows = [[_COST[name], *map(_number, pair), _by(*pair)] for name, pair in diff.cost.items()]
    screen.say("")
    if diff.is_without_records:
        screen.say(f"{_WITHOUT_RECORDS}\n", "yellow")
    screen.table(("", *number_columns("before", "after", "change")), rows)


def as_shown(dag_id: str, views: ViewChange) -> str:
    """What becomes of the grid of a DAG whose tables are shown otherwise."""
    before, after = views
    what = f"{dag_id}: Airflow shows its tables as {after}, no longer as {before}"
    return f"{what}; earlier runs keep their tasks. To keep the view: airflow: {before} in the tier"


_WITHOUT_RECORDS = (
    "No record of a run was read from the lake: each table that has a row before the edit counts as loaded."
)
_KINDS = {"new": "green", "removed": "red", "invalid": "bold red", "renamed": "yellow", "changed": "yellow"}


def as_markdown(diff: MetadataDiff) -> str:
    """The same as a comment on a pull request."""
    lines = [f"### gddl plan: {_headline(diff)}", ""]
    if diff.settings:
        lines += ["| setting | before | after |", "|---|---|---|"]
        lines += [f"| {_code(one.name)} | {_code(one.before)} | {_code(one.after)} |" for one in diff.settings] + [""]
    if diff.tables:
        lines += ["| table | | fields | what happens |", "|---|---|---|---|"]
        lines += [_line(one) for one in diff.tables[:_MOST_IN_COMMENT]]
        if (more := len(diff.tables) - _MOST_IN_COMMENT) > 0:
            lines.append(f"| and {counted(more, 'table')} more | | | see `gddl plan --diff {diff.revision}` |")
        lines.append("")
    if diff.views:
        lines += [*(f"- {as_shown(dag_id, views)}" for dag_id, views in diff.views.items()), ""]
    if diff.commands:
        commands = diff.commands[:_MOST_IN_COMMENT]
        lines += ["Run after the edit is deployed:", "```sh", *commands, "```", ""]
    if diff.is_without_records:
        lines += [_WITHOUT_RECORDS, ""]
    lines += ["| | before | after | change |", "|---|---:|---:|---:|"]
    for name, (before, after) in diff.cost.items():
        lines.append(f"| {_COST[name]} | {_number(before)} | {_number(after)} | {_by(before, after)} |")
    if diff.problems:
        lines += ["", f"**{counted(len(diff.problems), 'new problem')} in the metadata**", ""]
        lines += [f"- {_code(problem.place)} `{problem.code}` {_code(problem.text)}" for problem in diff.problems[:20]]
    return "\n".join(lines)


def _headline(difference: MetadataDiff) -> str:
    kinds = Counter(one.kind for one in difference.tables)
    parts = [f"{number:,} {kind}" for kind, number in kinds.items()]
    if commands := len([one for one in difference.tables if one.commands]):
        parts.append(f"{commands:,} to repair")
    if difference.settings:
        parts.append(counted(len(difference.settings), "setting"))
    return f"changes since {difference.revision}: {', '.join(parts) or 'none'}"


def _line(one: TableChange) -> str:
    changed = "<br>".join(f"{_code(field.name)} {_code(_arrow(field))}" for field in one.fields)
    effects = "<br>".join(one.effects)
    return f"| {_code(one.table)} | {one.kind} | {changed} | {effects}{_of_rows(one)} |"


def _arrow(changed: Change) -> str:
    return f"{changed.before or 'not set'} → {changed.after or 'not set'}"


def _of_rows(one: TableChange) -> str:
    return f" ({counted(one.rows, 'row')})" if one.rows is not None else ""


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _by(before: int | None, after: int | None) -> str:
    difference = (after or 0) - (before or 0)
    return f"{difference:+,}" if difference else ""


def _code(text: str) -> str:
    """For a cell of a table in Markdown: in code neither HTML nor names of users have an effect."""
    return f"`{safe(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`" if text else ""


def show_result(screen: Screen, diff: MetadataDiff, *, json: bool, markdown: bool) -> None:
    if json:
        screen.record(diff)
    elif markdown:
        screen.dictate(as_markdown(diff))
    else:
        show_diff(screen, diff)
