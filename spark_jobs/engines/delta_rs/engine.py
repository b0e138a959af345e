"""The delta-rs engine behind the pipeline's port: one process, no JVM, tables that fit into its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.spec import EngineName
from spark_jobs.desk import Desk
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import DeclinedError, RebuildOrder
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.apply import Applying
from spark_jobs.engines.delta_rs.erasing import DeltaRsEraser
from spark_jobs.engines.delta_rs.intake import Decoded, Intaking
from spark_jobs.engines.delta_rs.rebuild import Rebuild
from spark_jobs.engines.delta_rs.receive import Receiving
from spark_jobs.engines.delta_rs.site import Site
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.delta_rs.upkeep import DeltaRsUpkeep
from spark_jobs.engines.delta_rs.verify import verify
from spark_jobs.engines.figures import Appended, Applied, Overlap, Rebuilt, Verdict
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.engines.transactions import QUARANTINE, version_of
from spark_jobs.intake import Intake
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column


@dataclass(frozen=True)
class DeltaRsWork:
    """See `Work`."""

    decoded: Decoded
    applying: Applying

    @property
    def intake(self) -> Intake:
        return self.decoded.intake

    @property
    def _receiving(self) -> Receiving:
        return Receiving(site=self.applying.site, decoded=self.decoded)

    def ensure_tables(self) -> None:
        self._receiving.ensure_tables()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        self._receiving.quarantine(files, again)

    def append(self, overlap: Overlap) -> Appended:
        appended, self.applying.changes = self._receiving.append(overlap)
        return appended

    def resolve_rows(self) -> None:
        site = self.applying.site
        quarantine.resolve_rows(site.tables, site.layout.errors, self.decoded.good, site.plan.planned_at)

    def tombstones(self) -> None:
        self.applying.tombstones()

    def merge(self) -> Applied:
        return self.applying.merge()

    def append_only(self) -> Applied:
        return self.applying.append_only()

    def sweep(self) -> MainCounts:
        return self.applying.sweep()

    def history(self, floors: tuple[str | None, ...], *, everything: bool) -> None:
        self.applying.history(floors, everything=everything)

    def purge_tombstones(self, before: datetime) -> None:
        self.applying.purge_tombstones(before)


@dataclass(frozen=True)
class DeltaRsEngine:
    """See `Engine`."""

    tables: Tables

    @property
    def name(self) -> EngineName:
        return "delta_rs"

    def suited(self, *, few_rows: bool) -> DeltaRsEngine:  # noqa: ARG002 - nothing is set up either way
        return self

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
    ) -> tuple[DeltaRsWork | None, tuple[Unreadable, ...]]:
        self._require_small(desk, "the batch", sum(f.size for f in plan.files))
        self._require_small_tables(desk, desk.layout.replica, desk.layout.history)
        decoded, unreadable = self._intaking(desk, plan, state).take_in()
        return (None if decoded is None else self._work(desk, plan, state, decoded)), unreadable

    def take_up(self, desk: Desk, plan: BatchPlan, state: TableState) -> DeltaRsWork:
        self._require_small_tables(desk, desk.layout.replica, desk.layout.history)
        return self._work(desk, plan, state, self._intaking(desk, plan, state).take_up())

    def without_rows(self, desk: Desk, plan: BatchPlan, state: TableState) -> DeltaRsWork:
        self._require_small_tables(desk, desk.layout.replica, desk.layout.history)
        return self._work(desk, plan, state, self._intaking(desk, plan, state).without_rows())

    def _require_small_tables(self, desk: Desk, *paths: str) -> None:
        """
        Raises:
            DeclinedError: one of them is too large for a process's memory.
        """
        for path in paths:
            snapshot = self.tables.snapshot(path)
            if snapshot is not None:
                self._require_small(desk, f"the table {path.rpartition('/')[2]}", snapshot.size)

    def _require_small(self, desk: Desk, what: str, size: int) -> None:
        if size > desk.tier.delta_rs_max_bytes:
            limit = f"more than its tier's delta_rs_max_bytes ({desk.tier.delta_rs_max_bytes})"
            raise DeclinedError(f"{what} has {size} bytes, {limit}")

    def _intaking(self, desk: Desk, plan: BatchPlan, state: TableState) -> Intaking:
        return Intaking(tables=self.tables, desk=desk, plan=plan, state=state)

    def _work(self, desk: Desk, plan: BatchPlan, state: TableState, decoded: Decoded) -> DeltaRsWork:
        intake = decoded.intake
        site = Site(
            tables=self.tables,
            layout=desk.layout,
            tier=desk.tier,
            plan=plan,
            shape=intake.schema.shape,
            begun=desk.begun,
        )
        applying = Applying(site, intake.figures, intake.change_schemas, state.keys is None, decoded.good)
        return DeltaRsWork(decoded, applying)

    def quarantine_files(self, desk: Desk, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        rows = quarantine.bad_files(files, plan)
        quarantine.append(self.tables, desk.layout.errors, rows, QUARANTINE, version_of(plan))

    def forget_errors(self, path: str, batch_id: str) -> None:
        quarantine.forget(self.tables, path, batch_id)

    def upkeep(self) -> DeltaRsUpkeep:
        return DeltaRsUpkeep(self.tables)

    def eraser(self) -> DeltaRsEraser:
        return DeltaRsEraser(self.tables)

    def drops_changes(self, order: RebuildOrder) -> bool:
        self._require_small_tables(order.living, order.living.layout.changes)
        return Rebuild(self.tables, order).drops_changes()

    def swap(self, order: RebuildOrder, tell: Callable[[str], None]) -> Rebuilt:
        self._require_small_tables(order.living, order.beside.changes, order.living.layout.changes)
        return Rebuild(self.tables, order).swap(tell)

    def rebuilt_rows(self, order: RebuildOrder, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        self._require_small_tables(order.living, order.beside.changes, order.living.layout.changes)
        rows = Rebuild(self.tables, order).rows()
        yield from zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def verify(self, desk: Desk, shape: Shape, swept: int, limit: int) -> Verdict:
        self._require_small_tables(desk, desk.layout.replica, desk.layout.changes)
        replica, changes = self.tables.read(desk.layout.replica), self.tables.read(desk.layout.changes)
        return verify(replica, changes, shape, swept, limit)

    def live_rows(self, path: str, shape: Shape, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        snapshot = self.tables.existing(path)
        for file in snapshot.files:
            rows = self.tables.read_files(snapshot, [file])
            if shape.spec.delete == "soft":
                gone = pc.fill_null(pc.struct_field(rows.column(GDDL), "deleted"), False)
                rows = rows.filter(pc.invert(gone))
            yield from zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        rows = self.tables.read(path)
        rows = rows.filter(rows.column("resolved_at").is_null()).drop_columns(["record_schema", "resolved_at"])
        by = [(name, "ascending", "at_start") for name in ("batch_id", "source_file", "position")]
        first = rows.take(pc.sort_indices(rows, sort_keys=by)).slice(0, limit).to_pylist()
        stamped = [{**r, "occurred_at": _iso(r["occurred_at"])} for r in first]
        return rows.num_rows, list(stamped)


def _iso(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
