"""What is remembered of a table: its last runs, as a bounded digest of the records in `lake/_gddl/runs`, its last poll,
and its last load in Airflow.

Moments are seconds since the epoch: short in JSON, and fast to compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from airflow_gddl.contract.basics import LOADS
from airflow_gddl.contract.codes import (
    BATCH_UNFINISHED,
    ENDINGS,
    FOLDER_MISSING,
    KEYS_SHARED,
    LOAD_INCOMPLETE,
    QUARANTINE_STALE,
    SOURCE_DIFFERENT,
    VERIFY_DIFFERENT,
)
from airflow_gddl.contract.codes.code import COUNTS
from airflow_gddl.contract.completeness import Verified, window_bounds
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import brief
from airflow_gddl.contract.result import JobResult, is_idle


def seconds_of(text: str | None) -> float | None:
    """An ISO 8601 moment, UTC when it names no zone; null when there is none, or none that can be read."""
    try:
        return moment_of(text or "").timestamp()
    except ValueError:
        return None


def text_of(moment: float | None) -> str | None:
    """ISO 8601, UTC, whole seconds; null for null."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def latest(*moments: float | None) -> float | None:
    """The greatest value that is not null; null when all are."""
    return max((moment for moment in moments if moment is not None), default=None)


def earliest(*moments: float | None) -> float | None:
    """The least value that is not null; null when all are."""
    return min((moment for moment in moments if moment is not None), default=None)


KEPT_RUNS = 14
ENCODER = msgspec.json.Encoder(enc_hook=str, order="deterministic")
"""Codes are a subclass of `str`, which msgspec does not encode by itself."""
_LONGEST_TEXT = 500
_WARNED = tuple(ENDINGS)
"""Warnings that hold until an action ends them."""


class RunFact(NamedTuple):
    """One run of one table that changed something or failed; stored as the list of its values.

    Attributes:
        started: seconds since the epoch.
        rows: of the replica after it; null when not known.
        commit: newest source commit applied by it, seconds since the epoch; null when it applied none.
        lag: its end minus that commit, in seconds; null when there is none.
        error: code; null unless it failed.
        airflow: Airflow's run id and task id, and the job's page on the platform where it ran on one; empty for a run
            that Airflow did not start.
        late_ignored: changes that were not applied, because the stored row is newer.
        not_listed_days: days of change files that its listing skipped.
        listed: when these were last listed, seconds since the epoch; null if none was skipped.
        place: see `JobResult`.
    """

    started: float
    status: str
    mode: str
    tasks: str
    seconds: float
    files: int
    rows_read: int
    appended: int
    redelivered: int
    quarantined: int
    rows: int | None
    commit: float | None
    lag: float | None
    error: str | None
    warnings: Sequence[str]
    run_id: str
    airflow: Sequence[str] = ()
    late_ignored: int = 0
    not_listed_days: int = 0
    listed: float | None = None
    place: str = ""

    @property
    def adds_up(self) -> bool:
        """Nothing lost: rows read = changes appended + re-deliveries skipped + rows quarantined (semantics, rule 5)."""
        return self.rows_read == self.appended + self.redelivered + self.quarantined

    @property
    def key(self) -> tuple[str, float]:
        return self.run_id, self.started


def fact_of(result: JobResult, now: float, airflow: tuple[str, ...] = ()) -> RunFact:
    """
    Args:
        now: end of a run without a start time.
    """
    started = seconds_of(result.started_at)
    return RunFact(
        started=now - result.seconds if started is None else started,
        status=result.status,
        mode=result.mode,
        tasks=result.tasks,
        seconds=result.seconds,
        files=result.files,
        rows_read=result.rows_read,
        appended=result.changes_written,
        redelivered=result.redelivered,
        quarantined=result.quarantined,
        rows=result.main.rows,
        commit=seconds_of(result.freshness.commit_ts),
        lag=result.freshness.lag_seconds,
        error=None if result.error is None else result.error.code,
        warnings=[warning.code for warning in result.warnings],
        run_id=result.run_id,
        airflow=list(airflow),
        late_ignored=result.late_ignored,
        not_listed_days=result.not_listed_days,
        listed=seconds_of(result.listed_in_full_at),
        place=result.place,
    )


