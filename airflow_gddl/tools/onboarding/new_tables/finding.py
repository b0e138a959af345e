"""Finds the tables of a source that have no row, and the row that each could have.

Folders are listed, one request for each schema: a table is replicated where its files land. Where jobs read the log or
topics of a source themselves, no folder shows that, and its catalog is asked. Keys come from that catalog where the
source names a `connection`, else they are measured in the files of the full load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from airflow_gddl.contract.codes import (
    NEW_TABLE_LANDING,
    NEW_TABLE_REFUSED,
    NEW_TABLE_TARGET_EXISTS,
    ONBOARD_SCHEMA_MISSING,
)
from airflow_gddl.contract.connections import require_lent
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import LandingFolder, Layout, join
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.loading import LoadedMetadata, load_folder
from airflow_gddl.metadata.problems import show_name
from airflow_gddl.metadata.rows import FOLDER
from airflow_gddl.metadata.sources import Source
from airflow_gddl.runtime.compiled.proposals import place_of
from airflow_gddl.stores import open_store
from airflow_gddl.tools.onboarding.database import Database
from airflow_gddl.tools.onboarding.new_tables import renames
from airflow_gddl.tools.onboarding.new_tables.standing import (
    DAY,
    MOST_PROPOSED,
    Known,
    NewTable,
    SourceCounts,
    SourceView,
    is_meant,
    is_measured,
)
from airflow_gddl.tools.onboarding.plan import Overlay
from airflow_gddl.tools.onboarding.rules import TableFacts, propose

MOST_SCHEMAS, MOST_READ = 200, 20
"""Folders of schemas that a look lists, and tables whose files it reads: more wait for later looks."""
MOST_MEASURED = 64 * 1024**2
"""Bytes of a full load in which keys are measured: a look is no job."""
_SETTLED = 600.0
_FIELDS = ("size", "sequence_by", "before_image_prefix")
"""Fields that a proposed row takes, beside options. Schedule and priority are for people, or the source's defaults."""


@dataclass(frozen=True, kw_only=True)
class LookRequest:
    """What a look, or a decision on what it found, is given.

    Attributes:
        folder: the metadata folder.
        environ: reaches it; names that start with `GDDL_` override settings.
        reaching: returns the environment for the roots, and for the databases of sources.
        now: seconds since the epoch.
    """

    folder: Folder
    environ: Mapping[str, str]
    reaching: Callable[[LoadedMetadata], Mapping[str, str]]
    now: float


