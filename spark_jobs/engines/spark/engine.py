"""The Spark engine behind the pipeline's port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.spec import EngineName
from spark_jobs.batch_schema import plan_batch
from spark_jobs.desk import Desk
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import RebuildOrder
from spark_jobs.engines.figures import NOTHING, Appended, Applied, Overlap, Rebuilt, Verdict
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.engines.spark import quarantine
from spark_jobs.engines.spark import verify as verifying
from spark_jobs.engines.spark.apply import Applying, Looked
from spark_jobs.engines.spark.decode import Stamp
from spark_jobs.engines.spark.erasing import SparkEraser
from spark_jobs.engines.spark.intake import Decoded, Intaking
from spark_jobs.engines.spark.merge import Net
from spark_jobs.engines.spark.order import name
from spark_jobs.engines.spark.rebuild import Rebuild
from spark_jobs.engines.spark.receive import Receiving
from spark_jobs.engines.spark.site import Site
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.spark.upkeep import SparkUpkeep
from spark_jobs.engines.transactions import QUARANTINE, version_of
from spark_jobs.intake import Intake
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column

_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


@dataclass
class SparkWork:
    """See `Work`."""

    decoded: Decoded
    applying: Applying
    _net: Net | None = field(default=None, init=False)
    _looked: Looked | None = field(default=None, init=False)

    @property
    def intake(self) -> Intake:
        return self.decoded.intake

    @property
    def _receiving(self) -> Receiving:
        return Receiving(site=self.applying.site, decoded=self.decoded.rows, figures=self.intake.figures)

    def ensure_tables(self) -> None:
        self._receiving.ensure_tables()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        self._receiving.quarantine(self.decoded.groups, files, again)

    def append(self, overlap: Overlap) -> Appended:
        receiving = self._receiving
        fresh = receiving.fresh(overlap)
        self.applying = replace(self.applying, overlap=overlap)
        if not self.decoded.kept:
            return receiving.append(fresh)
        self.applying = replace(self.applying, fresh=fresh.rows)
        if not self.applying.site.shape.keys or self.applying.site.tables.few_rows:
            return receiving.append(fresh)
        # Much of either is the driver planning: side by side the cores have something to do meanwhile.
        with ThreadPoolExecutor(1, thread_name_prefix="net") as aside:
            looking = aside.submit(self._look)
            appended = receiving.append(fresh)
            looking.result()
        return appended

    def _look(self) -> tuple[Net, Looked]:
        """The net changes, and how they meet the tables; found once."""
        if self._net is None or self._looked is None:
            self._net = self.applying.net()
            self._looked = self.applying.look(self._net)
        return self._net, self._looked

    def resolve_rows(self) -> None:
        site = self.applying.site
        quarantine.resolve_rows(site.tables, site.layout.errors, self.decoded.rows, site.plan.planned_at)

    def tombstones(self) -> None:
        net, _ = self._look()
        self.applying.tombstones(net)

    def merge(self) -> Applied:
        return self.applying.merge(*self._look())

    def append_only(self) -> Applied:
        return self.applying.append_only()

    def sweep(self) -> MainCounts:
        return self.applying.sweep()

    def history(self, floors: tuple[str | None, ...], *, everything: bool) -> None:
        self.applying.history(self._found_net(), floors, everything=everything)

    def purge_tombstones(self, before: datetime) -> None:
        self.applying.purge_tombstones(before)

    def _found_net(self) -> Net:
        return self._net if self._net is not None else Net(rows=self.decoded.rows, partial=False)


@dataclass(frozen=True)
class SparkEngine:
    """See `Engine`."""

    tables: Tables

    @property
    def name(self) -> EngineName:
        return "spark"

    def suited(self, *, few_rows: bool) -> SparkEngine:
        return SparkEngine(self.tables.suited(few_rows=few_rows))

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def columns(self, path: str) -> tuple[Column, ...]:
        return self.tables.columns(path)

    def take_in(
        self, desk: Desk, plan: BatchPlan, state: TableState
    ) -> tuple[SparkWork | None, tuple[Unreadable, ...]]:
        decoded, unreadable = Intaking(tables=self.tables, desk=desk, plan=plan, state=state).take_in()
        return (None if decoded is None else self._work(desk, plan, state, decoded)), unreadable

    def take_up(self, desk: Desk, plan: BatchPlan, state: TableState) -> SparkWork:
        decoded = Intaking(tables=self.tables, desk=desk, plan=plan, state=state).take_up()
        return self._work(desk, plan, state, decoded)

    def without_rows(self, desk: Desk, plan: BatchPlan, state: TableState) -> SparkWork:
        schema = plan_batch(desk.dialect, (), desk.stored_columns(), state)
        intake = Intake(schema=schema, figures=NOTHING, schema_ids=(), change_schemas=frozenset())
        rows = self.tables.read(desk.layout.changes).limit(0)
        work = self._work(desk, plan, state, Decoded(intake=intake, groups=(), rows=rows))
        work.applying = replace(work.applying, first=False)
        return work

    def _work(self, desk: Desk, plan: BatchPlan, state: TableState, decoded: Decoded) -> SparkWork:
        intake = decoded.intake
        site = Site(tables=self.tables, layout=desk.layout, tier=desk.tier, plan=plan, shape=intake.schema.shape)
        applying = Applying(site=site, figures=intake.figures, schemas=intake.change_schemas, first=state.keys is None)
        return SparkWork(decoded, applying)

    def quarantine_files(self, desk: Desk, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        self.tables.create(quarantine.definition(desk.layout.errors))
        rows = quarantine.bad_files(self.tables, files, Stamp(plan.batch_id, plan.planned_at))
        self.tables.append(rows, desk.layout.errors, QUARANTINE, version_of(plan))

    def forget_errors(self, path: str, batch_id: str) -> None:
        self.tables.handle(path).delete(F.col("batch_id") == batch_id)

    def upkeep(self) -> SparkUpkeep:
        return SparkUpkeep(self.tables)

    def eraser(self) -> SparkEraser:
        return SparkEraser(self.tables)

    def drops_changes(self, order: RebuildOrder) -> bool:
        return self._rebuild(order).drops_changes()

    def swap(self, order: RebuildOrder, tell: Callable[[str], None]) -> Rebuilt:
        return self._rebuild(order).swap(tell)

    def _rebuild(self, order: RebuildOrder) -> Rebuild:
        return Rebuild(
            tables=self.tables, living=order.living.layout, beside=order.beside, tier=order.living.tier,
            plan=order.plan, shape=order.shape, floors=order.floors, generation=order.generation, landed=order.landed,
            read=order.read,
        )  # fmt: skip

    def rebuilt_rows(self, order: RebuildOrder, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return _tuples(self._rebuild(order).rows(), columns)

    def verify(self, desk: Desk, shape: Shape, swept: int, limit: int) -> Verdict:
        replica, changes = self.tables.read(desk.layout.replica), self.tables.read(desk.layout.changes)
        return verifying.verify(replica, changes, shape, swept, limit)

    def live_rows(self, path: str, shape: Shape, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        rows = self.tables.read(path)
        if shape.spec.delete == "soft":
            rows = rows.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
        return _tuples(rows, columns)

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        rows = self.tables.read(path).where(F.col("resolved_at").isNull())
        shown = rows.drop("record_schema", "resolved_at").orderBy("batch_id", "source_file", "position")
        listed = shown.withColumn("occurred_at", F.date_format("occurred_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"))
        return rows.count(), [row.asDict() for row in listed.limit(limit).collect()]


def _tuples(rows: DataFrame, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as values; times as text, for Spark hands them out in the zone of this process."""
    kinds = dict(rows.dtypes)
    zones = [kinds[c] == "timestamp" for c in columns]
    chosen = [F.date_format(name(c), _ISO).alias(c) if kinds[c].startswith("timestamp") else name(c) for c in columns]
    for row in rows.select(*chosen).toLocalIterator():
        yield tuple(f"{v}+00:00" if zoned and v else v for v, zoned in zip(row, zones, strict=True))
