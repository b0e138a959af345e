"""Consistent cuts: tables of a source as it had them at one commit (docs/as-of.md).

What jobs say of their tables, how a moment is chosen from that, and the documents in which the lake names the cuts.

A *place* orders the transactions of a source: text, the position in PostgreSQL's log of the commit before a transaction
(`postgresql_log.place_in`), or its commit time. Of each kind all places have one form, so that they compare as text. A
cut has the transactions whose places are before its *bound*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import CUT_MISSING, CUT_REFUSED, LEDGER_DAMAGED, LEDGER_NEWER, OPTION_INVALID
from airflow_gddl.contract.completeness import DELIVERY_SECONDS
from airflow_gddl.contract.errors import SWAP_TRIES, FatalError, MetadataError, contended
from airflow_gddl.contract.layout import CUTS, STATE, join
from airflow_gddl.contract.postgresql_log import epoch_of, place_in, position_of
from airflow_gddl.contract.postgresql_log import lsn_of as lsn
from airflow_gddl.contract.table_spec import TableSpec

CutKind = Literal["log", "time"]
"""How transactions are told apart: by the place of their commit in the source's log, or by their commit time."""
LATEST = "latest"

_POSITION = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
_MICROSECOND = timedelta(microseconds=1)
_BEFORE_ALL = ""
"""A moment before every place."""
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
"""Nothing is computed with earlier times, in no zone."""


@dataclass(frozen=True, kw_only=True)
class FoundPlaces:
    """What the changes of one table say of the moment that is asked for.

    Attributes:
        after: of a time: the first place in the log whose transaction was committed later; None: none was.
        before: of a place in the log: the last place of a commit up to it that the changes name; None: none.
        own: of transactions right behind `before`, the greatest place of a change; None: there is none.
        behind: the first place of a commit after it that the changes name; None: none.
        reached: of a time: the greatest place of a change that was committed by then; None: none was.
    """

    after: str | None = None
    before: str | None = None
    own: str | None = None
    behind: str | None = None
    reached: str | None = None


@dataclass(frozen=True, kw_only=True)
class CutFacts:
    """What is known of one table before a moment is chosen; see the module for places and bounds.

    Attributes:
        generation: of its newest full load, which the cut begins with; version: of the change table.
        complete: bound up to which every change of the table is known to have come.
        until: the moment that `complete` stands for: no transaction that is not before `complete` was committed by it.
        whole: nothing but the end of what was read of the source's log ends that.
        lacking: why not further; empty: `whole`.
        least: moment by which the full load had read its last row; the cut can't be earlier.
        above: the rows of a snapshot have this place, so that the bound is greater; empty: rows of a load have none.
        loaded_at: by then the full load had read its last row, ISO 8601 UTC; empty: only `least` tells. Of a log alone.
        newest: newest commit time of the table, ISO 8601 UTC; None: none.
        known_at: all that was committed by then was read, ISO 8601 UTC; None: that is not known.
        number: of the log; see `LogEnd.number`.
        connector: of Debezium, by whose events the places are known; empty: jobs read the log, or there is none.
        keys: see `key_forms`.
    """

    table: str
    kind: CutKind
    generation: int
    version: int
    complete: str
    until: str
    whole: bool
    least: str
    lacking: str = ""
    above: str = ""
    newest: str | None = None
    known_at: str | None = None
    number: int = 0
    connector: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    found: FoundPlaces = field(default_factory=FoundPlaces)
    loaded_at: str = ""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The moment of a cut: what was committed by `until` is before `bound`, and nothing else is."""

    kind: CutKind
    bound: str
    until: str

    @property
    def shown(self) -> str:
        """For people: a position as the source writes it, or a time."""
        return lsn_of(self.until) if self.kind == "log" else self.until


@dataclass(frozen=True, kw_only=True)
class CutTable:
    """One table of a cut.

    Attributes:
        folder: of the table, below the lake.
        generation, least, keys: see `CutFacts`.
        version: of the change table from which on it was made.
        commit_ts: of the newest of the changes in it; None: it has none but rows of the full load.
        rows, columns: of the table as it was made; None, empty: it is not made yet.
    """

    table: str
    folder: str
    generation: int
    version: int
    least: str
    keys: Mapping[str, str]
    commit_ts: str | None = None
    rows: int | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, facts: CutFacts) -> CutTable:
        """The table of a cut of this name, which is not made yet."""
        return cls(
            table=facts.table, folder=join(CUTS, name, *facts.table.split(".", 1)), generation=facts.generation,
            version=facts.version, least=facts.least, keys=facts.keys,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A cut, as its document names it.

    Attributes:
        asked: as the user has named the moment.
        begun_at, made_at: ISO 8601 UTC; None: a command that was killed has left it.
    """

    name: str
    source: str
    asked: str
    moment: Moment
    begun_at: str
    tables: tuple[CutTable, ...]
    made_at: str | None = None

    def of(self, table: str) -> CutTable | None:
        return next((one for one in self.tables if one.table == table), None)