@dataclass(frozen=True, kw_only=True)
class TablePoll:
    """Poll of a table by a sensor.

    Attributes:
        polled: seconds since the epoch, before the listing.
        files: data files in the landing folder.
        waiting: how many of them are not loaded; at least 1 while a file or the row is new or changed.
        since: first poll that found pending files; null when nothing is pending.
        clear: newest poll that found nothing pending in a folder that was there; None: none yet.
        held_by: dependencies that it waits for.
        missing: its landing folder is missing, though the row does not say that this is an empty table.
    """

    polled: float
    files: int = 0
    waiting: int = 0
    since: float | None = None
    clear: float | None = None
    held_by: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True)
class RunningJob:
    """A job that works on a table, seconds since the epoch.

    Attributes:
        since: when it began.
        until: when the job expires unless it is reported again.
        run: Airflow's id of the run; empty where Airflow did not start it.
    """

    since: float
    until: float
    run: str = ""

    def is_of_another(self, run: str, now: float) -> bool:
        """Whether another run than this one of the same pipeline works on the table."""
        return self.until > now and self.run not in ("", run)


@dataclass(frozen=True, kw_only=True)
class TableHint:
    """Last load of a table in Airflow. Only a hint: the job's ledger is authoritative.

    Attributes:
        mark: of the files and the row that were loaded, see `tables_with_work.mark`; empty: the next run has
            work in any case.
        looked_at: ISO 8601 UTC: every file that existed by then is loaded.
        run: Airflow's id of the run that loaded it; empty: none, since a user cleared that one.
        announce: extra of the asset event that is still to be sent; null when there is none.
    """

    mark: str
    looked_at: str
    run: str
    announce: Mapping[str, Any] | None = None


