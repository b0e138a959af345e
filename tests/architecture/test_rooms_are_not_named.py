"""No module of the core names a room, its fields or its codes, but those that are listed here, each with a reason."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import ACTIONS
from airflow_gddl.contract.basics import FEATURE
from airflow_gddl.contract.spec import TableSpec, TierSpec
from tests.architecture.test_removable import PACKAGES, ROOMS, ROOT, WITH_A_ROOM, Room

ANOTHER_THING = re.compile(
    r"capture_output|spark\.databricks\.delta\.|org\.apache\.kafka\.|airflow\.providers\.|IcebergCompat"
    r"|value_capture_type"
)
"""Names of others that have the word of a room in them: of subprocess, Delta Lake, Kafka, Airflow and Spanner."""
OPTIONS = {"kafka": ("topic", "bootstrap_servers", "schema_registry", "kafka_connection")}
"""Options of a row that belong to a source and do not have its name."""
BESIDE = (
    "airflow_gddl/contract/features",
    "airflow_gddl/contract/sources",
    "spark_jobs/rooms/actions",
    "spark_jobs/rooms/catalogs",
)
"""Folders of modules that are of rooms, too: their halves that both sides read, steps of actions, kinds of catalogs."""
OF_ALL = ("__init__", "registrar", "catalog_port")
"""Modules of these folders that are core."""
NAMED = [room for room in ROOMS if room.kind in ("source", "feature", "runner", "action")]


@functools.cache
def words_of(name: str) -> tuple[str, ...]:
    """Words of an identifier or a text, in lower case: `IcebergCatalog` has `iceberg` and `catalog`."""
    return tuple(re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))


def names_in(source: str) -> Iterator[tuple[str, str]]:
    """Names of a module, each with `text` or `name`: identifiers, texts without blanks, and of other texts what they
    quote, codes and fields (`iceberg: true`). Words of prose and docstrings are none."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs:
                has_blanks = bool(re.search(r"\s", text.strip()))
                quoted = re.findall(r"`[^`\s]+`|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|\b\w+(?=: )", text)
                yield from (("name", one.strip("`")) for one in quoted) if has_blanks else (("text", text),)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield "name", name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield "name", name
            case ast.ImportFrom(module=str(name)):
                yield "name", name


@functools.cache
def own_fields(room: Room) -> frozenset[str]:
    """Names of fields and options that ask for the room."""
    marked = {f.name for kind in (TableSpec, TierSpec) for f in fields(kind) if f.metadata.get(FEATURE) == room.name}
    return frozenset(marked.union(OPTIONS.get(room.name, ())))


def is_named(room: Room, how: str, name: str) -> bool:
    if room.kind == "action":  # most of their names are words that many things have
        return (
            name in (room.module, ACTIONS[room.name].__name__)
            or (how == "text" and name == room.name)
            or (name == room.name and "_" in name)
        )
    if room.name == "snapshots":  # versions of Delta tables and loads of Debezium are called so, too
        return (how == "text" and name == room.name) or name.startswith(room.module)
    words, own = words_of(name), tuple(room.name.split("_"))
    is_part = any(words[i : i + len(own)] == own for i in range(len(words)))
    return is_part or name in own_fields(room)


def core() -> Iterator[tuple[str, str]]:
    """Paths of the modules of the core below the repository, and their texts."""
    of_rooms = [room.path for room in ROOMS] + [Path(path) for paths in WITH_A_ROOM.values() for path in paths]
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        here = path.relative_to(ROOT)
        is_beside = here.parent.as_posix() in BESIDE and here.stem not in OF_ALL
        is_register = here.parent.name == "codes"  # the codes of all rooms
        if not is_beside and not is_register and not any(one == here or one in here.parents for one in of_rooms):
            yield here.as_posix(), path.read_text()


def naming() -> dict[str, frozenset[str]]:
    """Modules of the core that name rooms, with the names of these."""
    found: dict[str, frozenset[str]] = {}
    for path, source in core():
        names = {one for one in names_in(source) if not ANOTHER_THING.search(one[1])}
        rooms = {room.name for room in NAMED for how, name in names if is_named(room, how, name)}
        found |= {path: frozenset(rooms)} if rooms else {}
    return found