@dataclass(frozen=True)
class Finder:
    """Looks at one source.

    Attributes:
        environ: for the roots and the database.
    """

    request: LookRequest
    loaded: LoadedMetadata
    environ: Mapping[str, str]
    source: str

    @property
    def _spec(self) -> Source:
        return self.loaded.proposing[self.source]

    @cached_property
    def _options(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self._spec.layer.values.get("options") or {}
        return options

    def view(self, known: Known) -> SourceView:
        """
        Raises:
            GddlError: the root, or the database, can't be read.
        """
        named = self._named()
        names, unlisted = self._names(named)
        fit = [name for name in names if not table_name_fault(name) and name.lower() not in named]
        meant = sorted(name for name in fit if is_meant(name, self._spec.limits))
        unfit = [name for name in names if table_name_fault(name)]
        mine = {one.table.lower(): one for one in known.tables if one.source == self.source}
        fresh = [name for name in meant if name.lower() not in mine]
        chosen = (
            self._turn(fresh, known) if sum(o.standing == "proposed" for o in mine.values()) < MOST_PROPOSED else []
        )
        young = [one.table for one in mine.values() if self._is_young(one) and one.table in meant]
        found = tuple(self._found([*chosen, *young[: MOST_READ - len(chosen)]]))
        counts = SourceCounts(
            cursor=chosen[-1] if len(fresh) > len(chosen) > 0 else "",
            left=len(fresh) - len(chosen) + unlisted,
            unfit=len(unfit),
            example=show_name(unfit[0]) if unfit else "",
            renamed=self._renamed(),
        )
        return SourceView(there=frozenset(name.lower() for name in meant), named=named, found=found, counts=counts)

    def _renamed(self) -> dict[str, dict[str, str]]:
        """Columns that were renamed at the source since a look first saw them, of tables that have a row."""
        if not self._options.get("verify_connection"):
            return {}
        specs = [spec for spec in self.loaded.tables if spec.source == self.source and not spec.shards]
        meant = frozenset(s.name_in_source for s in specs if is_meant(s.name_in_source, self._spec.limits))
        path = place_of(self.loaded.roots.lake, self.loaded.dag_prefix)
        path = f"{path.removesuffix('.json')}.{self.source}.columns.json"
        columns = self._database.numbered_columns(meant) if meant else {}
        return renames.look(open_store(self.environ), path, columns, specs) if columns else {}

    def again(self, table: NewTable) -> NewTable:
        """The table as it is found now; as it was where its folder is gone."""
        return next(self._seen([table.table]), table)

    def _is_young(self, table: NewTable) -> bool:
        """Whether a proposal is looked into again: for a day, and as long as its full load was landing."""
        recent = self.request.now - table.at < DAY or table.refused == NEW_TABLE_LANDING
        return table.standing == "proposed" and recent

    def _turn(self, names: Sequence[str], known: Known) -> Sequence[str]:
        """The names that are looked into now; the first after the last look's, so that empty folders hold up none."""
        cursor = known.sources[self.source].cursor if self.source in known.sources else ""
        later = [name for name in names if name > cursor]
        return [*later, *(name for name in names if name <= cursor)][:MOST_READ]

    def _named(self) -> frozenset[str]:
        """Names in this source that the metadata folder has, by row or by folder, in lower case."""
        names = {name for source, name in self.loaded.named if source in (self.source, "")}
        for spec in self.loaded.tables:
            folders = LandingFolder.all_of(self.loaded.roots, spec)
            names |= {folder.table.lower() for folder in folders if folder.root == self._spec.landing}
        return frozenset(names)

    def _names(self, named: frozenset[str]) -> tuple[list[str], int]:
        """Names of all tables of the source, and how many folders of schemas were not listed."""
        if self._options.get("capture") or self._options.get("topic"):
            return self._database.names(), 0
        store, known = open_store(self.environ), {name.partition(".")[0] for name in named}
        schemas = sorted(store.folders(self._spec.landing), key=lambda name: (name.lower() not in known, name))
        names = [
            f"{schema}.{name}"
            for schema in schemas[:MOST_SCHEMAS]
            for name in store.folders(join(self._spec.landing, schema))
        ]
        return names, len(schemas[MOST_SCHEMAS:])

    @property
    def _database(self) -> Database:
        """
        Raises:
            FatalError: `SOURCE_CONNECTION_REFUSED`.
        """
        name = str(self._options.get("verify_connection") or "")
        require_lent(name, self.environ)
        return Database(name, self.environ)

    def _found(self, names: Sequence[str]) -> Iterator[NewTable]:
        """The tables with files, or shown by the database, each with the row that it could have."""
        yield from checked(self.request, self.environ, list(self._seen(names)))

    def _seen(self, names: Sequence[str]) -> Iterator[NewTable]:
        """The same, whatever stands against their rows."""
        if not names:
            return
        bare = [{"table": name, "source": self.source, "keys": []} for name in names]
        specs = trial(self.request, bare).specs
        files = {name: self._is_of_dms(specs.get(f"{self.source}:{name}".lower())) for name in names}
        declared = self._declared(names) if self._options.get("verify_connection") else {}
        of_database = self._options.get("capture") or self._options.get("topic")
        landed = {} if of_database else self._landed(files)
        here = declared if of_database else landed
        yield from (self._table(name, landed.get(name), declared.get(name)) for name in names if name in here)

    def _table(self, name: str, landed: tuple[TableFacts, str] | None, declared: TableFacts | None) -> NewTable:
        facts, unsettled = landed or (TableFacts(table=name), "")
        if declared is not None:
            facts = replace(facts, key=declared.key or facts.key, size_bytes=declared.size_bytes or facts.size_bytes)
        proposal = propose(facts, self.loaded.tiers)
        fields = {
            path: value for path, value in proposal.fields.items() if path in _FIELDS or path.startswith("options.")
        }
        made = NewTable(
            source=self.source, table=name, at=self.request.now, keys=proposal.keys or None, fields=fields,
            evidence=proposal.evidence if proposal.keys else "",
        )  # fmt: skip
        return replace(made, refused=NEW_TABLE_LANDING, why=unsettled) if unsettled and is_measured(made) else made

    def _declared(self, names: Sequence[str]) -> dict[str, TableFacts]:
        """What the source's catalog says of them; a schema that it does not have says nothing."""
        declared: dict[str, TableFacts] = {}
        for schema in sorted({name.partition(".")[0] for name in names}):
            mine = frozenset(name for name in names if name.partition(".")[0] == schema)
            try:
                facts = self._database.read(frozenset([schema]), mine)
            except MetadataError as error:
                if error.code != ONBOARD_SCHEMA_MISSING:
                    raise
                continue
            declared |= {one.table: one for one in facts.tables}
        return declared

    def _is_of_dms(self, spec: TableSpec | None) -> bool:
        """Whether DMS writes a table's files; None: its row would be invalid."""
        if spec is None:
            return bool(self._spec.layer.values.get("dialect", "dms") == "dms")
        return spec.dialect == "dms" and spec.mode == "changes"

    def _landed(self, of_dms: Mapping[str, bool]) -> dict[str, tuple[TableFacts, str]]:
        """Facts of tables with files, by name, and why they are not final; of another service than DMS, few.

        Args:
            of_dms: see `_is_of_dms`, by name.
        """
        landed: dict[str, tuple[TableFacts, str]] = {}
        for name, is_of_dms in of_dms.items():
            if is_of_dms:
                if (facts := self._of_dms(name)) is not None:
                    landed[name] = facts
            elif next(open_store(self.environ).list(LandingFolder(self._spec.landing, name).path), None) is not None:
                landed[name] = TableFacts(table=name), ""
        return landed

    def _of_dms(self, name: str) -> tuple[TableFacts, str] | None:
        with needed_by("new_tables of a source", install="airflow-gddl[local]"):
            from airflow_gddl.tools.onboarding.landing import Landing, facts_of, measured_key  # noqa: PLC0415 - imports pyarrow
        landing = Landing(self._spec.landing, self.environ)
        folder = next(iter(landing.folders(frozenset([name]))), None)
        if folder is None:
            return None
        loads = folder.of("load")
        newest = max((file.modified for file in loads), default=0.0)
        why = "a file of its full load is younger than 10 minutes" if self.request.now - newest < _SETTLED else ""
        few = sum(file.size for file in loads) <= MOST_MEASURED
        return facts_of(folder, measured_key(landing, folder) if few else None, self.request.now), why


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The metadata as it would be with further rows.

    Attributes:
        specs: of these rows, by `source:schema.name` in lower case.
        problems: the first of each other one, the same.
    """

    loaded: LoadedMetadata
    specs: Mapping[str, TableSpec]
    problems: Mapping[str, str]


def trial(request: LookRequest, rows: Sequence[Mapping[str, Any]]) -> Trial:
    """Nothing is written. The rows come after those of all files, so that they have the problems of what both say."""
    further = {f"{FOLDER}/~new.json": json.dumps({"tables": list(rows)})}
    loaded = load_folder(Overlay(request.folder, further), request.environ)
    specs = {f"{spec.source}:{spec.name_in_source}".lower(): spec for spec in loaded.tables}
    mine = {f"{row['source']}:{row['table']}".lower() for row in rows}
    told = {str(problem.table).lower(): f"[{problem.code}] {problem.message}" for problem in reversed(loaded.problems)}
    problems = {name: told.get(name) or told.get(name.partition(":")[2]) or "" for name in mine - specs.keys()}
    return Trial(loaded=loaded, specs={name: specs[name] for name in mine & specs.keys()}, problems=problems)


def checked(request: LookRequest, environ: Mapping[str, str], tables: Sequence[NewTable]) -> Iterator[NewTable]:
    """The tables, with what stands against their rows: a problem, or tables of that name in the lake.

    The latter may be of a row that a person removed, whose place a folder must not take.
    """
    if not tables:
        return
    tried, store = trial(request, [one.row for one in tables]), open_store(environ)
    for one in tables:
        name = one.name.lower()
        spec = tried.specs.get(name)
        if spec is None:
            yield replace(
                one, refused=NEW_TABLE_REFUSED, why=tried.problems.get(name) or "another metadata row has its name"
            )
            continue
        layout = Layout.of(tried.loaded.roots, spec)
        there = next((path for path in (layout.replica, layout.changes, layout.state) if store.exists(path)), None)
        yield (
            one if there is None else replace(one, refused=NEW_TABLE_TARGET_EXISTS, why=f"the lake has {there} already")
        )
