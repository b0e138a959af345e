"""Tables of several sources: the turn of each, and what only tables of one source have."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.codes import KEY_INVALID, SHARDS_UNSUPPORTED, SPEC_INVALID
from airflow_gddl.contract.connections import mask_key
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError, documented
from airflow_gddl.contract.result import Warnings
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.batch import notices
from spark_jobs.batch.pending import PendingWork, looked, replays
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.tables.places import DeclinedError

_COUNTED = 20_000
"""Rows in quarantine that are counted by source, oldest first."""


@dataclass
class Turns:
    """What each source of a table with several has to do.

    Attributes:
        pending: the source whose oldest file waits longest first.
        faults: by source, why it could not be listed or loaded.
    """

    run: TableRun
    totals: RunTotals
    pending: list[tuple[TableRun, PendingWork]] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)

    def take(self, work: Callable[[TableRun, PendingWork], None]) -> None:
        """Let `work` do what is pending. The caller holds the table's claim."""
        states = self.run.shard_states()  # under the claim: another job may have loaded a shard since `find_pending`
        for run, seen in self.pending:
            with self._guarded(run.shard):
                work(run.beside(states), seen)
            states[run.shard] = run.own_state()
        for run in self.run.shard_runs():  # another turn where a source after this one has made a column text
            if run.shard not in self.faults and (ledger := run.ledger()).awaits_replay:
                with self._guarded(run.shard):
                    work(run, PendingWork(state=ledger.state, discovery=run.discover(ledger)))
                states[run.shard] = run.own_state()
        if self.totals.main.rows is not None:  # also of former sources
            self.totals.main = replace(self.totals.main, rows=sum(state.rows for state in states.values()))
        times = filter(None, (states[shard].max_commit_ts for shard in self.run.spec.shards))
        self.totals.max_commit_ts = max(times, default=None)

    def find_pending(self) -> None:
        """Find what is pending."""
        self.run.ledger()  # which refuses a table that was loaded otherwise
        modes, newest = set(), self.totals.max_commit_ts
        for run in self.run.shard_runs():
            with self._guarded(run.shard):
                seen, has_work = looked(run, self.totals)
                self.pending += [(run, seen)] if has_work else []
            modes.add(self.totals.mode)
            newest = max(filter(None, (newest, self.totals.max_commit_ts)), default=None)
        self.totals.mode = "initial" if modes == {"initial"} else "incremental"
        self.totals.max_commit_ts = newest
        self.pending.sort(key=lambda turn: min((f.modified for f in turn[1].discovery.waiting), default=""))

    def require_all(self) -> None:
        """Raise the first fault of a source, if any source had one.

        Raises:
            GddlError: the fault of a source; passing where all are.
        """
        if not self.faults:
            return
        shard, first = next(iter(self.faults.items()))
        if not isinstance(first, GddlError):
            what = f"source {shard}: {type(first).__name__}: {first}"
            raise RuntimeError(what) from first  # noqa: TRY004 - a fault of any kind
        passing = all(isinstance(fault, RetriableError) for fault in self.faults.values())
        family = RetriableError if passing else FatalError
        what, where, remedy = _together(self.run.spec.table, first, self.faults)
        raise family(first.code, what, where=where, remedy=remedy) from first

    @contextmanager
    def _guarded(self, shard: str) -> Iterator[None]:
        """Keep the failure of a source: it does not stop the next."""
        try:
            yield
        except (DeclinedError, MemoryError):  # they concern the table as a whole: another engine takes it
            raise
        except Exception as error:  # noqa: BLE001 - see above
            self.faults[shard] = error