EXCEPTIONS: Mapping[str, Mapping[str, str]] = {
    "older jobs read newer specifications: fields stay in the class of the document (docs/decisions/size.md)": {
        "airflow_gddl/contract/table_spec.py": "iceberg initial_load snapshots",
    },
    "a job's request is one union of types, which both sides decode (docs/decisions/size.md)": {
        "airflow_gddl/contract/actions.py": (
            "adopt consistent_cut eject erase explain handle_errors initial_load"
            " maintain plan rebuild reload resync_rows show verify"
        ),
        "airflow_gddl/contract/spec.py": "plan rebuild reload",
    },
    "a command asks for the action": {
        "airflow_gddl/cli/explain.py": "explain",
        "airflow_gddl/cli/job.py": "maintain verify",
        "airflow_gddl/cli/maintenance.py": "erase explain maintain",
        "airflow_gddl/cli/repair.py": "handle_errors plan rebuild reload resync_rows",
        "airflow_gddl/cli/run.py": "initial_load plan rebuild",
        "airflow_gddl/cli/verify.py": "verify",
    },
    "the list of commands, so that one whose room is missing says so": {
        "airflow_gddl/cli/commands.py": ("adopt eject erase explain maintain plan rebuild reload verify"),
    },
    "a DAG of upkeep, or a form of a DAG, asks for the action": {
        "airflow_gddl/dags/factory.py": "initial_load rebuild reload verify",
        "airflow_gddl/dags/maintenance.py": "maintain verify",
        "airflow_gddl/links.py": "rebuild reload",
        "airflow_gddl/operators/jobs.py": "maintain verify",
        "airflow_gddl/operators/tables_load.py": "rebuild",
        "airflow_gddl/operators/upkeep.py": "maintain verify",
        "airflow_gddl/operators/pipeline_loads.py": "initial_load rebuild reload",
        "airflow_gddl/runtime/landing/load_task.py": "handle_errors rebuild reload verify",
        "airflow_gddl/runtime/landing/run_request.py": "rebuild reload verify",
        "airflow_gddl/runtime/landing/tables_with_work.py": "reload",
    },
    "what a result of the action says of a table's state": {
        "airflow_gddl/runtime/state/alerts.py": "maintain verify",
        "airflow_gddl/runtime/state/table_runs.py": "maintain rebuild reload verify",
        "spark_jobs/job/run_results.py": "maintain verify",
    },
    "names of actions for workers, which do not import the types": {
        "airflow_gddl/contract/basics.py": "erase maintain rebuild reload resync_rows verify",
    },
    "changes of a row's identity are repaired by the action": {
        "airflow_gddl/contract/table_identity.py": "rebuild reload",
        "spark_jobs/plan/identity.py": "rebuild",
    },
    "a run goes on with an unfinished rebuild, and begins with the first load": {
        "airflow_gddl/runtime/landing/tables_with_work.py": "initial_load",
        "spark_jobs/batch/pending.py": "handle_errors initial_load",
        "spark_jobs/batch/table_run.py": "handle_errors",
        "spark_jobs/job/table_job.py": "erase handle_errors initial_load plan rebuild",
    },
    "checks of a field of the row whose classes are the contract's": {
        "airflow_gddl/contract/row_checks.py": "initial_load",
        "airflow_gddl/metadata/validation.py": "initial_load",
    },
    "work that several actions share, by the options of one of them": {
        "spark_jobs/batch/erasable.py": "erase",
        "spark_jobs/plan/waiting_files.py": "reload",
        "spark_jobs/rooms/sources/__init__.py": "resync_rows",
        "spark_jobs/verification.py": "verify",
    },
    "another thing of this name: what is done with landed files, steps that are reported, Debezium's option": {
        "airflow_gddl/contract/extensions.py": "reload",
        "airflow_gddl/contract/flat_events.py": "reload",
        "spark_jobs/batch/pending.py": "plan",
    },
    "kinds of catalogs have these names, and the descriptors of all kinds are one list": {
        "airflow_gddl/cli/check.py": "glue iceberg",
        "airflow_gddl/contract/extensions.py": "glue iceberg",
        "airflow_gddl/hooks/aws.py": "iceberg",
        "airflow_gddl/metadata/sources.py": "iceberg",
        "spark_jobs/rooms/catalogs/registrar.py": "iceberg",
        "spark_jobs/job/run_results.py": "iceberg",
    },
    "the list of extras, as pyproject.toml has them": {
        "airflow_gddl/contract/packages.py": "capture databricks glue iceberg kafka",
    },
    "the list of runners, so that one whose room is missing says so": {
        "airflow_gddl/runners/descriptor.py": "databricks emr_serverless glue",
    },
    "the platform that a job finds itself on, whoever started it": {
        "spark_jobs/spark/cluster_check.py": "databricks",
        "spark_jobs/spark/session_settings.py": "databricks",
        "spark_jobs/tables/many_tasks.py": "databricks",
        "spark_jobs/tables/spark_merge.py": "databricks",
    },
    "options of `dialect: debezium` have the source's, with their type": {
        "airflow_gddl/contract/extensions.py": "capture kafka",
        "airflow_gddl/metadata/sources.py": "capture kafka",
        "spark_jobs/rooms/dialects/debezium/dialect.py": "capture",
    },
    "names of environment variables that tasks pass on to jobs": {
        "airflow_gddl/metadata/settings.py": "capture",
    },
    "`gddl check` and `gddl onboard` ask a source as jobs do": {
        "airflow_gddl/cli/check.py": "capture kafka",
        "airflow_gddl/cli/source_database.py": "capture",
    },
    "a word of the plan's document and of its text: what a run reads first": {
        "airflow_gddl/cli/job.py": "kafka",
        "airflow_gddl/contract/sources/__init__.py": "kafka",
    },
    "files that Kafka's own connectors write, with the topic of each row": {
        "spark_jobs/rooms/dialects/debezium/avro_files.py": "kafka",
        "spark_jobs/rooms/dialects/debezium/topic_files.py": "kafka",
    },
    "`mode` decides rules of the core: where files are, which are read, how rows are ordered": {
        "airflow_gddl/contract/extensions.py": "snapshots",
        "airflow_gddl/contract/layout.py": "snapshots",
        "spark_jobs/rooms/dialects/dms.py": "snapshots",
        "spark_jobs/ledger/targets.py": "snapshots",
        "spark_jobs/rules/fold.py": "snapshots",
        "spark_jobs/rules/order.py": "snapshots",
    },
    "the ledger's document of snapshots that were taken has this field": {
        "spark_jobs/ledger/taken_snapshots.py": "snapshots",
    },
}
"""By reason, modules of the core and the rooms that they name. It may only shrink."""
MOST = 143
"""Names of rooms in modules of the core, see `EXCEPTIONS`: lower it with each that goes."""


