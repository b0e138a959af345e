"""A user's request for a run: the fields of the trigger form."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import MetadataError, invalid_option
from airflow_gddl.contract.names import NamedTable, TableNames
from airflow_gddl.runtime.compiled.documents import Directory
from airflow_gddl.runtime.landing.polling import PollWindow
from airflow_gddl.runtime.table_directory import TableRow, selected

What = Literal["run", "verify", "replay", "dismiss", "rebuild", "reload"]
_BACKFILL = "backfill__"
"""Prefix of the run ids of Airflow's backfills, which Airflow 3.2 and newer refuses at once for these DAGs."""
_BY_AIRFLOW = ("scheduled__", _BACKFILL, "asset_triggered__", "asset_materialization__")
FIELDS = ("tables", "all", "action", "confirmed", "codes", "reason", "from", "to")
"""Of the trigger form, and of `conf`."""
_ADDED_BY_AIRFLOW = ("openlineage",)
"""Keys that Airflow's own operators add to `conf`: `TriggerDagRunOperator` names its task there as the run's parent."""


def is_of_backfill(run_id: str) -> bool:
    return run_id.startswith(_BACKFILL)


@dataclass(frozen=True, kw_only=True)
class RunRequestForm:
    """Fields of the form; all at their defaults: an ordinary run.

    Attributes:
        tables: only these, with or without new files; empty: all of the pipeline.
        start, end: only those with landing files last modified from `start` on and before `end` (ISO 8601, UTC when
            there is no zone), loaded before or not, each listed in full. None: open.
        action: `verify` compares replicas with their changes, `replay` processes quarantined rows again, `dismiss`
            leaves them out for good; none of them loads new files. `rebuild` makes tables again from their change
            tables, `reload` from the files that are there, and from nothing else; with `start` or `end` it reads files
            of this time again, and all others keep what they gave.
        confirmed: `reload` also where rows, columns or changes of a table go.
        codes: `replay` and `dismiss` concern only rows quarantined with these codes; empty: all, for `replay` alone.
        reason: why nothing better is expected for the rows that `dismiss` leaves out.
        all: confirms a rebuild or reload of all tables of the pipeline.
    """

    tables: tuple[str, ...] = ()
    start: str | None = None
    end: str | None = None
    action: What = "run"
    codes: tuple[str, ...] = ()
    reason: str = ""
    all: bool = False
    confirmed: bool = False

    @property
    def is_some(self) -> bool:
        return bool(self.tables) or self.all or self.window is not None or self.action != "run"

    @property
    def repairs(self) -> bool:
        """Whether tables are made again, with or without new files."""
        return self.action in ("rebuild", "reload")

    @property
    def window(self) -> PollWindow | None:
        """
        Raises:
            MetadataError: `OPTION_INVALID`.
        """
        if self.start is None and self.end is None:
            return None
        window = PollWindow(_seconds(self.start), _seconds(self.end))
        if window.start is not None and window.end is not None and window.start >= window.end:
            raise invalid_request(f"from {self.start!r} is not before to {self.end!r}", "set to later than from")
        return window

    def resolved(self, tables: Iterable[NamedTable]) -> RunRequestForm:
        """This request with targets instead of the given names; unknown names stay.

        Raises:
            MetadataError: `TABLE_AMBIGUOUS`.
        """
        if not self.tables:
            return self
        known = TableNames(tables)
        return replace(self, tables=tuple(dict.fromkeys(known.find(name) or name for name in self.tables)))

    def refused(self, all_tables: Collection[str]) -> MetadataError | None:
        """`OPTION_INVALID`, where tables are named that are none of these: the others are loaded all the same."""
        unknown = sorted(set(self.tables) - set(all_tables))
        if not unknown:
            return None
        what = f"no table of this DAG: {', '.join(unknown)}"
        remedy = "see the DAG's documentation for where a table's DAG is found, and `gddl validate`"
        return invalid_request(what, remedy)

    def names(self, all_tables: Collection[str]) -> set[str]:
        """
        Raises:
            MetadataError: `OPTION_INVALID`: no table is one of these, or all would be meant without being named.
        """
        refused = self.refused(all_tables)
        if refused is not None and set(self.tables).isdisjoint(all_tables):
            raise refused
        if self.repairs and not self.tables and not self.all and len(all_tables) > 1:
            what = f"a {self.action} of all {len(all_tables)} tables of this DAG must be meant"
            raise invalid_request(what, "name tables, or set all to true")
        if self.action == "dismiss" and not self.tables and len(all_tables) > 1:
            raise invalid_request("rows of which tables are dismissed is not given", "name tables")
        return set(all_tables).intersection(self.tables or all_tables)


