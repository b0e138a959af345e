"""Many tables that get the same files: a full load, then a change file a round; and what their replicas must hold."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import truth
from deltalake import DeltaTable
from measuring import WrongResultError
from workload import KEY, SCHEMA, Folders

from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec, TierSpec
from spark_jobs.ledger.commit_files import seal

MIX = {"U": 0.9, "I": 0.0, "D": 0.1}


@dataclass(frozen=True)
class SmallFolders:
    """Attributes:
    root: of all sides.
    names: of the tables.
    """

    root: Path
    names: tuple[str, ...]

    @property
    def made(self) -> Folders:
        """The files that every table gets."""
        return Folders(self.root / "made")

    def landing(self, side: str) -> Path:
        return self.root / side / "landing"

    def lake(self, side: str) -> Path:
        return self.root / side / "lake"

    def replica(self, side: str, name: str) -> Path:
        return self.lake(side) / "bench" / name

    def tier(self, tasks: TableTasks, cores: int) -> TierSpec:
        return replace(DEFAULT_TIERS["small"], tasks=tasks, cores=cores)

    def job(self, side: str, run_id: str, tier: TierSpec) -> JobSpec:
        roots = Roots(landing=str(self.landing(side)), lake=str(self.lake(side)))
        specs = tuple(TableSpec(table=f"bench.{name}", keys=(KEY,), size="bench") for name in self.names)
        return JobSpec(run_id=run_id, roots=roots, tables=specs, tiers={"bench": tier})

    def land(self, side: str, files: Iterable[Path]) -> None:
        """Hard links, so that ten thousand tables take no more room than one; nobody writes to them."""
        for name in self.names:
            folder = self.landing(side) / "bench" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                os.link(file, folder / file.name)

    def copy(self, side: str, names: Iterable[str]) -> None:
        """Make tables that equal the first one, with its landed files: hard links, and the documents that name it."""
        first, root = self.names[0], self.root / side
        folders = [found for found in root.rglob(f"{first}*") if found.is_dir()]
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        texts = [file for file in files if file.suffix == ".json" and "_delta_log" not in file.parts]
        documents = {file: file.read_text(encoding="utf-8") for file in texts}
        for name in names:
            for file in files:
                copied = root / str(file.relative_to(root)).replace(first, name)
                copied.parent.mkdir(parents=True, exist_ok=True)
                if file in documents:
                    copied.write_bytes(_sealed(documents[file].replace(first, name)))
                else:
                    os.link(file, copied)


def _sealed(text: str) -> bytes:
    """A document of the lake, its digest made anew if it begins with one."""
    return seal(text.splitlines()[1:]) if text.startswith('{"blake2b"') else text.encode()


def expected(folders: SmallFolders, rounds: int) -> pa.Table:
    """The replica of each table after so many rounds, by key."""
    load = pa.concat_tables(pq.read_table(f) for f in folders.made.load_files())
    changes = pa.concat_tables(pq.read_table(f) for f in folders.made.change_files()[:rounds])
    return truth.expected(load, changes)


def check(folders: SmallFolders, side: str, names: Iterable[str], rounds: int) -> int:
    """Compare replicas with the truth, every column of every row; how many were compared.

    Raises:
        WrongResultError: one differs.
    """
    wanted, count = expected(folders, rounds), 0
    for name in names:
        found = pa.table(DeltaTable(str(folders.replica(side, name))).scan(SCHEMA.names))
        if not found.cast(SCHEMA).sort_by(KEY).equals(wanted):
            raise WrongResultError(f"{side}: {name} is not what it must be")
        count += 1
    return count
