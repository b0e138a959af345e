"""A look at all sources that ask for it, and decisions of a person.

Proposals are kept by the lake, changed by conditional puts; accepted rows are written into the metadata folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import from_json_or_none, to_json
from airflow_gddl.contract.codes import (
    NEW_TABLE_KEY_MEASURED,
    NEW_TABLE_LANDING,
    NEW_TABLE_NO_KEY,
    NEW_TABLE_REFUSED,
    NEW_TABLES_WAIT,
    OPTION_INVALID,
)
from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.metadata.loading import LoadedMetadata, load_folder
from airflow_gddl.metadata.settings import read_settings
from airflow_gddl.runtime.compiled.proposals import StoredProposals, place_of
from airflow_gddl.stores import open_store
from airflow_gddl.stores.storage import read_document, update_object
from airflow_gddl.tools.onboarding.new_tables.finding import Finder, LookRequest, trial
from airflow_gddl.tools.onboarding.new_tables.standing import Known, NewTable, SourceView, after, is_measured
from airflow_gddl.tools.onboarding.writing import FileChange, read_files, write_out


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What a person decides of tables by name, `source:schema.name`.

    Attributes:
        keys: of the only one that is accepted, instead of those that were found.
        append_only: accept without keys.
    """

    accept: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    append_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is known of tables without a row.

    Attributes:
        fresh: proposed by this look, or decided.
        faults: sources that could not be looked at.
        files: with the rows of tables that are accepted.
        unwritten: why the files can't be written; empty: they are.
    """

    known: Known
    fresh: tuple[NewTable, ...] = ()
    faults: tuple[GddlError, ...] = ()
    files: tuple[FileChange, ...] = ()
    unwritten: str = ""

    @property
    def lines(self) -> Iterator[str]:
        """What became of the files, and their content where a person has to add them."""
        if self.unwritten:
            yield f"the metadata folder can't be written ({self.unwritten}); add these files to it:"
        for file in self.files:
            yield f"{file.name}:\n{file.new}" if self.unwritten else f"{file.name} written"


@dataclass(frozen=True)
class _Opened:
    """The metadata, and what is known of tables without a row."""

    loaded: LoadedMetadata
    environ: Mapping[str, str]
    known: Known

    @classmethod
    def by(cls, request: LookRequest) -> _Opened:
        """
        Raises:
            MetadataError: `OPTION_INVALID`: no source asks for it.
        """
        loaded = load_folder(request.folder, request.environ)
        if not loaded.proposing:
            remedy = "write new_tables: propose below a source in gddl.yaml"
            raise MetadataError(OPTION_INVALID, "no source asks for new tables", remedy=remedy)
        environ, path = request.reaching(loaded), place_of(loaded.roots.lake, loaded.dag_prefix)
        return cls(loaded, environ, Known.of(read_document(open_store(environ), path, StoredProposals)))

    def changed(self, change: Callable[[Known], Known]) -> Known:
        """Store what a change makes of what is stored; nothing is written where that is the same."""
        if change(self.known) == self.known:
            return self.known

        def changed(data: bytes | None) -> StoredProposals:
            stored = None if data is None else from_json_or_none(StoredProposals, data)
            return change(Known.of(stored)).document

        path = place_of(self.loaded.roots.lake, self.loaded.dag_prefix)
        return Known.of(update_object(open_store(self.environ), path, changed, lambda made: to_json(made).encode()))


def look(request: LookRequest) -> Looked:
    """Look at each source, and store what is new. A source that can't be read does not stop the others.

    Raises:
        MetadataError: `NEW_TABLES_WAIT`; as `load_folder`.
        GddlError: the lake can't be read, or written.
    """
    opened = _Opened.by(request)
    _require_whole(opened.loaded)
    views: dict[str, SourceView] = {}
    faults: list[GddlError] = []
    for source in sorted(opened.loaded.proposing):
        try:
            views[source] = Finder(request, opened.loaded, opened.environ, source).view(opened.known)
        except GddlError as error:
            faults.append(error)
    known = opened.changed(lambda stored: after(stored, views))
    had = {(one.name, one.standing) for one in opened.known.tables}
    fresh = tuple(one for one in known.tables if (one.name, one.standing) not in had)
    return Looked(known=known, fresh=fresh, faults=tuple(faults))


def read(request: LookRequest) -> Looked:
    """What is stored; nothing is listed."""
    return Looked(known=_Opened.by(request).known)


def decide(request: LookRequest, decisions: Decisions) -> Looked:
    """Accept tables, whose rows are written into the metadata folder, and ignore others.

    Where the folder can't be written, accepted tables stay proposed, and the result has the files.

    Raises:
        MetadataError: `OPTION_INVALID`, `NEW_TABLE_NO_KEY`, `NEW_TABLE_REFUSED`, `NEW_TABLE_LANDING`,
            `NEW_TABLE_KEY_MEASURED`; then nothing is changed.
        GddlError: the lake can't be read, or written; or the source, of which a key was measured.
    """
    opened = _Opened.by(request)
    if decisions.keys and len(decisions.accept) != 1:
        raise MetadataError(OPTION_INVALID, "keys are those of one table", remedy="accept one table at a time")
    accepted = [_accepted(request, opened, _found(opened.known, name), decisions) for name in decisions.accept]
    _require_sound(request, accepted)
    ignored = [replace(_found(opened.known, name), standing="ignored", at=request.now) for name in decisions.ignore]
    files = tuple(_files(request, accepted))
    unwritten = _unwritten(request, files)
    known = opened.changed(lambda stored: stored.decided([*ignored, *(() if unwritten else accepted)]))
    return Looked(known=known, fresh=(*accepted, *ignored), files=files, unwritten=unwritten)


def _files(request: LookRequest, tables: Sequence[NewTable]) -> Iterator[FileChange]:
    """Of rows and keys, beside those that each source has."""
    settings = read_settings(request.folder, request.environ)
    for source in sorted({one.source for one in tables}):
        mine = [one.proposal for one in tables if one.source == source]
        yield from write_out(read_files(request.folder, settings, source), source, mine)


def _unwritten(request: LookRequest, files: Sequence[FileChange]) -> str:
    """Write the files; why they can't be; empty: they are."""
    store = open_store(request.environ)
    try:
        for file in reversed(files):  # keys first: a row without them would be invalid
            store.write(join(request.folder.base, file.name), file.new.encode())
    except (OSError, GddlError) as error:
        return str(error)
    return ""