def from_params(params: Mapping[str, Any] | str) -> RunRequestForm:
    """Parse a run's params, a mapping or its JSON; unknown fields are refused.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    try:
        given: Mapping[str, Any] = json.loads(params) if isinstance(params, str) else params
        refuse_unknown(given, FIELDS)
        form = RunRequestForm(
            tables=tuple(given.get("tables") or ()),
            start=given.get("from") or None,
            end=given.get("to") or None,
            action=given.get("action") or "run",
            codes=_codes(given.get("codes")),
            reason=str(given.get("reason") or "").strip(),
            all=given.get("all") is True,
            confirmed=given.get("confirmed") is True,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid_request(f"params that can't be read: {error}", "use the fields of the trigger form") from error
    _ = form.window
    if form.action not in get_args(What):
        raise invalid_request(f"no action is called {form.action!r}", f"choose one of {', '.join(get_args(What))}")
    if form.confirmed and form.action != "reload":
        raise invalid_request(
            f"confirmed can't be combined with {form.action}", "set action to reload, or leave it out"
        )
    if form.codes and form.action not in ("replay", "dismiss"):
        raise invalid_request(
            f"codes can't be combined with {form.action}", "set action to replay or dismiss, or leave them out"
        )
    if bool(form.reason) != (form.action == "dismiss"):
        remedy = "set action to dismiss, and say why nothing better is expected"
        raise invalid_request("action dismiss and reason go together", remedy)
    if form.action == "dismiss" and not form.codes:
        raise invalid_request("codes of the rows to dismiss are not given", "list codes, e.g. [OP_UNKNOWN]")
    return form


def _codes(given: object) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given or []
    if not isinstance(listed, list) or not all(isinstance(code, str) for code in listed):
        raise invalid_request(f"codes is {given!r}", "list codes of rows in quarantine, e.g. [OP_UNKNOWN]")
    return tuple(listed)


def refuse_unknown(given: Collection[str], fields: Sequence[str]) -> None:
    """Refuse fields that a request can't have.

    Raises:
        MetadataError: `OPTION_INVALID`: a field that is none of these, nor added by Airflow.
    """
    unknown = sorted(set(given) - {*fields, *_ADDED_BY_AIRFLOW})
    if unknown:
        near = {name: difflib.get_close_matches(name, fields, n=1) for name in unknown}
        named = ", ".join(f"{name} (did you mean {close[0]}?)" if close else name for name, close in near.items())
        raise invalid_request(f"unknown fields: {named}", f"use {', '.join(fields)}")


def names_of(given: Sequence[str] | str) -> list[str]:
    """A list as it is; a text, as a template makes it, split at blanks, and at commas outside of selectors."""
    if not isinstance(given, str):
        return list(given)
    return [part for part in re.split(r"\s+|,(?!\w+:)", given) if part]


def requested(
    directory: Directory, tables: Sequence[str] | str, select: Sequence[str] | str, exclude: Sequence[str] | str
) -> list[str]:
    """Names of the tables that a task of a user's DAG is about: named or selected, and not excluded.

    Raises:
        MetadataError: `OPTION_INVALID`: none; `OPTION_INVALID`.
    """
    loaded = [row for row in directory.rows if row.dag_id is not None]
    names = names_of(tables)
    if wanted := names_of(select):
        names += [row.table for row in selected(loaded, wanted)]
    if unwanted := names_of(exclude):
        left_out = {row.table for row in selected(loaded, unwanted)}
        names = [name for name in names if name not in left_out]
    if not names:
        raise invalid_request("no table is named or selected", "set tables or select, e.g. select=['tag:finance']")
    return list(dict.fromkeys(names))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    return moment_in(f"{text!r}", text, "2024-01-31T00:00:00Z")


def moment_in(named: str, text: str, example: str) -> float:
    """Seconds since the epoch; UTC when the text names no zone.

    Args:
        named: what the message calls it.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    try:
        return moment_of(text).timestamp()
    except ValueError as error:
        raise invalid_request(f"{named} is not a moment", f"write ISO 8601, e.g. {example}") from error


