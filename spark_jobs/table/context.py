"""All that concerns one table in one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TableSpec, TierSpec
from spark_jobs.dialects.base import Dialect
from spark_jobs.maintenance.erasures import ErasureRegister
from spark_jobs.plan.columns import Schema
from spark_jobs.storage.objects import Storage
from spark_jobs.table.batch_schema import Stored
from spark_jobs.table.table_schema import RESCUED

if TYPE_CHECKING:
    from spark_jobs.engines.base import Engine


@dataclass(frozen=True, kw_only=True)
class TableContext:
    """All that concerns one table in one run.

    Attributes:
        begun: an earlier run may have written something of the batch at hand.
    """

    dialect: Dialect
    tier: TierSpec
    layout: Layout
    storage: Storage
    engine: Engine
    begun: bool = True

    @property
    def spec(self) -> TableSpec:
        return self.dialect.spec

    @property
    def erasures(self) -> ErasureRegister:
        return ErasureRegister(self.storage, self.layout.erased, self.spec.table, self.spec.keys, self.spec.mask)

    def stored_columns(self) -> Stored:
        """Columns of the change table now, before images apart."""
        if not self.engine.exists(self.layout.changes):
            return Stored(data=None, before=None)
        columns = [c for c in self.engine.columns(self.layout.changes) if c.name != RESCUED]
        prefix = self.spec.before_image_prefix
        images = [c for c in columns if prefix and c.name.lower().startswith(prefix.lower())]
        data = tuple(c for c in columns if c not in images)
        return Stored(data=Schema(data), before=Schema(tuple(images)), prefer_rewrite=not self.tier.deletion_vectors)