def require_supported(run: TableRun) -> None:
    """Refuse what a job asks for and a table can't do.

    Raises:
        FatalError: `SHARDS_UNSUPPORTED`: the job asks for what tables of several sources do not have. `SPEC_INVALID`:
            its spec was not made from metadata. `MASK_KEY_MISSING`.
    """
    options, spec = run.job.options, run.spec
    if "hmac" in spec.mask.values():
        mask_key(os.environ)
    if spec.shards and (set(spec.shards) - set(spec.shard_landings) or spec.keys[:1] != (SHARD_COLUMN,)):
        what = (
            f"{spec.table} has shards, but not a landing root for each, or not {SHARD_COLUMN} as its first key column"
        )
        raise FatalError(SPEC_INVALID, what, remedy="let gddl make the order from the metadata")
    request = options.action.unsharded() or ("" if options.continuous is None else "a continuous job")
    if spec.shards and request:
        what = f"{spec.table} has several sources, and {request} does not support that; nothing was done"
        where = documented("sources.md", "load-a-sharded-table-again")
        remedy = f"to load it again, give the row a new target; see {where}"
        raise FatalError(SHARDS_UNSUPPORTED, what, remedy=remedy)


def of_key(run: TableRun, key: Mapping[str, str]) -> TableRun:
    """The run of the source, or former source, that a key names; of a table with one source the run itself.

    Args:
        key: key column to its value as text.

    Raises:
        FatalError: `KEY_INVALID`: the key names no source, or one that the table does not have.
    """
    if not run.spec.shards:
        return run
    named = {name.lower(): value for name, value in key.items()}
    shard = named.get(SHARD_COLUMN)
    for one in run.shard_runs():
        if one.shard == shard:
            return one
    states = run.shard_states()
    for one in run.former_shards:
        if one.shard == shard:
            return _landed(one.beside(states))
    known, keys = ", ".join(states), " ".join(f"--key {name}=…" for name in run.spec.keys)
    if shard is None:
        what = f"the key of {run.spec.table} names no {SHARD_COLUMN}, one of {known}"
    else:
        what = f"{SHARD_COLUMN} {shard!r} is not one of {known}, the sources of {run.spec.table} (case counts)"
    raise FatalError(KEY_INVALID, what, remedy=f"name the whole key: {keys}")


def _landed(run: TableRun) -> TableRun:
    """The run of a former source with the landing folder of its files, which only its ledger knows."""
    ledger, folder = run.ledger(), "/".join(run.spec.name_in_source.split(".", 1))
    root = next((path.rpartition(f"/{folder}/")[0] for path in ledger.entries() or ledger.all_entries()), "")
    if not root:
        return run
    spec = replace(run.spec, landing=root, shard_landings={run.shard: root})
    return replace(run, spec=spec, layout_override=replace(run.layout, landing=f"{root}/{folder}"))


def left_in_quarantine(run: TableRun) -> Warnings:
    """Warning of a replay about rows in quarantine that no source of the row has: a replay takes them by source."""
    if not replays(run) or not run.former_shards:
        return ()
    context, names = run.context(), {one.shard for one in run.former_shards}
    unresolved = context.quarantine.unresolved(_COUNTED)
    counts = Counter(shard for row in unresolved.rows if (shard := str(row["batch_id"]).rpartition("/")[0]) in names)
    oldest = "" if unresolved.count == len(unresolved.rows) else f" (among the {_COUNTED} oldest)"
    return notices.of_former_shards(counts, f"stay in quarantine, until their source is named again{oldest}")


def _together(table: str, first: GddlError, faults: Mapping[str, Exception]) -> tuple[str, str, str]:
    """What is wrong, where, and the remedies of the faults of sources; equal ones are named once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    remedies: dict[str, list[str]] = {}
    for shard, fault in faults.items():
        code, what, where = "", f"{type(fault).__name__}: {fault}", ""
        if isinstance(fault, GddlError):
            code, what, where = fault.code, fault.what.removeprefix(f"{table}: "), fault.where
            if fault.remedy:
                remedies.setdefault(fault.remedy, []).append(shard)
        groups.setdefault((code, what, where), []).append(shard)
    said: list[str] = []
    for (code, what, where), shards in groups.items():
        title = f"source{'s' if len(shards) > 1 else ''} {', '.join(shards)}{'' if said else f' of {table}'}"
        place = f" ({where})" if where and len(groups) > 1 else ""
        said.append(f"{title}: {f'[{code}] ' if code not in ('', first.code) else ''}{what}{place}")
    where = first.where if len(groups) == 1 else ""
    by_shard = [f"{', '.join(shards)}: {text}" for text, shards in remedies.items()]
    return "; ".join(said), where, next(iter(remedies), "") if len(remedies) == 1 else "; ".join(by_shard)
