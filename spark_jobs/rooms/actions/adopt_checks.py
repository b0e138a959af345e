"""What an adoption asks of a row and of a replica before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_gddl.contract.codes import ADOPT_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import few
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.table_schema import GDDL, RESCUED
from spark_jobs.rules.arrays import schema_of
from spark_jobs.rules.baseline_rows import BaselineFigures
from spark_jobs.rules.verify import SharedKeys
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import DamagedLogError, ReplayedLog, replayed
from spark_jobs.tables.snapshots import BESIDE_SPARK, require_known
from spark_jobs.tables.table_context import TableContext


def refused(run: TableRun, what: str, remedy: str, where: str = "") -> FatalError:
    """`ADOPT_REFUSED`; `where`: empty: the replica."""
    return FatalError(ADOPT_REFUSED, f"{run.spec.table}: {what}", where=where or run.layout.replica, remedy=remedy)


def require_possible(run: TableRun) -> None:
    """Require that a row can be adopted: stored rows must be able to follow its fields.

    Raises:
        FatalError: `ADOPT_REFUSED`: the row asks for what rows of another job can't be.
    """
    for what, remedy in _impossible(run.spec):
        raise refused(run, what, remedy, run.spec.table)


def require_seen_commits(run: TableRun) -> None:
    """Require a place whose Delta sees the commit of the adoption.

    Raises:
        FatalError: `ADOPT_REFUSED`: the Delta of this place sees no commits of ours.
    """
    if "DATABRICKS_RUNTIME_VERSION" in run.runtime.environ:
        remedy = f"run `gddl adopt --table {run.spec.table}` on another machine that reaches the lake"
        raise refused(run, "Delta on Databricks does not see the commit that adds _gddl", remedy)


def _impossible(spec: TableSpec) -> Iterator[tuple[str, str]]:
    first = "adopt the table without it; then set it, and follow what the next run says"
    if spec.shards:
        yield "a table of several sources can't be adopted: it is not known which row is of which", "load it again"
    if not spec.keys:
        yield "a table without keys can't be adopted: its rows can't be told apart", "name its keys"
    if spec.mode != "changes" or spec.dialect != "dms":
        yield (
            f"only tables of change files by AWS DMS can be adopted (mode {spec.mode}, {spec.dialect})",
            "load it again",
        )
    if spec.delete == "soft":
        what = "with `delete: soft` conditions of readers would leave out its rows, in which `_gddl.deleted` is null"
        yield what, "adopt the table with delete: hard, then set delete: soft, which writes its files again"
    for field in ("mask", "where", "derive"):
        if getattr(spec, field):
            yield f"the metadata row has `{field}`, which stored rows need not follow", first
    if spec.columns is not None or spec.exclude_columns:
        yield "the metadata row selects columns, which the stored ones need not follow", first


def log_of(run: TableRun) -> ReplayedLog:
    """The replica's log.

    Raises:
        FatalError: `ADOPT_REFUSED`: there is no table, or one that our commits can't go on with.
    """
    try:
        log = replayed(run.runtime.storage, run.layout.replica)
        if log is None:
            raise refused(run, "there is no Delta table", "set `target` or `lake` to where the table is")
        require_known(log, BESIDE_SPARK)
    except (DeclinedError, DamagedLogError) as error:
        remedy = "remove the feature with the writer that has set it, where that is possible; else load the table again"
        raise refused(run, f"the table can't be adopted in place: {error}", remedy) from error
    wanted, names = run.spec.partition_by, ", ".join(log.partition_by)
    if [name.lower() for name in wanted] != [name.lower() for name in log.partition_by]:
        what = f"the table is partitioned by [{names}], the metadata row by [{', '.join(wanted)}]"
        raise refused(run, what, f"write `partition_by: [{names}]` into the metadata row")
    return log


def require_columns(run: TableRun, log: ReplayedLog) -> None:
    """Require that the table's columns fit the row.

    Raises:
        FatalError: `ADOPT_REFUSED`.
    """
    try:
        names = schema_of(log.schema).names
    except (TypeError, ValueError, KeyError) as error:
        what = f"a column has a type that is not known here: {error}"
        raise refused(run, what, "give it another type, or load the table again") from error
    if taken := [name for name in names if name.lower() in (GDDL, RESCUED.lower())]:
        release = f"`gddl adopt --release --table {run.spec.table}`"
        remedy = f"where an earlier adoption has left it, {release}; else give it another name"
        raise refused(run, f"the table has a column {taken[0]}, a name that we use", remedy)
    there = set(lowered(names))
    if lacking := [key for key in run.spec.keys if key.lower() not in there]:
        what = f"the table has no key column {lacking[0]}; it has {', '.join(names)}"
        raise refused(run, what, "correct `keys` in the metadata row")


def require_new_tables(run: TableRun, context: TableContext) -> None:
    """Require that change table, history, tombstones and quarantine do not exist yet.

    Raises:
        FatalError: `ADOPT_REFUSED`: tables of ours are there.
    """
    logs = DeltaCommits(context.storage)  # a release that was interrupted leaves parts of tables, which can't be opened
    for name in ("changes", "history", "tombstones", "errors"):
        path = getattr(context.layout, name)
        if logs.exists(path):
            release = f"`gddl adopt --release --table {run.spec.table}`"
            remedy = f"restore the ledger; or end with {release} what removed it; or move that table away"
            raise refused(run, "there is a table of ours already, and no ledger of it", remedy, path)


def require_keys(run: TableRun, figures: BaselineFigures, shared: SharedKeys) -> None:
    """Require keys that are unique and not null.

    Raises:
        FatalError: `ADOPT_REFUSED`: keys are null, or rows share one.
    """
    problems = [f"{count} rows have no {key}" for key, count in figures.nulls.items()]
    if shared.sharing:
        shown = ", ".join(f"{key} ({count} rows)" for key, count in shared.keys)
        problems.append(f"{shared.sharing} of {shared.rows} rows share their key with others, e.g. {shown}")
    if problems:
        remedy = "correct `keys` in the metadata row, or these rows of the table; then adopt it"
        raise refused(run, "; ".join(problems), remedy)


def named(paths: Sequence[str]) -> str:
    """Names of a few files for a message."""
    return few([path.rpartition("/")[2] for path in paths])
