"""What is remembered of a pipeline: one object, `lake/_gddl/state/<pipeline>.json`.

Its sensor, its loads and `gddl_watch` write it; if two conflict, a conditional put makes the second one read again.
`by-hand.json` has what `gddl run` did. If one is lost, the next writer makes it again from the records of runs; without
hints, every table with files counts as having work, and the job finds that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.state.table_runs import ENCODER, TableHint, TableRecord

BY_HAND = "by-hand"
SUFFIX = ".json"
_ENDS, _ENDS_WITH_EVENTS = 8, 2


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """How a task of a run ended its stage.

    Attributes:
        stage, run: what ended.
        max_tries: Airflow's limit of the task instance's tries. Clearing the instance raises it, a retry does not.
        events: extras of the asset events that it sent, by table; lost when Airflow never heard that it succeeded.
    """

    stage: str
    run: str
    max_tries: int
    events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """What is remembered of a pipeline.

    Attributes:
        ended: stages (`initial`, `increments`) that were done with all their tables, the newest first; the events of
            the newest two of a stage alone.
        notified: table to its sent alerts that have not ended.
        next_poll: what the next poll begins with, as JSON that only the sensor parses; empty: nothing.
        written: when runs were last written, seconds since the epoch.
    """

    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    ended: tuple[StageEnd, ...] = ()
    notified: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    next_poll: str = ""
    written: float = 0.0
    format: Literal[1] = 1

    @property
    def hints(self) -> dict[str, TableHint]:
        """Of the tables that were loaded, which therefore have a replica."""
        return {name: record.hint for name, record in self.tables.items() if record.hint is not None}

    @property
    def pending(self) -> dict[str, Mapping[str, Any]]:
        """Pending asset events, by table."""
        return {name: hint.announce for name, hint in sorted(self.hints.items()) if hint.announce is not None}

    def record(self, table: str) -> TableRecord:
        """Empty where nothing is known of the table."""
        return self.tables.get(table, TableRecord())

    def with_records(self, records: Mapping[str, TableRecord]) -> PipelineState:
        return replace(self, tables={**self.tables, **records})

    def with_hints(self, tables: Iterable[str], **changes: Any) -> PipelineState:
        """Copy with these fields of the hints of tables that have one."""
        hints = self.hints
        changed = {name: replace(hints[name], **changes) for name in tables if name in hints}
        return self.with_records({name: replace(self.tables[name], hint=hint) for name, hint in changed.items()})

    def after(self, end: StageEnd) -> PipelineState:
        others = [one for one in self.ended if (one.stage, one.run) != (end.stage, end.run)]
        kept = [end]
        for one in others:
            newer = sum(known.stage == one.stage for known in kept)
            if newer < _ENDS:
                kept.append(one if newer < _ENDS_WITH_EVENTS else replace(one, events={}))
        return replace(self, ended=tuple(kept))

    def end_of(self, stage: str, run: str) -> StageEnd | None:
        """Null when this run did not end the stage, or long ago."""
        return next((one for one in self.ended if (one.stage, one.run) == (stage, run)), None)

    def reopened(self, stage: str, run: str, tables: Iterable[str]) -> PipelineState:
        """Without the note that this run has loaded these tables, so that it loads them again."""
        known = self.hints
        loaded = [name for name in tables if name in known and known[name].run == run]
        ended = tuple(one for one in self.ended if (one.stage, one.run) != (stage, run))
        return replace(self.with_hints(loaded, run=""), ended=ended)


def folder(lake: str) -> str:
    return join(lake, STATE, "state")


def place(lake: str, pipeline: str) -> str:
    return join(folder(lake), f"{pipeline}{SUFFIX}")


def encode(state: PipelineState) -> bytes:
    return ENCODER.encode(state)


def decode(data: bytes) -> PipelineState:
    """Fields unknown here are ignored.

    Raises:
        ValueError: damaged, or of another format.
    """
    return msgspec.json.decode(data, type=PipelineState)


def decode_or_none(data: bytes | None) -> PipelineState | None:
    """None: there is none, or it is damaged."""
    try:
        return None if data is None else decode(data)
    except ValueError:
        return None