def extra_of(result: JobResult) -> Mapping[str, Any] | None:
    """Extra of a result's asset event; None: the run changed nothing."""
    if result.status != "succeeded" or result.version is None:
        return None
    expectations = {one.name: {"checked": one.checked, "failed": one.failed} for one in result.expectations}
    return {
        **({"expectations": expectations} if expectations else {}),
        "rows": result.main.rows,
        "inserted": result.main.inserted,
        "updated": result.main.updated,
        "deleted": result.main.deleted,
        "changes": result.changes_written,
        "quarantined": result.quarantined,
        "version": result.version,
        "commit_ts": result.freshness.commit_ts,
        "lag_seconds": result.freshness.lag_seconds,
        "complete_until": result.freshness.complete_until,
        "waiting_since": result.freshness.waiting_since,
        "mode": result.mode,
        "gddl_run_id": result.run_id,
    }


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """What is remembered of a table. Moments are seconds since the epoch; None: never, or not known.

    Attributes:
        newest: the newest run; null before any.
        older: the runs before it, `KEPT_RUNS` - 1 at most, newest last: JSON that is decoded only when needed, since a
            list of ten thousand tables shows few of them.
        quarantined: rows and files in quarantine: as last counted, and those of failed runs since.
        counted, counted_files: rows and files, and files alone, that were in quarantine when a run or an erasure last
            counted them in the errors table, and `counted_at`, when it began; None: none did.
        late_ignored: changes that these runs ignored as late.
        commit: newest source commit ever applied.
        complete: start of the newest run that did not fail: all that had landed by then is applied.
        succeeded: start of the newest run that did something and did not fail.
        rows, rows_at: of the replica, and the start of the run that counted them.
        error: of the newest run that failed, with its code.
        loose: number of run records not archived yet.
        maintained: start of the newest maintenance.
        changed_since, changing_runs: start of the first run with changes after it, and the number of such runs.
        verified, missing_from: see `completeness.complete_until`.
        detected, settled: code of a problem that outlives the newest run, to the start of the newest run or
            verification that found it, and of the newest that found it settled; `settled` has the newest successful
            run of each action, too; see `holds`.
        lost: what the newest run that missed the landing folder says of it; empty: none did.
        waiting_since, waiting_at: when the oldest landed of what is there and not applied (None: all is), and the start
            of the newest run that said so.
        poll: by its pipeline's sensor.
        running: the job that loads it, as last reported; it may have ended unreported.
        seen: when a sensor or `gddl_watch` first saw the table.
        hint: of its last load; None: it was never loaded, or that is not known.
    """

    newest: RunFact | None = None
    older: str = "[]"
    quarantined: int = 0
    commit: float | None = None
    complete: float | None = None
    succeeded: float | None = None
    rows: int | None = None
    rows_at: float | None = None
    error: str | None = None
    loose: int = 0
    late_ignored: int = 0
    counted: int | None = None
    counted_files: int = 0
    counted_at: float | None = None
    maintained: float | None = None
    changed_since: float | None = None
    changing_runs: int = 0
    verified: float | None = None
    missing_from: float | None = None
    detected: Mapping[str, float] = field(default_factory=dict)
    settled: Mapping[str, float] = field(default_factory=dict)
    lost: str = ""
    waiting_since: float | None = None
    waiting_at: float | None = None
    poll: TablePoll | None = None
    running: RunningJob | None = None
    seen: float | None = None
    hint: TableHint | None = None

    @property
    def has_run(self) -> bool:
        """Whether a run is known."""
        return self.newest is not None or self.complete is not None

    @property
    def runs(self) -> tuple[RunFact, ...]:
        """Newest last."""
        older: tuple[RunFact, ...] = msgspec.json.decode(self.older, type=tuple[RunFact, ...])
        return (*older, self.newest) if self.newest is not None else ()

    @property
    def started(self) -> float | None:
        """Of the newest run."""
        return None if self.newest is None else self.newest.started

    def holds(self, code: str) -> bool:
        """Whether a problem of `detected` was not settled since, nor ended by an action that would have named it."""
        found = self.detected.get(code, -math.inf)
        how = ENDINGS[code]
        actions = () if how.judged else how.ends or ()
        named_again = all(found >= self.settled.get(action, -math.inf) for action in actions)
        return found > self.settled.get(code, -math.inf) and named_again

    @property
    def failed(self) -> bool:
        """Whether the newest run failed and no later one succeeded, or got as far as to miss the landing folder."""
        newest = self.newest
        if newest is None or newest.status != "failed":
            return False
        return newest.started > (self.complete or 0) and newest.started >= self.detected.get(FOLDER_MISSING, -math.inf)

    def polled(self, poll: TablePoll, *, waits: bool) -> TableRecord:
        """Copy after a poll. The number of pending files, and since when, follows from earlier polls and the last load.

        Args:
            waits: whether files or the row are pending.
        """
        before, taken = self.poll, None if self.hint is None else seconds_of(self.hint.looked_at)
        clear = None if before is None else before.clear
        if waits:
            # The files pending at the previous poll were loaded since: this is new work.
            same = before is not None and before.since is not None and (taken is None or taken < before.since)
            loaded = 0 if before is None or taken is None else before.files - (before.waiting if same else 0)
            since = before.since if same and before is not None else poll.polled
            poll = replace(poll, waiting=max(1, poll.files - loaded), since=since)
        elif not poll.missing:
            clear = poll.polled
        return replace(self, poll=replace(poll, clear=clear), seen=earliest(self.seen, poll.polled))

    def loaded(self, hint: TableHint | None, event: Mapping[str, Any] | None) -> TableRecord:
        """Copy after a load in Airflow; a pending event is kept if this load has none.

        A cleared task of an older run never overwrites what a later poll found.

        Args:
            hint: None: none of its files was loaded.
            event: see `TableHint.announce`.
        """
        before = self.hint
        hint = hint or before
        if hint is None:
            return self
        if before is not None and before.looked_at > hint.looked_at:
            hint = replace(hint, mark=before.mark, looked_at=before.looked_at)
        if event is None and before is not None:
            event = before.announce
        return replace(self, hint=replace(hint, announce=event))

    def with_runs(self, runs: Iterable[RunFact]) -> TableRecord:
        """Copy with these runs instead of its own, limited to the newest `KEPT_RUNS`."""
        kept = sorted(runs, key=lambda run: run.started)[-KEPT_RUNS:]
        since = -math.inf if self.counted_at is None else self.counted_at
        return replace(
            self,
            newest=kept[-1] if kept else None,
            older=ENCODER.encode(kept[:-1]).decode(),
            quarantined=(self.counted or 0) + sum(run.quarantined for run in kept if run.started > since),
            late_ignored=sum(run.late_ignored for run in kept),
        )

    def after(self, result: JobResult, now: float, airflow: tuple[str, ...] = (), *, whole: bool = True) -> TableRecord:
        """Copy with one more run, which need not be the newest; adding a run twice has no effect.

        An idle run had nothing to do: it only records that everything is applied; not where the landing folder is
        missing, since nothing is known of the source then.

        Args:
            whole: it loaded everything that had landed; a replay of the quarantine does not.
        """
        fact = fact_of(result, now, airflow)
        self = _judged(self, result, fact)  # noqa: PLW0642 - the same record, with what this run found
        if _sees_all(result) and fact.started >= (self.waiting_at or 0):
            since = seconds_of(result.freshness.waiting_since)
            self = replace(self, waiting_since=since, waiting_at=fact.started)  # noqa: PLW0642 - as above
        if result.in_quarantine is not None and fact.started >= (self.counted_at or 0):
            self = replace(  # noqa: PLW0642 - the same record, with the count of this run
                self, counted=result.in_quarantine, counted_files=result.files_in_quarantine, counted_at=fact.started
            )
        if result.action == "maintain" and result.status == "succeeded":
            return replace(self, maintained=latest(self.maintained, fact.started), changed_since=None, changing_runs=0)
        if result.action == "verify":
            return self._verified(result)
        if result.action not in LOADS:
            return _with_rows(self, result, fact).with_runs(self.runs)
        if is_idle(result):
            is_complete = whole and FOLDER_MISSING not in fact.warnings
            return replace(self, complete=latest(self.complete, fact.started)) if is_complete else self
        text = None if result.error is None else brief(result.error.message, _LONGEST_TEXT)
        if fact.key in {run.key for run in self.runs}:
            # Reported again with more details: the job's own record does not name Airflow's run.
            return self.with_runs(fact if run.key == fact.key else run for run in self.runs)
        one = _record_of(fact, text)
        return merged(self, one if whole else replace(one, complete=None))

    def _verified(self, result: JobResult) -> TableRecord:
        """Copy with what a verification found of the source."""
        bounds, until = window_bounds(result.details), seconds_of(result.freshness.complete_until)
        if bounds is None and until is None:
            return self
        since, missing_from = (None, None) if bounds is None else map(seconds_of, bounds)
        outcome = Verified(until=self.verified, missing_from=self.missing_from).after(since, until, missing_from)
        return replace(self, verified=outcome.until, missing_from=outcome.missing_from)