def _require_whole(loaded: LoadedMetadata) -> None:
    """
    Raises:
        MetadataError: `NEW_TABLES_WAIT`: a file may have rows that can't be read.
    """
    if unread := [problem for problem in loaded.problems if problem.table is None]:
        what = f"any new folder may have a row in a file that can't be read: {unread[0].place}"
        raise MetadataError(NEW_TABLES_WAIT, what, remedy="fix the file; `gddl validate` names its problems")


def _found(known: Known, name: str) -> NewTable:
    one = known.find(name)
    if one is None:
        remedy = "`gddl new-tables list` shows them; write source:schema.name"
        raise MetadataError(OPTION_INVALID, f"no table without a metadata row is known as {name!r:.300}", remedy=remedy)
    return one


def _accepted(request: LookRequest, opened: _Opened, one: NewTable, decisions: Decisions) -> NewTable:
    keys = decisions.keys or (() if decisions.append_only else one.keys)
    if keys is None:
        what, remedy = f"{one.name} has no keys", "name them with --key, or write --append-only: each change is a row"
        raise MetadataError(NEW_TABLE_NO_KEY, what, remedy=remedy)
    if is_measured(one) and not decisions.keys and not decisions.append_only:
        one = _measured_again(request, opened, one)
    evidence = one.evidence if keys == one.keys else "named by a person"
    return replace(one, standing="accepted", at=request.now, keys=keys, evidence=evidence, refused="", why="")


def _measured_again(request: LookRequest, opened: _Opened, one: NewTable) -> NewTable:
    """The table as its files are now: the look that measured its keys may have seen a part of the full load.

    Raises:
        MetadataError: `NEW_TABLE_LANDING`: the load has not ended. `NEW_TABLE_KEY_MEASURED`: it has other keys now.
    """
    now = Finder(request, opened.loaded, opened.environ, one.source).again(one)
    keys, remedy = ", ".join(one.keys or ()), "or name the keys with --key"
    if now.refused == NEW_TABLE_LANDING:
        what = f"{one.name}: {now.why}, so that its keys {keys} may be measured of a part"
        raise MetadataError(NEW_TABLE_LANDING, what, remedy=f"accept it again once its full load has landed, {remedy}")
    if now.keys != one.keys:
        what = f"{one.name}: {keys} was measured, and by its files as they are now its keys are"
        what += f" {', '.join(now.keys)}" if now.keys else " none"
        raise MetadataError(NEW_TABLE_KEY_MEASURED, what, remedy=f"see `gddl new-tables look`, {remedy}")
    return now


def _require_sound(request: LookRequest, tables: list[NewTable]) -> None:
    """
    Raises:
        MetadataError: `NEW_TABLE_REFUSED`.
    """
    problems = trial(request, [one.row for one in tables]).problems if tables else {}
    for name, problem in problems.items():
        what = f"{name} would be invalid: {problem or 'another metadata row has its name'}"
        raise MetadataError(
            NEW_TABLE_REFUSED,
            what,
            remedy="write its metadata row into the metadata folder; `gddl onboard SOURCE` shows one",
        )
