"""What a person asks of a run: the trigger form's fields."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.runtime.landing.polling import PollWindow

What = Literal["run", "verify", "replay"]
_BY_AIRFLOW = ("scheduled__", "backfill__", "asset_triggered__", "asset_materialization__")
FIELDS = ("tables", "full_refresh", "all", "action", "from", "to")
"""Of the trigger form, and of `conf`."""


@dataclass(frozen=True, kw_only=True)
class RunRequestForm:
    """Fields of the form; all at their defaults: an ordinary run.

    Attributes:
        tables: only these, whether they have news or not; empty: all of the pipeline.
        full_refresh: rebuild them from their files.
        start, end: only those with landing files last modified from `start` on and before `end` (ISO 8601, UTC when
            there is no zone), whether they were taken or not, each listed in full. Null: open.
        action: `verify` compares replicas with their changes, `replay` tries the quarantine again; neither loads.
        all: all tables of the pipeline are meant, which a full refresh without tables must say.
    """

    tables: tuple[str, ...] = ()
    full_refresh: bool = False
    start: str | None = None
    end: str | None = None
    action: What = "run"
    all: bool = False

    @property
    def is_some(self) -> bool:
        named = bool(self.tables) or self.all
        return named or self.full_refresh or self.window is not None or self.action != "run"

    @property
    def window(self) -> PollWindow | None:
        """
        Raises:
            MetadataError: `REQUEST_INVALID`.
        """
        if self.start is None and self.end is None:
            return None
        window = PollWindow(_seconds(self.start), _seconds(self.end))
        if window.start is not None and window.end is not None and window.start >= window.end:
            raise _wrong(f"from {self.start!r} is not before to {self.end!r}", "set to later than from")
        return window

    def names(self, all_tables: Collection[str]) -> set[str]:
        """
        Raises:
            MetadataError: `REQUEST_INVALID`: a table that is none of these.
        """
        unknown = sorted(set(self.tables) - set(all_tables))
        if unknown:
            what = f"no table of this DAG: {', '.join(unknown)}"
            raise _wrong(what, "see the DAG's documentation for where a table's DAG is found, and `gddl validate`")
        if self.full_refresh and not self.tables and not self.all and len(all_tables) > 1:
            what = f"a full refresh of all {len(all_tables)} tables of this DAG must be meant"
            raise _wrong(what, "name tables, or set all to true")
        return set(self.tables or all_tables)


def from_params(params: Mapping[str, Any] | str) -> RunRequestForm:
    """A run's params, as a mapping or its JSON; a misspelt one is refused, for it would do nothing.

    Raises:
        MetadataError: `REQUEST_INVALID`.
    """
    try:
        given: Mapping[str, Any] = json.loads(params) if isinstance(params, str) else params
        refuse_unknown(given, FIELDS)
        asked = RunRequestForm(
            tables=tuple(given.get("tables") or ()),
            full_refresh=given.get("full_refresh") is True,
            start=given.get("from") or None,
            end=given.get("to") or None,
            action=given.get("action") or "run",
            all=given.get("all") is True,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise _wrong(f"params that can't be read: {error}", "use the fields of the trigger form") from error
    _ = asked.window
    if asked.action not in get_args(What):
        raise _wrong(f"no action is called {asked.action!r}", f"choose one of {', '.join(get_args(What))}")
    if asked.action != "run" and asked.full_refresh:
        raise _wrong(f"a full refresh is no part of {asked.action}", "ask for one of the two")
    return asked


def refuse_unknown(given: Collection[str], fields: Sequence[str]) -> None:
    """
    Raises:
        MetadataError: `REQUEST_INVALID`: a field that is none of these.
    """
    unknown = sorted(set(given) - set(fields))
    if unknown:
        near = {name: difflib.get_close_matches(name, fields, n=1) for name in unknown}
        named = ", ".join(f"{name} (did you mean {close[0]}?)" if close else name for name, close in near.items())
        raise _wrong(f"unknown fields: {named}", f"use {', '.join(fields)}")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise _wrong(f"{text!r} is not a moment", "write ISO 8601, e.g. 2024-01-31T00:00:00Z") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError("REQUEST_INVALID", what, where="params", remedy=remedy)


def is_by_person(run_id: str) -> bool:
    """Whether Airflow did not start the run of itself; its own run ids begin with what started them."""
    return not run_id.startswith(_BY_AIRFLOW)