def _sees_all(result: JobResult) -> bool:
    """Whether an action has looked at all that has landed; a rebuild, for one, reads what the lake has."""
    actions = ("run", "reload", "release")
    is_rebuild = result.action == "run" and result.mode == "refresh"
    return result.status != "failed" and result.action in actions and not is_rebuild


def _with_rows(record: TableRecord, result: JobResult, fact: RunFact) -> TableRecord:
    """Copy with the rows that an action left in the replica, as an erasure does."""
    counts = result.status == "succeeded" and result.main.rows is not None and fact.started >= (record.rows_at or 0)
    return replace(record, rows=result.main.rows, rows_at=fact.started) if counts else record


def _judged(record: TableRecord, result: JobResult, fact: RunFact) -> TableRecord:
    """Copy with the problems that a run or a verification found, or found settled."""
    verdicts = _verdicts(result) if result.action == "verify" else _of_run(result, fact)
    holding = {code: fact.started for code, holds in verdicts.items() if holds}
    settled = {code: fact.started for code, holds in verdicts.items() if not holds}
    if result.action in LOADS and result.status != "failed" and not is_idle(result):
        settled[result.action] = fact.started
    lost = record.lost
    if FOLDER_MISSING in holding and fact.started >= record.detected.get(FOLDER_MISSING, -math.inf):
        lost = brief(next(one.message for one in result.warnings if one.code == FOLDER_MISSING), _LONGEST_TEXT)
    return replace(
        record, detected=newest_of(record.detected, holding), settled=newest_of(record.settled, settled), lost=lost
    )


def _of_run(result: JobResult, fact: RunFact) -> dict[str, bool]:
    """Code to whether it holds after an action, as far as that action knows; see `ENDINGS`.

    A quarantined row stays stale until nothing is left in quarantine, or all that is left was refused by this action.
    A full load stays incomplete until a run does not say so, an idle one too.
    """
    made = {code: True for code in _WARNED if code in fact.warnings}
    if result.status == "failed":
        return made
    if result.action == "run" and result.mode != "refresh":
        made.setdefault(FOLDER_MISSING, False)
    if result.action in (LOAD_INCOMPLETE.ends or ()):
        made.setdefault(LOAD_INCOMPLETE, False)
    if _judges_keys(result):
        made.setdefault(KEYS_SHARED, False)
    if result.in_quarantine is not None and result.action in COUNTS:
        rows = result.in_quarantine - result.files_in_quarantine
        # What makes tables anew looks for no stale rows, though it may put all that is left into quarantine again.
        named = result.action in LOADS and result.mode != "refresh"
        went_through = named and result.in_quarantine == result.quarantined
        if rows <= 0 or went_through:
            made.setdefault(QUARANTINE_STALE, False)
    return made


