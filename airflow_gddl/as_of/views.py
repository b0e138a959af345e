"""Which views `gddl as-of --to views` makes: their names, and the catalogs or the reader that they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gddl.contract.consistent_cut import VIEWS_CODE, Cut
from airflow_gddl.contract.cut_views import CutView, entry_names, view_name
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.extensions import CATALOGS, EntryName, TableKind, entry_name, name_fault
from airflow_gddl.contract.published import ViewName
from airflow_gddl.contract.spec import TableSpec

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_KINDS: tuple[TableKind, ...] = ("replica", "history", "changes", "errors")


@dataclass(frozen=True, kw_only=True)
class ViewPlan:
    """Where views are made.

    Attributes:
        reader: for which their statements are printed; empty: jobs make them in the catalogs of the rows.
        database: of printed views; may hold `{schema}`.
    """

    reader: str
    database: str

    def of(self, cut: str, specs: Sequence[TableSpec], loaded: LoadedMetadata) -> dict[str, CutView]:
        """The views of a cut, by table, before they are proven.

        Raises:
            FatalError: `CUT_VIEWS_UNSUPPORTED`, with the tables and the reason of each; `CUT_EXISTS`.
        """
        reasons = [f"{spec.table}: {why}" for spec in specs if (why := self._reason(spec, cut, loaded))]
        if reasons:
            remedy = f"make tables, --to tables; or see {documented('as-of.md', 'views')}"
            raise FatalError(VIEWS_CODE, f"no views of {'; '.join(reasons)}", remedy=remedy)
        views = {spec.table: self._view(spec, cut, loaded) for spec in specs}
        _require_free_names(views, loaded)
        return views

    def _reason(self, spec: TableSpec, cut: str, loaded: LoadedMetadata) -> str:
        """Why a table can't have a view; empty: nothing is known before it is looked at."""
        if not spec.history:
            return "it has no history; with history: true it has one from its next rebuild on"
        if self.reader:
            return ""
        if spec.catalog is None:
            return "its row names no catalog; --reader prints the statements of a view"
        catalog = loaded.catalogs[spec.catalog]
        descriptor = CATALOGS.get(catalog.kind)
        if not descriptor.views:
            return f"jobs make no views in catalogs of the kind {catalog.kind}; --reader prints the statements"
        entry = entry_name(catalog, spec)
        name = EntryName(entry.database, view_name(cut, entry.table))
        return name_fault(descriptor, name)

    def _view(self, spec: TableSpec, cut: str, loaded: LoadedMetadata) -> CutView:
        if self.reader:
            printed = ViewName.of(spec.table, self.database)
            return CutView(name=f"{printed.database}.{view_name(cut, printed.name)}", reader=self.reader)
        catalog = loaded.catalogs[spec.catalog or ""]
        entry = entry_name(catalog, spec)
        name = EntryName(entry.database, view_name(cut, entry.table))
        return CutView(name=str(name), reader=CATALOGS.get(catalog.kind).views, catalog=spec.catalog or "")


def renamed(known: Cut, name: str, loaded: LoadedMetadata) -> dict[str, CutView]:
    """Views of a cut as those of another one that repeats it, by table, before they are proven.

    Raises:
        FatalError: `CUT_EXISTS`.
    """
    views = {}
    for one in known.tables:
        if one.view is not None:
            database, _, view = one.view.name.partition(".")
            own = view_name(name, view.removeprefix(view_name(known.name, "")))
            views[one.table] = CutView(name=f"{database}.{own}", reader=one.view.reader, catalog=one.view.catalog)
    _require_free_names(views, loaded)
    return views


def _require_free_names(views: Mapping[str, CutView], loaded: LoadedMetadata) -> None:
    """Require that no two views, and no view and an entry of a table, have one name. Case does not count.

    Raises:
        FatalError: `CUT_EXISTS`.
    """
    entries = {
        (spec.catalog, str(entry_name(loaded.catalogs[spec.catalog], spec, kind))): spec.table
        for spec in loaded.tables
        if spec.catalog is not None
        for kind in _KINDS
    }
    names = Counter(name for view in views.values() for name in entry_names(view))
    for table, view in views.items():
        other = entries.get((view.catalog, view.name)) if view.catalog else None
        if other or any(names[name] > 1 for name in entry_names(view)):
            whose = f"an entry of {other}" if other else "an entry of the view of another table"
            what = f"the view {view.name} of {table} would have the name of {whose}"
            remedy = "take another --prefix" if other else "put {schema} into --database, or name tables by --table"
            raise FatalError("CUT_EXISTS", what, remedy=remedy)