def listed() -> list[tuple[str, str]]:
    return [(module, room) for one in EXCEPTIONS.values() for module, rooms in one.items() for room in rooms.split()]


def test_the_core_names_no_room_but_those_that_are_listed() -> None:
    """In both directions: a new name needs a reason, and a reason without a name goes."""
    found = {(module, room) for module, rooms in naming().items() for room in rooms}
    assert found - set(listed()) == set(), "named by the core: let the room declare it (docs/extending.md)"
    assert set(listed()) - found == set(), "named no more: remove it here"


def test_each_exception_has_one_reason_and_their_number_only_falls() -> None:
    assert len(set(listed())) == len(listed()) == MOST
    assert all(len(reason.split()) >= 5 for reason in EXCEPTIONS)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("iceberg", "x = spec.iceberg"),
        ("iceberg", "class IcebergTable: ..."),
        ("iceberg", 'text = "add iceberg: true to the row"'),
        ("kafka", 'spec.options.get("topic")'),
        ("kafka", "from airflow_gddl.contract.sources.kafka import topic_of"),
        ("emr_serverless", "EMR_SERVERLESS = 1"),
        ("snapshots", 'spec.mode == "snapshots"'),
        ("verify", "from airflow_gddl.contract.actions import Verify"),
        ("verify", 'result.action == "verify"'),
        ("handle_errors", "from spark_jobs.rooms.actions import handle_errors"),
    ],
)
def test_what_names_a_room(room: str, source: str) -> None:
    (one,) = (one for one in NAMED if one.name == room)
    assert any(is_named(one, how, name) for how, name in names_in(source))


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("iceberg", '"""Iceberg readers."""'),
        ("iceberg", 'text = "which Iceberg readers ignore"'),
        ("plan", "plan = ledger.plan()"),
        ("verify", "verify(rows)"),
        ("snapshots", "snapshots = log.snapshots"),
    ],
)
def test_what_names_none(room: str, source: str) -> None:
    (one,) = (one for one in NAMED if one.name == room)
    assert not any(is_named(one, how, name) for how, name in names_in(source))
