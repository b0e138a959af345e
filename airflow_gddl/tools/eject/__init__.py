"""A table's way out: a plain PySpark job and a plain DAG that load it without this package (`gddl eject`)."""

from __future__ import annotations

import json
import pprint
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template
from typing import Any

from airflow_gddl.contract.codes import EJECT_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import COMMIT_TIMES, DmsOptions
from airflow_gddl.contract.features import used_by
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import clean_name, is_kept, mask_method
from airflow_gddl.contract.spark_versions import newest_pair
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.table_spec import SchemaGate, lowered

FILES = ("job.py", "dag.py", "README.md", "known.json")
_LOST: Mapping[str, str] = {
    "history": "Keep the history (`__history`): it ends here.",
    "expect": "Check the expectations of the metadata row.",
    "derive": "Compute the columns of `derive`: they keep what they had, and are null in new rows.",
    "catalog": "Keep the table's entry in the catalog up to date.",
    "freshness": "Watch `freshness`.",
    "depends_on": "Wait for the tables of `depends_on`.",
    "landing_retention": "Remove landed files.",
    "cluster_by": "Cluster the table.",
    "heartbeat": "Follow the heartbeat.",
    "initial_load": "Read a full load from the source database.",
}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What jobs know of a table, as the action `eject` answers; empty: it was never loaded.

    Attributes:
        files: that are loaded, below the landing folder.
        keys, sequence: columns as the replica spells them.
        erased: hash of an erased key to the last moment and sequence of changes that stay out.
        names: that these hashes were made with.
        salt: file with what they are keyed by; empty: none is needed.
        quarantined: unresolved rows and files.
    """

    files: Sequence[str] = ()
    keys: Sequence[str] = ()
    sequence: Sequence[str] = ()
    erased: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()
    salt: str = ""
    quarantined: int = 0


def files_of(spec: TableSpec, roots: Roots, known: Known, schedule: str | None) -> dict[str, str]:
    """The files of a table, by name.

    Args:
        schedule: for Airflow; None: none.

    Raises:
        FatalError: `EJECT_UNSUPPORTED`: a plain job would load the table wrong.
    """
    require_plain(spec)
    (spark, delta), layout, options = newest_pair(), Layout.of(roots, spec), _options(spec)
    lost = [*lost_by(spec)]
    if known.quarantined:
        lost.append(f"Load what is in quarantine ({known.quarantined} rows and files).")
    values = {
        "table": spec.table, "landing": _for_spark(layout.landing), "replica": _for_spark(layout.replica),
        "checkpoint": _for_spark(f"{layout.replica}__files"), "salt": _for_spark(known.salt),
        "keys": _code(list(known.keys or spec.keys)), "sequence": _code(list(sequence_of(spec, known))),
        "commit_times": _code([*filter(None, [options.timestamp_column]), *COMMIT_TIMES]),
        "operation": options.op_column, "no_operation": _code("I" if options.missing_op == "insert" else None),
        "rename": _code({clean_name(old).lower(): new for old, new in spec.rename.items()}),
        "only": _code(None if spec.columns is None else sorted(lowered(map(clean_name, spec.columns)))),
        "partitions": _code(sorted(lowered(map(clean_name, spec.partition_by)))),
        "left_out": _code(sorted(lowered(map(clean_name, (*spec.exclude_columns, *spec.mask, *spec.derive))))),
        "spark": spark, "delta_package": delta, "dag_id": spec.table.replace(".", "_"), "schedule": repr(schedule),
        "schedule_note": f"scheduled as the metadata row was ({schedule})" if schedule else "without a schedule",
        "salt_note": f", and so is `{known.salt}`, which hashes of erased keys need" if known.salt else "",
        "lost": "".join(f"\n- {line}" for line in lost),
    }  # fmt: skip
    templates = resources.files(__package__) / "templates"
    texts = {name: (templates / f"{name}.txt").read_text("utf-8") for name in FILES[:-1]}
    made = {name: Template(text).substitute(values) for name, text in texts.items()}
    remembered = {"files": list(known.files), "erased": dict(known.erased), "names": list(known.names)}
    return made | {"known.json": json.dumps(remembered, indent=1) + "\n"}


def require_plain(spec: TableSpec) -> None:
    """
    Raises:
        FatalError: `EJECT_UNSUPPORTED`.
    """
    for reason in reasons_against(spec):
        what = f"{spec.table}: {reason}, which a plain job of some 300 lines would load wrong"
        remedy = "keep the metadata row, or write the job by hand; the tables are plain Delta tables in any case"
        raise FatalError(EJECT_UNSUPPORTED, what, remedy=remedy)


def reasons_against(spec: TableSpec) -> Iterator[str]:
    """What of a row a plain job can't do."""
    options = _options(spec)
    renamed = lowered((*spec.rename, *spec.rename.values()))
    yes = {
        f"its files are {spec.dialect}'s": spec.dialect != "dms",
        "its files are snapshots (`mode: snapshots`)": spec.mode != "changes",
        "it has no keys": not spec.keys,
        "it has `shards`": bool(spec.shards),
        "its updates carry parts of rows (`columns_to_update`, `ignore_null_updates`)": bool(
            spec.columns_to_update or spec.ignore_null_updates
        ),
        "changes are forced (`force_update`)": spec.force_update is not None,
        "updates may move rows to other keys (`before_image_prefix`)": spec.before_image_prefix is not None,
        "a key is masked": not lowered(spec.mask).isdisjoint(lowered(spec.keys)),
        "a column that orders changes is left out or masked": not all(
            is_kept(name, spec) and mask_method(name, spec) is None for name in spec.sequence_by
        ),
        "the operation's column is renamed": options.op_column.lower() in renamed,
        "rows are filtered (`where`)": spec.where is not None,
        "rows are put aside (`expect`)": any(one.on != "warn" for one in spec.expect.values()),
        "columns are not taken as they come (`schema_evolution`, `schema`)": (
            spec.schema_evolution.new_column != "add"
            or spec.schema_evolution.dropped_column != "keep"
            or spec.schema != SchemaGate()
        ),
        "deleted rows stay (`delete: soft`)": spec.delete == "soft",
        "a missing folder empties it (`missing_folder`)": options.missing_folder == "empty",
        "its files are CSV or have text for values (`options`)": bool(
            options.csv_header or options.csv_columns or options.types
        ),
    }
    return (reason for reason, found in yes.items() if found)


