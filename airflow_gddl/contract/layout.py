"""Where a table's files, Delta tables and state are, below the two roots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_gddl.contract.basics import UPKEEP

if TYPE_CHECKING:
    from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec


STATE = "_gddl"
CUTS = "_as_of"
"""Folder of the lake with the tables of cuts, each cut in a folder of its name (docs/as-of.md)."""
SHARDS = "shards"
"""Folder, below a table's state, of the ledgers of its shards."""


def join(root: str, *parts: str) -> str:
    """Path below a root, with or without a trailing slash."""
    return "/".join([root.rstrip("/"), *parts])


def below(root: str, path: str) -> str:
    """The rest of a path below a root, with or without a trailing slash; other paths stay as they are."""
    return path.removeprefix(f"{root.rstrip('/')}/")


def same_place(location: str) -> str:
    """A location in normal form, for comparison: no `file:`, `s3a` as `s3`, no slash at the end."""
    text = location.removeprefix("file:")
    if location != text:
        text = "/" + text.lstrip("/")
    for scheme in ("s3a://", "s3n://"):
        text = text.replace(scheme, "s3://", 1) if text.startswith(scheme) else text
    return text.rstrip("/")


def table_url(path: str) -> str:
    """A table's path as readers of Delta take it: they parse a URL, in which `#` and `?` end a path, and decode it."""
    return path.replace("%", "%25").replace("#", "%23").replace("?", "%3F") if "://" in path else path


def spec_path(lake: str, run_id: str) -> str:
    """Path of the JobSpec of a remote job."""
    return join(lake, STATE, "specs", f"{run_id}.json")


def log_folder(lake: str, group: str) -> str:
    """Folder of the logs of jobs started by Airflow's DAG `group`; see `JobSpec.log_group`."""
    return join(lake, STATE, "logs", group)


FEW_ROWS = 200_000
"""Tables with fewer rows remove their old files during runs; larger ones need maintenance."""


RECORD_TIME = "%Y%m%dT%H%M%S%f"


def record_name(started: datetime, run_id: str, action: str) -> str:
    """Name of the record of a run; sorts by time."""
    kind = f".{action}" if action in UPKEEP else ""
    return f"{started:{RECORD_TIME}}-{run_id or 'none'}{kind}.json"


def tells_of_load(name: str) -> bool:
    """Whether a record of this name is of a run that loads."""
    return not name.endswith(tuple(f".{action}.json" for action in UPKEEP))


def results_folder(lake: str, run_id: str) -> str:
    """Folder of a remote job's JobResults."""
    return join(lake, STATE, "results", run_id)


def standing_folder(lake: str, name: str) -> str:
    """Folder of a continuous job's input, small objects that it lists: `DesiredState`, and requests to stop."""
    return join(lake, STATE, "continuous", name)


DESIRED = "desired.json"
"""Name of the desired state."""


def desired_path(folder: str) -> str:
    return join(folder, DESIRED)


def stop_name(run_id: str) -> str:
    """Name of the object that asks a job to finish its current batch and end.

    Hashed, since run ids may contain characters that object names may not.
    """
    return f"stop-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


def stop_path(folder: str, run_id: str) -> str:
    return join(folder, stop_name(run_id))


def result_name(table: str) -> str:
    """Name of a table's result object; hashed, since table names may contain characters that object names may not."""
    return f"{hashlib.blake2b(table.encode(), digest_size=16).hexdigest()}.json"


def landing_root(landing: str) -> str:
    """The landing root of a table's landing folder."""
    return landing.rstrip("/").rsplit("/", 2)[0]


@dataclass(frozen=True)
class LandingFolder:
    """A table's landing folder: below `root`, in the folders of `table`, its `schema.name` in the source."""

    root: str
    table: str

    @classmethod
    def of(cls, roots: Roots, spec: TableSpec) -> LandingFolder:
        return cls(spec.landing or roots.landing, spec.name_in_source)

    @classmethod
    def all_of(cls, roots: Roots, spec: TableSpec) -> tuple[LandingFolder, ...]:
        """One for each source of the table."""
        return tuple(cls.of(roots, spec.of_shard(shard)) for shard in spec.shards) or (cls.of(roots, spec),)

    @property
    def path(self) -> str:
        return join(self.root, *self.table.split(".", 1))


def places_of(job: JobSpec) -> tuple[str, ...]:
    """The lake and the landing roots of the job's tables, each once."""
    roots = (folder.root for spec in job.tables for folder in LandingFolder.all_of(job.roots, spec))
    return tuple(dict.fromkeys((job.roots.lake, *roots)))


@dataclass(frozen=True)
class Layout:
    """Paths of one table; all but `landing` are below the lake.

    Attributes:
        landing: of change files; for `mode: snapshots` a folder of the lake, where their differences are written.
    """

    landing: str
    replica: str
    changes: str
    history: str
    errors: str
    tombstones: str
    state: str
    runs: str
    erased: str

    def of_shard(self, roots: Roots, spec: TableSpec, shard: str) -> Layout:
        """This layout with the landing folder and the ledger of one of the table's sources; the tables are shared."""
        landing = LandingFolder.of(roots, spec.of_shard(shard)).path
        return replace(self, landing=landing, state=join(self.state, SHARDS, shard))

    @classmethod
    def of(cls, roots: Roots, spec: TableSpec) -> Layout:
        schema, name = spec.schema_name, spec.name
        captured = join(roots.lake, STATE, "captured", schema, name)
        return cls(
            landing=captured if spec.mode == "snapshots" else LandingFolder.of(roots, spec).path,
            replica=join(roots.lake, schema, name),
            changes=join(roots.lake, schema, f"{name}__changes"),
            history=join(roots.lake, schema, f"{name}__history"),
            errors=join(roots.lake, schema, f"{name}__errors"),
            tombstones=join(roots.lake, STATE, "tombstones", schema, name),
            state=join(roots.lake, STATE, "ledger", schema, name),
            runs=join(roots.lake, STATE, "runs", schema, name),
            erased=join(roots.lake, STATE, "erased", schema, name),
        )


@dataclass(frozen=True, kw_only=True)
class DatasetName:
    """A dataset as OpenLineage names it.

    Attributes:
        is_table: of a table in a source database; else a folder.
    """

    namespace: str
    name: str
    is_table: bool = False

    @classmethod
    def of(cls, path: str) -> DatasetName:
        """A folder by OpenLineage's rules: bucket and key on S3, the path elsewhere."""
        if path.startswith("s3://"):
            bucket, _, key = path.removeprefix("s3://").partition("/")
            return cls(namespace=f"s3://{bucket}", name=key)
        return cls(namespace="file", name=path)
