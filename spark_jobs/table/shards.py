"""The turns of a table's run: one, or one for each of its sources. A source that fails stops no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.plan.batch import TableState
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.pending_work import PendingWork, find_pending
from spark_jobs.table.run import TableRun

_PASSED_ON = (DeclinedError, MemoryError)
"""They concern the table as a whole: another engine takes it."""


@dataclass
class Turns:
    """What each source of a table has to do.

    Attributes:
        pending: the source whose oldest file waits longest first; a table of one source has one at most.
        faults: by source, why it could not be listed or loaded.
    """

    run: TableRun
    outcome: RunTotals
    pending: list[tuple[TableRun, PendingWork]] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """See `PendingWork.cost`."""
        return sum(seen.cost for _, seen in self.pending)

    def take(self, work: Callable[[TableRun, PendingWork], None]) -> None:
        """Let `work` do what is pending. The caller holds the table's claim."""
        if not self.run.spec.shards:
            for run, seen in self.pending:
                work(run, seen)
            return
        states = self.run.shard_states()  # under the claim: another job may have loaded a shard since `find_pending`
        for run, seen in self.pending:
            self._guarded(run.shard, partial(work, run.beside(states), seen))
            states[run.shard] = run.own_state()
        self._sum_up(list(states.values()))

    def find_pending(self) -> None:
        """Find what is pending.

        Raises:
            GddlError: as `find_pending`, of a table with one source.
        """
        if not self.run.spec.shards:
            seen = find_pending(self.run, self.outcome)
            self.pending = [] if seen is None else [(self.run, seen)]
            return
        self.run.ledger()  # which refuses a table that was loaded otherwise
        modes, newest = set(), self.outcome.max_commit_ts
        for run in self.run.shard_runs():
            self._guarded(run.shard, partial(self._find_pending, run))
            modes.add(self.outcome.mode)
            newest = max(filter(None, (newest, self.outcome.max_commit_ts)), default=None)
        self.outcome.mode = "initial" if modes == {"initial"} else "incremental"
        self.outcome.max_commit_ts = newest
        self.pending.sort(key=lambda turn: min((f.modified for f in turn[1].found.waiting), default=""))

    def require_all(self) -> None:
        """
        Raises:
            GddlError: the fault of a source; passing where all are.
        """
        if not self.faults:
            return
        shard, first = next(iter(self.faults.items()))
        if not isinstance(first, GddlError):
            what = f"source {shard}: {type(first).__name__}: {first}"
            raise RuntimeError(what) from first  # noqa: TRY004 - a fault of any kind
        others = "".join(f"; {name}: {_short(fault)}" for name, fault in list(self.faults.items())[1:])
        passing = all(isinstance(fault, RetriableError) for fault in self.faults.values())
        family = RetriableError if passing else FatalError
        what = f"source {shard} of {self.run.spec.table}: {first.what}{others}"
        raise family(first.code, what, where=first.where, remedy=first.remedy) from first

    def _find_pending(self, run: TableRun) -> None:
        seen = find_pending(run, self.outcome)
        if seen is not None:
            self.pending.append((run, seen))

    def _guarded(self, shard: str, work: Callable[[], None]) -> None:
        try:
            work()
        except _PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - a failure of one source does not stop the next
            self.faults[shard] = error

    def _sum_up(self, states: Sequence[TableState]) -> None:
        """Rows of the replica and the newest commit time, of all sources."""
        if self.outcome.main.rows is not None:
            self.outcome.main = replace(self.outcome.main, rows=sum(state.rows for state in states))
        times = filter(None, (state.max_commit_ts for state in states))
        self.outcome.max_commit_ts = max(times, default=None)


def require_supported(run: TableRun) -> None:
    """
    Raises:
        FatalError: `SHARDS_UNSUPPORTED`: the job asks for what tables of several sources do not have. `SPEC_INVALID`:
            its spec was not made from metadata.
    """
    options, spec = run.job.options, run.spec
    if spec.shards and (set(spec.shards) - set(spec.shard_landings) or spec.keys[:1] != (SHARD_COLUMN,)):
        what = (
            f"{spec.table} has shards, but not a landing root for each, or not {SHARD_COLUMN} as its first key column"
        )
        raise FatalError("SPEC_INVALID", what, remedy="let gddl make the order from the metadata")
    asked = {
        "gddl move": options.action == "move",
        "a resync": options.resync,
        "a full refresh": options.full_refresh,
        "a comparison with the source": bool(options.source_connection),
        "a continuous job": options.continuous is not None,
    }
    if run.spec.shards and (names := [name for name, is_asked in asked.items() if is_asked]):
        what = f"{run.spec.table} has several sources: {names[0]} is not built for such tables; nothing was done"
        remedy = "to load it again, give the row a new target; see docs/sources.md, section Load a sharded table again"
        raise FatalError("SHARDS_UNSUPPORTED", what, remedy=remedy)


def of_key(run: TableRun, code: str) -> TableRun:
    """The run of the source that the job's key names; of a table with one source the run itself.

    Args:
        code: of the error.

    Raises:
        FatalError: the key names no source, or one that the table does not have.
    """
    if not run.spec.shards:
        return run
    named = {name.lower(): value for name, value in run.job.options.key.items()}
    shard = named.get(SHARD_COLUMN)
    for one in run.shard_runs():
        if one.shard == shard:
            return one
    keys = " ".join(f"--key {name}=…" for name in run.spec.keys)
    what = f"the key of {run.spec.table} begins with {SHARD_COLUMN}, one of {', '.join(run.spec.shards)}"
    raise FatalError(code, what, where=run.spec.table, remedy=f"name the whole key: {keys}")


def has_tables(run: TableRun, context: TableContext, state: TableState) -> bool:
    """Whether there is a change table with changes of what this run loads: other shards' may be in the same one."""
    if not context.engine.exists(context.layout.changes):
        return False
    if not run.shard or state.batch or not any(other.batch for other in run.others):
        return True
    files = context.engine.recorded_files(context.layout.changes)
    return any(file.path.startswith(f"{context.layout.landing}/") for file in files)


def _short(fault: Exception) -> str:
    return str(fault) if isinstance(fault, GddlError) else f"{type(fault).__name__}: {fault}"
