"""A look at all sources that ask for it, and decisions of a person: both change the object by a conditional put."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.metadata.loading import LoadedMetadata, LookRequest, load_folder
from airflow_gddl.metadata.looks import Decisions, LakeRows, parsed
from airflow_gddl.onboarding.new_tables.finding import Finder, trial
from airflow_gddl.onboarding.new_tables.standing import (
    LANDING_CODE,
    MEASURED_CODE,
    NO_KEY_CODE,
    Known,
    NewTable,
    SourceView,
    after,
    is_measured,
)
from airflow_gddl.stores import open_store
from airflow_gddl.stores.storage import update_object


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is known of tables without a row.

    Attributes:
        fresh: proposed by this look, or decided.
        faults: sources that could not be looked at.
    """

    known: Known
    fresh: tuple[NewTable, ...] = ()
    faults: tuple[GddlError, ...] = ()


def look(request: LookRequest) -> Looked:
    """Look at each source, and store what is new. A source that can't be read does not stop the others.

    Raises:
        MetadataError: `NEW_TABLES_WAIT`; as `load_folder`.
        GddlError: the lake can't be read, or written.
    """
    loaded, before = _loaded(request)
    _require_whole(loaded)
    environ = request.reaching(loaded)
    views: dict[str, SourceView] = {}
    faults: list[GddlError] = []
    for source in sorted(loaded.beside.looked_at):
        try:
            views[source] = Finder(request, loaded, environ, source).view(before)
        except GddlError as error:
            faults.append(error)
    known = _change(loaded, environ, lambda stored: after(stored, views))
    had = {(one.name, one.standing) for one in before.tables}
    fresh = tuple(one for one in known.tables if (one.name, one.standing) not in had)
    return Looked(known=known, fresh=fresh, faults=tuple(faults))


def read(request: LookRequest) -> Looked:
    """What is stored; nothing is listed."""
    return Looked(known=_loaded(request)[1])


def decide(request: LookRequest, decisions: Decisions) -> Looked:
    """Accept tables, whose rows the lake then keeps, and ignore others.

    Raises:
        MetadataError: `NEW_TABLE_UNKNOWN`, `NEW_TABLE_NO_KEY`, `NEW_TABLE_REFUSED`, `NEW_TABLE_LANDING`,
            `NEW_TABLE_KEY_MEASURED`; then nothing is changed.
        GddlError: the lake can't be read, or written; or the source, of which a key was measured.
    """
    loaded, before = _loaded(request)
    if decisions.keys and len(decisions.accept) != 1:
        raise MetadataError("OPTION_INVALID", "keys are those of one table", remedy="accept one table at a time")
    decided = [_accepted(request, loaded, _found(before, name), decisions) for name in decisions.accept]
    _require_sound(request, decided)
    decided += [_ignored(before, name, request.now) for name in decisions.ignore]

    def change(stored: Known) -> Known:
        for one in decided:
            stored = stored.with_table(one)
        return stored

    known = _change(loaded, request.reaching(loaded), change)
    return Looked(known=known, fresh=tuple(decided))


def _loaded(request: LookRequest) -> tuple[LoadedMetadata, Known]:
    """
    Raises:
        MetadataError: `NEW_TABLES_OFF`: no source asks for it.
    """
    loaded = load_folder(request.folder, request.environ, lake=request.lake)
    if loaded.beside.stored is None:
        remedy = "write new_tables: propose below a source in gddl.yaml"
        raise MetadataError("NEW_TABLES_OFF", "no source asks for new tables", remedy=remedy)
    return loaded, Known.of(loaded.beside.stored.content)


def _require_whole(loaded: LoadedMetadata) -> None:
    """
    Raises:
        MetadataError: `NEW_TABLES_WAIT`: a file may have rows that can't be read.
    """
    if unread := [problem for problem in loaded.problems if problem.table is None]:
        what = f"any new folder may have a row in a file that can't be read: {unread[0].place}"
        raise MetadataError("NEW_TABLES_WAIT", what, remedy="fix the file; `gddl validate` names its problems")


def _change(loaded: LoadedMetadata, environ: Mapping[str, str], change: Callable[[Known], Known]) -> Known:
    """Store what a change makes of what is stored; nothing is written where that is the same."""
    stored = loaded.beside.stored
    assert stored is not None  # noqa: S101 - `_loaded` has seen it
    before = Known.of(stored.content)
    made = change(before)
    if made == before and made.lake_rows().notes == stored.content.notes:
        return made

    def changed(data: bytes | None) -> LakeRows:
        return change(Known.of(parsed(data, stored.path))).lake_rows()

    written = update_object(open_store(environ), stored.path, changed, lambda rows: to_json(rows).encode())
    return Known.of(written)


def _found(known: Known, name: str) -> NewTable:
    one = known.find(name)
    if one is None:
        remedy = "`gddl new-tables list` shows them; write source:schema.name"
        raise MetadataError(
            "NEW_TABLE_UNKNOWN", f"no table without a metadata row is known as {name!r:.300}", remedy=remedy
        )
    return one


def _accepted(request: LookRequest, loaded: LoadedMetadata, one: NewTable, decisions: Decisions) -> NewTable:
    keys = decisions.keys or (() if decisions.append_only else one.keys)
    if keys is None:
        what, remedy = f"{one.name} has no keys", "name them with --key, or write --append-only: each change is a row"
        raise MetadataError(NO_KEY_CODE, what, remedy=remedy)
    if is_measured(one) and not decisions.keys and not decisions.append_only:
        one = _measured_again(request, loaded, one)
    evidence = one.evidence if keys == one.keys else "named by a person"
    return replace(one, standing="added", at=request.now, keys=keys, evidence=evidence, refused="", why="")


def _measured_again(request: LookRequest, loaded: LoadedMetadata, one: NewTable) -> NewTable:
    """The table as its files are now: the look that measured its keys may have seen a part of the full load.

    Raises:
        MetadataError: `NEW_TABLE_LANDING`: the load has not ended. `NEW_TABLE_KEY_MEASURED`: it has other keys now.
    """
    now = Finder(request, loaded, request.reaching(loaded), one.source).again(one)
    keys, remedy = ", ".join(one.keys or ()), "or name the keys with --key"
    if now.refused == LANDING_CODE:
        what = f"{one.name}: {now.why}, so that its keys {keys} may be measured of a part"
        raise MetadataError(LANDING_CODE, what, remedy=f"accept it again once its full load has landed, {remedy}")
    if now.keys != one.keys:
        what = f"{one.name}: {keys} was measured, and by its files as they are now its keys are"
        what += f" {', '.join(now.keys)}" if now.keys else " none"
        raise MetadataError(MEASURED_CODE, what, remedy=f"see `gddl new-tables look`, {remedy}")
    return now


def _ignored(known: Known, name: str, now: float) -> NewTable:
    return replace(_found(known, name), standing="ignored", at=now)


def _require_sound(request: LookRequest, tables: list[NewTable]) -> None:
    """
    Raises:
        MetadataError: `NEW_TABLE_REFUSED`.
    """
    problems = trial(request, [one.row for one in tables]).problems if tables else {}
    for name, problem in problems.items():
        what = f"{name} would be invalid: {problem or 'another metadata row has its name'}"
        raise MetadataError(
            "NEW_TABLE_REFUSED",
            what,
            remedy="write its metadata row into the metadata folder; `gddl onboard SOURCE` shows one",
        )