def cuts_folder(lake: str) -> str:
    """Folder of the documents, one for each cut."""
    return join(lake, STATE, "cuts")


def cut_path(lake: str, name: str) -> str:
    return join(cuts_folder(lake), f"{name}.json")


def require_name(name: str) -> None:
    """Require a name that is a folder's.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if not _NAME.fullmatch(name):
        remedy = "name it (--name) in lower-case letters, digits and _, e.g. closing_2026_01"
        raise MetadataError(OPTION_INVALID, f"not a name of a cut: {name!r:.80}", remedy=remedy)


def key_forms(spec: TableSpec) -> dict[str, str]:
    """Key columns to what masks them; empty: nothing. By equal forms, a key is the same in two tables.

    Args:
        spec: of a job, which knows `mask_key_id`.
    """
    masks = {name.lower(): method for name, method in spec.mask.items()}
    forms = {key.lower(): str(masks.get(key.lower(), "")) for key in spec.keys}
    return {key: f"{form} {spec.mask_key_id}" if form == "hmac" else form for key, form in forms.items()}


def lsn_of(place: str) -> str:
    """A place as PostgreSQL writes it, whatever number of logs came before."""
    return lsn(int(place.removeprefix(epoch_of(place))))


def time_place(moment: datetime) -> str:
    """A commit time as a place."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, kw_only=True)
class AskedMoment:
    """What `--at` says: a time, a position in PostgreSQL's log, or neither: the latest."""

    text: str
    time: datetime | None = None
    position: int | None = None