def invalid_request(what: str, remedy: str) -> MetadataError:
    return invalid_option(what, remedy, "params")


def is_by_person(run_id: str) -> bool:
    """Whether a user or API call started the run; run ids of Airflow's scheduler start with the run type."""
    return not run_id.startswith(_BY_AIRFLOW)


def requests_of(
    params: Mapping[str, Any], directory: Directory | None
) -> tuple[dict[str, dict[str, Any]], tuple[MetadataError, ...]]:
    """What a request asks of DAGs: DAG id to the `conf` of the run to trigger, sorted; and why tables are in none.

    Args:
        params: fields of the trigger form; `tables` names at least one.
        directory: every table of the metadata; None: it can't be read.

    Raises:
        MetadataError: `OPTION_INVALID`, `TABLE_AMBIGUOUS`: the request, or each of its tables.
    """
    form = from_params(params)
    if not form.tables:
        raise invalid_request("no table is named", "name tables, e.g. shop.orders")
    homes, refused = _homes(form.tables, directory)
    if not homes:
        raise refused[0]
    by_dag: defaultdict[str, list[str]] = defaultdict(list)
    for table, dag_id in homes.items():
        by_dag[dag_id].append(table)
    # Without the keys that Airflow added for its own purposes: it adds them again, for the runs that are triggered.
    given = {name: params[name] for name in FIELDS if params.get(name) not in (None, False, [], "")}
    return {dag_id: {**given, "tables": tables} for dag_id, tables in sorted(by_dag.items())}, refused


def loaded_by(tables: Iterable[str], directory: Directory | None) -> dict[str, str]:
    """Target to the DAG that loads it, sorted; of all of the named tables.

    Args:
        directory: see `requests_of`.

    Raises:
        MetadataError: `TABLE_AMBIGUOUS`; `OPTION_INVALID`: a table that the metadata does not have, or that no DAG
            loads, since its row is disabled or invalid.
    """
    homes, refused = _homes(tables, directory)
    if refused:
        raise refused[0]
    return homes


def _homes(tables: Iterable[str], directory: Directory | None) -> tuple[dict[str, str], tuple[MetadataError, ...]]:
    """See `loaded_by`; and what it raises for the others."""
    rows = {row.table: row for row in directory.rows} if directory is not None else {}
    names = TableNames(rows.values())
    homes: dict[str, str] = {}
    refused: list[MetadataError] = []
    unknown: list[str] = []
    for table in sorted(set(tables)):
        try:
            target = names.find(table)
            if target is None:
                unknown.append(table)
            else:
                homes[target] = _home(rows[target])
        except MetadataError as error:
            refused.append(error)
    if unknown:
        what = f"no table of the metadata: {', '.join(unknown)}"
        refused.insert(0, invalid_request(what, "see `gddl validate` for the names"))
    return dict(sorted(homes.items())), tuple(refused)


def _home(row: TableRow) -> str:
    """DAG id of the pipeline that loads a table.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if row.problems:
        raise invalid_request(
            f"no DAG loads {row.table}: its metadata row is invalid", "run `gddl validate` and fix the metadata row"
        )
    if row.dag_id is None:
        raise invalid_request(f"no DAG loads {row.table}: its metadata row is disabled", "set enabled to true")
    return row.dag_id