def _judges_keys(result: JobResult) -> bool:
    """Whether rows no longer share a key where a result does not say so: it has read all rows by other keys, or from
    the files; or a person has dismissed the warning."""
    details = result.details if isinstance(result.details, Mapping) else {}
    if result.action == "errors_dismiss":
        return KEYS_SHARED in details.get("codes", ())
    rebuild = details.get("rebuild")
    by_other_keys = isinstance(rebuild, Mapping) and bool(rebuild.get("rekeyed"))
    return by_other_keys or "reload" in details


def _verdicts(result: JobResult) -> dict[str, bool]:
    """Code to whether a verification found it; nothing of what it did not compare."""
    code = None if result.error is None else result.error.code
    made: dict[str, bool] = {one: True for one in (VERIFY_DIFFERENT, SOURCE_DIFFERENT) if one == code}
    details = result.details if isinstance(result.details, Mapping) else {}
    compared, source = "buckets_different" in details, details.get("source")
    if compared and (details["buckets_different"] or details.get("rows") != details.get("expected_rows")):
        made[VERIFY_DIFFERENT] = True
    if isinstance(source, Mapping) and source.get("different"):
        made[SOURCE_DIFFERENT] = True
    if code == BATCH_UNFINISHED:  # some sources of the table were not compared
        return made
    looked_at = ((VERIFY_DIFFERENT, compared), (SOURCE_DIFFERENT, isinstance(source, Mapping)))
    return {**{one: False for one, is_so in looked_at if is_so}, **made}


def newest_of(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The later moment of each code."""
    return {code: max(at[code] for at in (one, other) if code in at) for code in sorted({*one, *other})}


def _record_of(fact: RunFact, error: str | None) -> TableRecord:
    """What one run adds to a record by `merged`, which counts what runs have in common anew."""
    good = fact.started if fact.status != "failed" else None
    return TableRecord(
        newest=fact,
        commit=fact.commit,
        complete=good,
        succeeded=good,
        rows=fact.rows,
        rows_at=None if fact.rows is None else fact.started,
        error=error,
        loose=1,
        changed_since=good,
        changing_runs=0 if good is None else 1,
    )


def _since(moment: float | None) -> float:
    return -math.inf if moment is None else moment


def merged(one: TableRecord, other: TableRecord) -> TableRecord:
    """Merge the facts of two writers."""
    counted = max(one, other, key=lambda record: _since(record.rows_at))
    newest = max(one, other, key=lambda record: _since(record.started if record.error else None))
    quarantine = max(one, other, key=lambda record: _since(record.counted_at))
    looked = max(one, other, key=lambda record: _since(record.waiting_at))
    return TableRecord(
        commit=latest(one.commit, other.commit),
        complete=latest(one.complete, other.complete),
        succeeded=latest(one.succeeded, other.succeeded),
        rows=counted.rows,
        rows_at=counted.rows_at,
        error=newest.error,
        loose=one.loose + other.loose,
        counted=quarantine.counted,
        counted_files=quarantine.counted_files,
        counted_at=quarantine.counted_at,
        maintained=latest(one.maintained, other.maintained),
        changed_since=earliest(one.changed_since, other.changed_since),
        changing_runs=one.changing_runs + other.changing_runs,
        verified=latest(one.verified, other.verified),
        missing_from=earliest(one.missing_from, other.missing_from),
        detected=newest_of(one.detected, other.detected),
        settled=newest_of(one.settled, other.settled),
        waiting_since=looked.waiting_since,
        waiting_at=looked.waiting_at,
        lost=max(one, other, key=lambda record: _since(record.detected.get(FOLDER_MISSING))).lost,
        poll=max(filter(None, (one.poll, other.poll)), key=lambda poll: poll.polled, default=None),
        running=max(filter(None, (one.running, other.running)), key=lambda job: job.until, default=None),
        seen=earliest(one.seen, other.seen),
        hint=max(filter(None, (one.hint, other.hint)), key=lambda hint: hint.looked_at, default=None),
    ).with_runs({run.key: run for run in (*one.runs, *other.runs)}.values())
