"""Rows of a view of a cut, from versions of a history: what its SQL says (`contract.cut_views`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.cut_views import CutView
from airflow_gddl.contract.published import MARK
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, Column
from spark_jobs.rules.arrays import DeltaSchema, by_name, flat, ranks, shared_codes, sortable
from spark_jobs.rules.history import END, END_GENERATION, START, START_GENERATION

_ENDED, _MARK = f"{GDDL}__ended", f"{GDDL}.{MARK}"


@dataclass(frozen=True, kw_only=True)
class ViewRule:
    """Rows of a view from versions of a history, as its SQL has them (`contract.cut_views`); sent to tasks.

    Attributes:
        columns: of the view, but for the mark of deleted rows.
    """

    view: CutView
    columns: pa.Schema

    @classmethod
    def of(cls, view: CutView, kinds: Mapping[str, str]) -> ViewRule:
        """The rule of a view, from columns to their SQL types."""
        columns = tuple(Column(name, parse_type(kind)) for name, kind in kinds.items())
        return cls(view=view, columns=DeltaSchema(columns).arrow)

    def began(self, rows: pa.Table) -> pa.Table:
        """Versions that began before the bound, with whether they ended before it."""
        rows = rows.filter(self._began(rows))  # before later values are cast to types of then, which can't hold them
        found = by_name(rows, self.columns).append_column(_ENDED, pc.invert(self._is_valid(rows)))
        for name in (START, START_GENERATION):
            found = found.append_column(name, rows.column(name))
        return found

    def _began(self, rows: pa.Table) -> pa.Array:
        generation, start = (flat(rows.column(name)) for name in (START_GENERATION, START))
        before = pc.is_null(start)
        if self.view.bound is not None:
            compare = pc.less_equal if self.view.is_last else pc.less
            before = pc.or_(before, pc.fill_null(compare(start, self.view.bound), False))
        here = pc.and_(pc.equal(generation, self.view.generation), before)
        return pc.or_(pc.less(generation, self.view.generation), here)

    def _is_valid(self, rows: pa.Table) -> pa.Array:
        generation, end = (flat(rows.column(name)) for name in (END_GENERATION, END))
        after = pc.is_valid(generation)
        if self.view.bound is not None:
            compare = pc.greater if self.view.is_last else pc.greater_equal
            after = pc.fill_null(compare(end, self.view.bound), False)
        here = pc.and_(pc.fill_null(pc.equal(generation, self.view.generation), False), after)
        later = pc.fill_null(pc.greater(generation, self.view.generation), False)
        return pc.or_(pc.is_null(generation), pc.or_(later, here))

    def rows(self, versions: pa.Table) -> pa.Table:
        """The view's rows; all versions of each key that began."""
        if not self.view.marks:
            return versions.filter(pc.invert(versions.column(_ENDED))).select(self.columns.names)
        newest = versions.take(pa.array(self._newest(versions)))
        return newest.select(self.columns.names).append_column(_MARK, newest.column(_ENDED))

    def _newest(self, versions: pa.Table) -> np.ndarray:
        """Numbers of the newest version of each key."""
        if not versions.num_rows:
            return np.zeros(0, np.int64)
        (key,) = shared_codes([[versions.column(name) for name in self.view.keys]], [versions.num_rows])
        start = ranks(sortable(versions.column(START)), versions.num_rows)
        order = np.lexsort((start, versions.column(START_GENERATION).to_numpy(), key))
        is_last = np.append(key[order][1:] != key[order][:-1], True)
        return np.sort(order[is_last])

    def of_table(self, rows: pa.Table) -> pa.Table:
        """Rows of the cut's table in the columns of the view."""
        found = by_name(rows, self.columns)
        if not self.view.marks:
            return found
        return found.append_column(_MARK, pc.struct_field(flat(rows.column(GDDL)), MARK))
