"""All that concerns one table in one run."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TableSpec, TierSpec
from spark_jobs.batch_schema import Stored
from spark_jobs.engines.shape import RESCUED, Shape
from spark_jobs.engines.spark.site import Site
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.columns import Schema
from spark_jobs.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Desk:
    """All that concerns one table in one run."""

    spec: TableSpec
    options: DmsOptions
    tier: TierSpec
    layout: Layout
    storage: Storage
    tables: Tables

    def site(self, plan: BatchPlan, shape: Shape) -> Site:
        return Site(tables=self.tables, layout=self.layout, tier=self.tier, plan=plan, shape=shape)

    def stored_columns(self) -> Stored:
        """Columns of the change table now, before images apart."""
        if not self.tables.exists(self.layout.changes):
            return Stored(data=None, before=None)
        columns = [c for c in self.tables.columns(self.layout.changes) if c.name != RESCUED]
        prefix = self.spec.before_image_prefix
        images = [c for c in columns if prefix and c.name.lower().startswith(prefix.lower())]
        data = tuple(c for c in columns if c not in images)
        return Stored(data=Schema(data), before=Schema(tuple(images)), prefer_rewrite=not self.tier.deletion_vectors)