def asked_moment(text: str) -> AskedMoment:
    """Read what the user has written.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if text == LATEST:
        return AskedMoment(text=text)
    if _POSITION.fullmatch(text):
        return AskedMoment(text=text, position=position_of(text))
    try:
        time = datetime.fromisoformat(text)
        is_moment = time.tzinfo is not None and time.astimezone(UTC) + _MICROSECOND > _FIRST
    except (ValueError, OverflowError):
        is_moment = False
    if not is_moment:
        remedy = "write latest, a time with its zone as 2026-01-31T23:59:59Z, or a position of the log as 0/16B3740"
        raise MetadataError(OPTION_INVALID, f"--at is not a moment: {text!r:.80}", remedy=remedy)
    return AskedMoment(text=text, time=time)


def _reached(facts: Iterable[CutFacts]) -> str:
    """Where the log was at the time that is asked for, or behind: the last place of a change that was committed by
    then."""
    return max((one.found.reached for one in facts if one.found.reached is not None), default="")


def _is_after_load(asked: AskedMoment, one: CutFacts, reached: str) -> bool:
    """Whether the moment is not earlier than the end of the full load.

    What was committed before a load, of which no log tells, is in its rows: the first transaction after a time is not
    enough to know that the time is not earlier.
    """
    if asked.position is not None:
        return one.kind == "time" or one.least <= place_in(one.number, asked.position)
    if asked.time is None:
        return True
    if one.kind == "time":
        return one.least <= time_place(asked.time)
    is_by_clock = bool(one.loaded_at) and asked.time >= datetime.fromisoformat(one.loaded_at)
    return is_by_clock or one.least <= reached


def chosen(asked: AskedMoment, facts: Sequence[CutFacts]) -> Moment:
    """The moment that is asked for, once it is sure that each table can be shown as of it.

    Args:
        facts: of each table.

    Raises:
        FatalError: `CUT_REFUSED`, with the tables and the reason of each.
    """
    kinds = sorted({(one.kind, one.number, one.connector) for one in facts})
    if len(kinds) > 1:
        shown = "; ".join(f"{one.table}: {_order_of(one)}" for one in facts)
        what = f"no cut at {asked.text}: the tables order transactions by different things: {shown}"
        raise FatalError(CUT_REFUSED, what, remedy="make a cut of the tables of each kind, by --table")
    _require_complete(asked, facts, lambda one: bool(one.complete))
    moment = _by_kind[kinds[0][0]](asked, facts)
    _require_loaded(asked, moment, facts)
    return moment


def _order_of(one: CutFacts) -> str:
    """What orders the transactions of a table, for people."""
    if one.kind == "time":
        return "commit times"
    by = f"the connector {one.connector}" if one.connector else "gddl itself"
    shown = f"positions of PostgreSQL's log, read by {by}"
    return f"{shown}, number {one.number}" if one.number else shown


def _in_log(asked: AskedMoment, facts: Sequence[CutFacts]) -> Moment:
    if asked.position is not None:
        return _at_position(asked, facts)
    if asked.time is None:
        return _latest_in_log(facts)
    later = [one.found.after for one in facts if one.found.after is not None]
    if later:
        bound = min(later)
        _require_complete(asked, facts, lambda one: bound <= one.complete)
        return Moment(kind="log", bound=bound, until=bound)
    _require_complete(asked, facts, lambda one: one.whole)
    known = _known_by(facts)
    if known is None or asked.time > known:
        until = "no time" if known is None else known.isoformat()
        what = f"no cut at {asked.text}: what was committed by then is not known to have come; it is by {until}"
        raise FatalError(CUT_REFUSED, what, remedy=_EARLIER)
    return _latest_in_log(facts)


def _known_by(facts: Sequence[CutFacts]) -> datetime | None:
    """The commit time by which all is before the least of `CutFacts.complete`; None: none is known.

    A reading of the log tells of all tables, by clocks that may differ; the newest change of one, only where none was
    read less far.
    """
    read = [one.known_at for one in facts if one.known_at is not None]
    known = (
        [min(map(datetime.fromisoformat, read)) - timedelta(seconds=DELIVERY_SECONDS)]
        if len(read) == len(facts)
        else []
    )
    if len({one.complete for one in facts}) == 1:
        known += [datetime.fromisoformat(one.newest) for one in facts if one.newest is not None]
    return max(known, default=None)


def _latest_in_log(facts: Sequence[CutFacts]) -> Moment:
    return Moment(kind="log", bound=min(one.complete for one in facts), until=min(one.until for one in facts))


def _at_position(asked: AskedMoment, facts: Sequence[CutFacts]) -> Moment:
    """The cut behind all transactions that were committed up to a position.

    Changes name the commit before their transaction, which was committed behind its own last change, and up to the
    next commit that a change names. Where the position is between the two, nothing tells on which side of it the commit
    is.
    """
    until = place_in(facts[0].number, asked.position or 0)
    reset = "the log was reset since the full load, and the position may be in either log"
    others = [one for one in facts if epoch_of(one.complete) != epoch_of(until)]
    _refuse(asked, others, lambda _: reset, "take a time, or latest")
    _refuse(asked, facts, lambda one: _if_unloaded(one, until), _LATER)
    _require_complete(asked, facts, lambda one: until <= one.until)
    commits = [one.found.before for one in facts if one.found.before is not None]
    commits += [one.complete for one in facts if one.complete <= until]
    bound = max(commits, default="")
    owns = [one.found.own or "" for one in facts if one.found.before == bound]
    if bound < until and max(owns, default=until) < until:  # else the transaction has a change behind the position
        _refuse(asked, facts, lambda one: _if_open(one, bound), _near(facts, bound))
    return Moment(kind="log", bound=bound, until=until)


def _near(facts: Sequence[CutFacts], bound: str) -> str:
    """Which positions can be shown."""
    behind = min(one.found.behind or one.complete for one in facts)
    first = f"{lsn_of(bound)}, without that transaction, or " if bound else ""
    return f"take {first}{lsn_of(behind)}, with it alone; or latest"


def _if_open(one: CutFacts, bound: str) -> str:
    found = one.found
    if found.before != bound or found.own is None:
        return ""
    return (
        f"a transaction has its last change at {lsn_of(found.own)}, and whether it was committed by then is not known"
    )


def _by_time(asked: AskedMoment, facts: Sequence[CutFacts]) -> Moment:
    if asked.position is not None:
        what = f"no cut at {asked.text}: it is a position of a log, and changes of these tables have commit times alone"
        raise FatalError(CUT_REFUSED, what, remedy="write a time, or latest")
    if asked.time is None:
        bound = min(one.complete for one in facts)
    else:
        bound = time_place(asked.time + _MICROSECOND)
        _require_complete(asked, facts, lambda one: bound <= one.complete)
    return Moment(kind="time", bound=bound, until=time_place(datetime.fromisoformat(bound) - _MICROSECOND))


_by_kind: Mapping[CutKind, Callable[[AskedMoment, Sequence[CutFacts]], Moment]] = {"log": _in_log, "time": _by_time}


_EARLIER = "take an earlier moment, or run the tables until they have it"
_LATER = "take a later moment; where nothing was committed since the load, once a table has changed"


def _require_complete(asked: AskedMoment, facts: Sequence[CutFacts], holds: Callable[[CutFacts], bool]) -> None:
    """Refuse the cut for tables that are not known to be complete until the moment.

    Raises:
        FatalError: `CUT_REFUSED`.
    """
    _refuse(asked, facts, lambda one: "" if holds(one) else _incomplete(one), _EARLIER)


def _incomplete(one: CutFacts) -> str:
    shown = f"complete until {_shown(one, one.until)}" if one.until else "not known to be complete until any moment"
    return shown + (f": {one.lacking}" if one.lacking else "")


def _shown(one: CutFacts, place: str) -> str:
    return lsn_of(place) if one.kind == "log" else place


def _require_loaded(asked: AskedMoment, moment: Moment, facts: Sequence[CutFacts]) -> None:
    reached, shown = _reached(facts), AskedMoment(text=moment.shown if asked.time is None else asked.text)

    def until(one: CutFacts) -> str:
        return moment.until if one.above < moment.bound and _is_after_load(asked, one, reached) else _BEFORE_ALL

    _refuse(shown, facts, lambda one: _if_unloaded(one, until(one)), _LATER)


def _if_unloaded(one: CutFacts, until: str) -> str:
    if one.least <= until:
        return ""
    by = f", by {one.loaded_at} at the latest" if one.loaded_at else ""
    return (
        f"its full load was read until {_shown(one, one.least)}{by}, so that nothing earlier than that is known of its "
        "rows"
    )


def _refuse(asked: AskedMoment, facts: Iterable[CutFacts], reason: Callable[[CutFacts], str], remedy: str) -> None:
    """Refuse the cut for the tables that have a reason.

    Raises:
        FatalError: `CUT_REFUSED`, where a table has a reason.
    """
    reasons = [f"{one.table}: {why}" for one in facts if (why := reason(one))]
    if reasons:
        raise FatalError(CUT_REFUSED, f"no cut at {asked.text}: {'; '.join(reasons)}", remedy=remedy)


class DocumentStore(Protocol):
    """What commands and jobs read and change the documents of cuts by; see `stores.Storage`."""

    def list(self, folder: str, /) -> Iterable[Any]: ...

    def read_tagged(self, path: str, /) -> tuple[bytes, str]: ...

    def swap_once(self, path: str, data: bytes, tag: str | None, /) -> bool: ...


def read_cut(store: DocumentStore, lake: str, name: str) -> Cut:
    """The document of a cut.

    Raises:
        FatalError: `CUT_MISSING`: there is none; as `cuts`.
    """
    return _tagged(store, lake, name)[0]


def cuts(store: DocumentStore, lake: str) -> Iterator[Cut]:
    """All cuts, by their names; without those that are dropped meanwhile.

    Raises:
        FatalError: `LEDGER_DAMAGED`: a document can't be read, or names what is no part of its cut.
    """
    for item in list(store.list(cuts_folder(lake))):
        name = item.path.rpartition("/")[2]
        if name.endswith(".json"):
            try:
                yield read_cut(store, lake, name.removesuffix(".json"))
            except FatalError as error:
                if error.code != CUT_MISSING:
                    raise


def change_cut(store: DocumentStore, lake: str, name: str, change: Callable[[Cut], Cut]) -> Cut:
    """Change the document of a cut, which others change too.

    Args:
        change: from the document that is there; called again where it was changed meanwhile.

    Returns:
        the changed cut.

    Raises:
        FatalError: as `read_cut`, and what `change` raises.
        RetriableError: `STATE_CONTENDED`.
    """
    path = cut_path(lake, name)
    for _ in range(SWAP_TRIES):
        known, tag = _tagged(store, lake, name)
        changed = change(known)
        if store.swap_once(path, codec.to_json(changed).encode(), tag):
            return changed
    raise contended(path)


def _tagged(store: DocumentStore, lake: str, name: str) -> tuple[Cut, str]:
    path = cut_path(lake, name)
    try:
        data, tag = store.read_tagged(path)
    except FileNotFoundError:
        raise FatalError(
            CUT_MISSING, f"there is no cut {name}", remedy="name one that `gddl as-of list` shows"
        ) from None
    remedy = f"restore it from a version; or delete it with the folder {join(lake, CUTS, name)}, and make the cut again"
    try:
        cut = codec.from_json(Cut, data.decode())
    except codec.NewerDocumentError as error:
        what = f"a newer airflow-gddl wrote it: {error.what}"
        raise FatalError(LEDGER_NEWER, what, where=path, remedy="install that version here, too") from error
    except (FatalError, ValueError) as error:
        raise FatalError(LEDGER_DAMAGED, f"unreadable: {error}", where=path, remedy=remedy) from error
    own = f"{CUTS}/{name}/"
    if cut.name != name or not all(
        one.folder.startswith(own) and not {"", ".", ".."} & {*one.folder.split("/")} for one in cut.tables
    ):
        what = f"it names tables that are not below {own}, or another cut"
        raise FatalError(LEDGER_DAMAGED, what, where=path, remedy=remedy)
    return cut, tag