def sequence_of(spec: TableSpec, known: Known) -> tuple[str, ...]:
    """Columns that order changes.

    Raises:
        FatalError: `EJECT_UNSUPPORTED`: none is known.
    """
    found = tuple(known.sequence or spec.sequence_by)
    if not found:
        what = (
            f"{spec.table} has no column that orders its changes: it was never loaded, and the metadata row names none"
        )
        raise FatalError(
            EJECT_UNSUPPORTED, what, remedy="name one in the metadata row, `sequence_by`, or load the table first"
        )
    return found


def lost_by(spec: TableSpec) -> list[str]:
    """What of a row's fields the job no longer does, a sentence each; what no such job does is in the template."""
    own = [text for name, text in _LOST.items() if getattr(spec, name)]
    names = ", ".join(sorted(spec.mask))
    masked = [f"Fill masked columns ({names}): they keep what they had, and are null in new rows."]
    return [*own, *(one.without for one in used_by(spec).values()), *(masked if spec.mask else [])]


def _options(spec: TableSpec) -> DmsOptions:
    known: dict[str, Any] = dict(spec.options) if spec.dialect == "dms" else {}
    return DmsOptions(**{name: known[name] for name in DmsOptions.__dataclass_fields__ if name in known})


def _for_spark(path: str) -> str:
    """A path as Spark's open-source distribution reads it."""
    return path.replace("s3://", "s3a://", 1) if path.startswith("s3://") else path


def _code(value: object) -> str:
    return pprint.pformat(value, width=100)
