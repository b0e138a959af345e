"""Tables that are altered at random: each is right, or stops by name.

Drawn statements are judged by what they do to rows and log: a run goes on where they are harmless, and stops where the
rows of the lake would be wrong. Under writers jobs are killed, too.

A stop by name is repaired as its message says, `gddl load --again`, and the table is right then. `GDDL_KILLS` says how
many jobs are killed, `GDDL_DRAWN` how many histories are drawn, `GDDL_SEED` which.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sources.capture import PUBLICATION, SLOT
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.rooms.sources.capture.catalog import CatalogColumn, Reading, TableCatalog, read_catalog
from spark_jobs.rooms.sources.capture.catalog import alterations as unlogged
from spark_jobs.rooms.sources.capture.followed import is_other
from spark_jobs.rooms.sources.capture.position import FollowedTable
from spark_jobs.rooms.sources.capture.postgresql import PostgreSQL
from spark_jobs.rooms.sources.capture.relation_messages import Descriptions, RelationMessage
from tests.capture.captured import LOAD_AGAIN, SPEC, Writer, end, prepared, replica, result_of, rows_of
from tests.capture.drawn_ddl import COLUMNS, HARMLESS, OTHERS, Move, Replay, drawn
from tests.capture.drawn_ddl import TABLES as TABLES_DRAWN
from tests.capture.drawn_ddl import Source as DrawnSource
from tests.capture.test_killed import address, pgbench, under_pgbench
from tests.databases.test_initial_load import environ
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres

DRAWN = int(os.environ.get("GDDL_DRAWN", "1000"))
KILLS, SEED = int(os.environ.get("GDDL_KILLS", "50")), int(os.environ.get("GDDL_SEED", "1"))
_EVOLVES = SchemaEvolution(type_change="text", dropped_column="null")
FREE, PARTS, STATES = (
    replace(SPEC, table=f"s.{name}", schema_evolution=_EVOLVES, truncate="apply") for name in ("t", "parts", "states")
)
BRANCHES = replace(SPEC, table="public.pgbench_branches", keys=("bid",), schema_evolution=_EVOLVES)
SPECS = (FREE, PARTS, STATES, BRANCHES)
NAMED = {
    "SOURCE_TABLE_ALTERED", "SOURCE_LOG_RESTARTED", "SOURCE_LOG_REFUSED", "SOURCE_LOG_LOST", "SOURCE_TABLE_MISSING",
    "NOT_PUBLISHED", "TABLE_BUSY",
}  # fmt: skip
"""Stops by name; others than these are failures of the test."""
TABLES = (
    "CREATE TABLE s.t (id int PRIMARY KEY, v text)",
    "CREATE TABLE s.parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.p0 PARTITION OF s.parts FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE s.p1 PARTITION OF s.parts FOR VALUES FROM (100) TO (200)",
    "CREATE TYPE s.state AS ENUM ('open', 'shut')",
    "CREATE TABLE s.states (id int PRIMARY KEY, alt int NOT NULL, state s.state, n int)",
    "CREATE UNIQUE INDEX alt ON s.states (alt)",
    "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 200) i",
    "INSERT INTO s.parts SELECT i, 'v' || i FROM generate_series(1, 199) i",
    "INSERT INTO s.states SELECT i, i, 'shut', i FROM generate_series(0, 50) i",
)
Ddl = Sequence[str]


def alterations(number: int) -> dict[str, Ddl]:
    """Name to statements, a transaction each; they leave the tables as those after them expect."""
    new, low = f"c{number}", 1000 + 100 * number
    return {
        "column": (f"ALTER TABLE s.states ADD {new} int", f"UPDATE s.states SET {new} = 1 WHERE id % 3 = 0"),
        "column with a default": (f"ALTER TABLE s.states ADD {new} int NOT NULL DEFAULT 7",),
        "column of the clock": (f"ALTER TABLE s.states ADD {new} float8 DEFAULT random()",),
        "type by an expression": ("ALTER TABLE s.states ALTER n TYPE int USING n + 1",),
        "column made again": ("ALTER TABLE s.states DROP n", "ALTER TABLE s.states ADD n int"),
        "label": ("ALTER TYPE s.state RENAME VALUE 'shut' TO 'closed'",
                  "ALTER TYPE s.state RENAME VALUE 'closed' TO 'shut'"),
        "renamed column": ("ALTER TABLE s.states RENAME n TO m", "UPDATE s.states SET m = -m WHERE id < 9",
                           "ALTER TABLE s.states RENAME m TO n"),
        "identity for a while": ("ALTER TABLE s.states REPLICA IDENTITY USING INDEX alt",
                                 f"DELETE FROM s.states WHERE id = {number % 40 + 1}",
                                 "ALTER TABLE s.states REPLICA IDENTITY DEFAULT"),
        "renamed table": ("ALTER TABLE s.states RENAME TO u", "UPDATE s.u SET n = n + 1 WHERE id < 5",
                          "ALTER TABLE s.u RENAME TO states"),
        "other schema": ("ALTER TABLE s.states SET SCHEMA away", "DELETE FROM away.states WHERE id = 45",
                         "ALTER TABLE away.states SET SCHEMA s"),
        "unlogged": ("ALTER TABLE s.states SET UNLOGGED", f"UPDATE s.states SET n = {number}",
                     "ALTER TABLE s.states SET LOGGED"),
        "made again": ("DROP TABLE s.states", TABLES[5], TABLES[6], "INSERT INTO s.states VALUES (1, 1, 'open', 1)",
                       "INSERT INTO s.states SELECT i, i, 'shut', i FROM generate_series(2, 50) i"),
        "truncated": ("TRUNCATE s.states", "INSERT INTO s.states SELECT i, i, 'open', 0 FROM generate_series(0, 44) i"),
        "rewritten": ("VACUUM FULL s.states",),
        "changes": (f"UPDATE s.states SET n = {number} WHERE id % 2 = 0", "DELETE FROM s.states WHERE id = 44",
                    f"INSERT INTO s.states (id, alt) VALUES ({low}, {low})"),
        "new partition": (f"CREATE TABLE s.p{low} PARTITION OF s.parts FOR VALUES FROM ({low}) TO ({low + 100})",
                          f"INSERT INTO s.parts VALUES ({low}, 'new')"),
        "attached": (f"CREATE TABLE s.p{low} (LIKE s.parts INCLUDING ALL)", f"INSERT INTO s.p{low} VALUES ({low}, 'a')",
                     f"ALTER TABLE s.parts ATTACH PARTITION s.p{low} FOR VALUES FROM ({low}) TO ({low + 100})"),
        "partition dropped": ("DROP TABLE s.p1",
                              "CREATE TABLE s.p1 PARTITION OF s.parts FOR VALUES FROM (100) TO (200)",
                              f"INSERT INTO s.parts SELECT i, '{number}' FROM generate_series(100, 120) i"),
        "detached": ("ALTER TABLE s.parts DETACH PARTITION s.p1", f"ALTER TABLE s.p1 RENAME TO old{number}",
                     "CREATE TABLE s.p1 PARTITION OF s.parts FOR VALUES FROM (100) TO (200)"),
        "partition truncated": ("TRUNCATE s.p0",
                                f"INSERT INTO s.parts SELECT i, 'w{number}' FROM generate_series(0, 60) i"),
        "changes of partitions": (f"UPDATE s.parts SET v = '{number}' WHERE id % 3 = 0",
                                  "DELETE FROM s.parts WHERE id % 17 = 0"),
        "inherited": ("CREATE TABLE s.child () INHERITS (s.states)",
                      "INSERT INTO s.child (id, alt, n) VALUES (90, 90, 1)", "DROP TABLE s.child"),
        "unpublished": ("ALTER PUBLICATION gddl DROP TABLES IN SCHEMA s", f"UPDATE s.states SET n = -{number}",
                        "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA s"),
        "options": ("ALTER PUBLICATION gddl SET (publish = 'insert')", "DELETE FROM s.states WHERE id < 4",
                    "ALTER PUBLICATION gddl SET (publish = 'insert, update, delete, truncate')"),
    }  # fmt: skip


@pytest.fixture
def source() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as server:
        prepared(server, "CREATE SCHEMA IF NOT EXISTS away", *TABLES)
        subprocess.run([pgbench(), "-i", "-q", "-s", "1", address(server)], check=True, capture_output=True)
        execute(server, "ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
        execute(server, "ALTER PUBLICATION gddl ADD TABLES IN SCHEMA public")
        yield server
        end(server)


@dataclass
class Play:
    """Attributes:
    stops: how often each code has stopped a table, and its load mended that; `silent`: differences of one that said
        nothing, by table.
    """

    lake: Lake
    source: sa.Engine
    chance: random.Random
    killed: int = 0
    number: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    played: Counter[str] = field(default_factory=Counter)
    silent: dict[str, list[object]] = field(default_factory=dict)

    def alter(self) -> None:
        """The statements are spread over the time of a job, or come at once."""
        name, statements = self.chance.choice(sorted(alterations(sum(self.played.values())).items()))
        self.played[name] += 1
        for statement in statements:
            with self.source.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text(statement))

    def kill(self, spec: TableSpec, options: JobOptions | None = None) -> None:
        """Start a job and kill it within some seconds, while the source is altered."""
        job = replace(self.lake.job([spec], options), run_id=f"killed {self.number}")
        command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), "0", "never"]
        log = Path(self.lake.root, f"killed-{self.number}.log")
        with (
            log.open("wb") as stream,
            subprocess.Popen(command, env={**os.environ, **environ(self.source)}, stdout=stream, stderr=stream) as one,
        ):
            for _ in range(self.chance.randrange(3)):
                with suppress(subprocess.TimeoutExpired):
                    one.wait(self.chance.uniform(0, 4))
                self.alter()
            with suppress(subprocess.TimeoutExpired):
                one.wait(self.chance.uniform(0, 6))
            children = psutil.Process(one.pid).children(recursive=True) if one.poll() is None else []
            one.kill()
            is_killed = one.wait() == -signal.SIGKILL
        self.killed, self.number = self.killed + is_killed, self.number + 1
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, "an engine outlives its job"
        if not is_killed and one.returncode:
            found = re.findall(r"ErrorInfo\(code='([A-Z_0-9]+)'", log.read_text())
            assert {*found[-1:]} & NAMED, log.read_text()[-3000:]

    def compare(self) -> None:
        """Nothing is written meanwhile: each table equals its source, or says why it does not, and a load mends it."""
        for spec in SPECS:
            self.number += 1
            found = result_of(self.lake, self.source, f"compared {self.number}", spec)
            code = found.error.code if found.error else None
            if code is not None:
                assert code in NAMED, found.error
                self.stops[code] += 1
                for options in (LOAD_AGAIN, None):
                    self.number += 1
                    mended = result_of(self.lake, self.source, f"mended {self.number}", spec, options)
                    assert mended.error is None, mended.error
            if rows := differences(self.lake, self.source, spec):
                self.silent.setdefault(f"{spec.table} after {code or 'no stop'}", []).extend(list(rows)[:5])


def differences(lake: Lake, source: sa.Engine, spec: TableSpec) -> Counter[frozenset[tuple[str, str]]]:
    """Rows, without nulls and columns that the source has dropped, that one of the two has more often."""
    there, here = rows_of(source, spec.table), replica(lake, spec)
    names = set(there[0]) if there else set()

    def counted(rows: list[dict[str, object]]) -> Counter[frozenset[tuple[str, str]]]:
        return Counter(frozenset((n, str(v)) for n, v in row.items() if v is not None and n in names) for row in rows)

    return (counted(there) - counted(here)) + (counted(here) - counted(there))


def play(source: sa.Engine, tmp_path: Path, kills: int, every: int) -> Play:
    found = Play(Lake(tmp_path), source, random.Random(SEED))  # noqa: S311 - repeatable by its seed
    print(f"GDDL_SEED={SEED}")
    found.compare()
    while found.killed < kills:
        with ExitStack() as writers:
            for seed in range(2):
                writers.enter_context(Writer(source, SEED + seed))
            writers.enter_context(under_pgbench(source))
            for _ in range(every):
                found.kill(found.chance.choice(SPECS), found.chance.choice((None, None, None, LOAD_AGAIN)))
        found.compare()
        print(
            f"{found.killed} of {found.number} jobs killed; stops {dict(found.stops)}; {dict(found.played)}", flush=True
        )
        assert not found.silent, found.silent
    return found


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_random_alterations_and_kills_leave_no_silent_difference(source: sa.Engine, tmp_path: Path) -> None:
    found = play(source, tmp_path, KILLS, every=5)
    assert set(found.stops), "nothing has stopped a table"


@pytest.mark.timeout(900)
def test_sample_of_random_alterations_and_kills(source: sa.Engine, tmp_path: Path) -> None:
    play(source, tmp_path, 3, every=3)


@dataclass(frozen=True)
class Judged:
    """A drawn history.

    Attributes:
        always, at_last: whether the log led to the source's rows after each statement, and after the last.
        hides: neither catalog nor log show all that it does, or rows were changed while the table was another.
        why: a run would stop; empty: it goes on.
    """

    seed: str
    done: Sequence[str]
    always: bool
    at_last: bool
    hides: bool
    why: str

    @property
    def is_right(self) -> bool:
        """It stops where rows are wrong, and not where all was right all the time."""
        return bool(self.why) if not self.at_last else not (self.why and self.always and not self.hides)


def judged(server: sa.Engine, seed: str, moves: Sequence[Move] = ()) -> Judged:
    """Alter a table, and compare what a run would say of it with what the log has made of its rows.

    Args:
        moves: these, one after the other; empty: drawn ones.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    form, by = chance.choice(sorted(TABLES_DRAWN)), chance.choice(("name", "schema"))
    form = next((move.form for move in moves if move.form), form)
    by = next((move.by for move in moves if move.by), by)
    spec = replace(SPEC, columns=("v", "n", "stock", "at")) if chance.random() < 0.5 else SPEC
    with fresh(server, form, by) as source:
        began = {row["id"]: row for row in source.rows()}
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            log = PostgreSQL(sa, connection, {SLOT: "gddl", PUBLICATION: "gddl"}, 60)

            def replayed() -> Replay:
                found = Replay("s.t", ("id", *spec.columns) if spec.columns else (), dict(began))
                for transaction, message in connection.execute(sa.text(_CHANGES)):
                    found.apply(transaction, bytes(message))
                return found

            before = followed(log, spec)
            versions, mark = log.versions(), log.mark()
            known = log.described(Descriptions(), versions, mark)
            hides, always, is_other_now = False, True, False
            steps = drawn(chance, form, by) if not moves else ((m, one) for m in moves for one in (m.do, m.undo))
            for move, statements in (*steps, (Move([]), ["SELECT 1"] * 3)):
                hides |= move.hides
                is_other_now |= move in OTHERS
                for statement in statements:
                    source.carry_out(statement)
                    if not move.do or chance.random() < 0.4:
                        source.change(chance)
                        hides |= is_other_now
                    always &= replayed().equals(source.rows(as_begun=True))
                is_other_now &= move not in OTHERS or statements is not move.undo
            adds = any("ADD extra" in one for one in source.done)
            hides |= (adds or form.endswith("narrow")) and source.is_written_anew()
            replay = replayed()
            hides |= any(name != first for first, name in source.names().items() if first in COLUMNS)
            try:
                now = followed(log, spec, before)
                mark = log.mark()
                known = log.described(known, log.versions(), mark)
                relations = {now.number, *map(int, now.catalog.parts if now.catalog else ())}
                now = replace(now, truncates=replay.truncates, truncated_by=replay.truncated_by)
                why = is_other(spec, before, replace(now, described=known.of(relations)))
            except FatalError as error:
                hides, why = True, error.code
        at_last = replay.equals(source.rows())
        return Judged(seed, tuple(source.done), always, at_last, hides, why)


_CHANGES = """SELECT CAST(xid AS text), data FROM pg_logical_slot_peek_binary_changes('gddl', NULL, NULL,
  'proto_version', '1', 'publication_names', 'gddl')"""


@contextmanager
def fresh(server: sa.Engine, form: str, by: str) -> Iterator[DrawnSource]:
    """A table that is published by its name or its schema, and a slot that has nothing of it yet."""
    end(server)
    published = "TABLE s.t" if by == "name" else "TABLES IN SCHEMA s"
    execute(
        server, "DROP PUBLICATION IF EXISTS gddl", *(f"DROP SCHEMA IF EXISTS {s} CASCADE" for s in ("s", "s2", "away")),
        "CREATE SCHEMA s", "CREATE SCHEMA away", "CREATE TABLE s.other (id int PRIMARY KEY)", *TABLES_DRAWN[form],
        f"CREATE PUBLICATION gddl FOR {published} WITH (publish_via_partition_root = true)",
    )  # fmt: skip
    execute(server, "SELECT pg_create_logical_replication_slot('gddl', 'pgoutput')")
    with server.connect() as connection:
        number = connection.execute(sa.text("SELECT CAST(CAST('s.t' AS regclass) AS oid)")).scalar()
    yield DrawnSource(server, form, int(str(number)))
    end(server)


def followed(log: PostgreSQL, spec: TableSpec, before: FollowedTable | None = None) -> FollowedTable:
    relation = log.require_published(spec).relation
    parts = None if before is None else before.catalog.parts
    catalog = read_catalog(sa, log.connection, relation, known=lambda: parts)
    return FollowedTable(log="one", relation=relation, catalog=catalog)


@pytest.fixture(scope="module")
def drawn_server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical\nfsync = off") as server:
        execute(server, "CREATE ROLE clerk")
        yield server


@pytest.mark.parametrize("move", HARMLESS, ids=lambda one: str(one.do[0])[:60])
def test_harmless_statement_and_its_undoing_stop_nothing(move: Move, drawn_server: sa.Engine) -> None:
    found = judged(drawn_server, "harmless", [move])
    assert (found.always, found.at_last, found.why) == (True, True, ""), found


@pytest.mark.parametrize("move", [replace(one, undo=()) for one in OTHERS], ids=lambda one: str(one.do[0])[:60])
def test_statement_that_changes_rows_or_the_log_stops_the_table(move: Move, drawn_server: sa.Engine) -> None:
    found = judged(drawn_server, "other", [move])
    assert found.is_right, found
    assert found.why or found.at_last


@pytest.mark.parametrize(("times", "what"), [(1, "renamed to s.u for a while"), (9, "more often than is known")])
def test_a_name_that_runs_of_other_tables_have_seen_is_remembered(
    times: int, what: str, drawn_server: sa.Engine
) -> None:
    """Rows may be changed under it while nothing is altered, so that no run asks the log."""
    with (
        fresh(drawn_server, "plain", "name") as source,
        drawn_server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        log = PostgreSQL(sa, connection, {SLOT: "gddl", PUBLICATION: "gddl"}, 60)
        before, known = followed(log, SPEC), Descriptions()
        for statement in ("SELECT 1", *["ALTER TABLE {t} RENAME TO u", "ALTER TABLE {t} RENAME TO t"] * times):
            source.carry_out(statement)
            known = log.described(known, log.versions(), log.mark())
        now = replace(followed(log, SPEC, before), described=known.of([before.number]))
        assert what in is_other(SPEC, before, now)
        assert not is_other(SPEC, now, now), "the run after the table was loaded goes on"
        assert len(known.messages) <= 6


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ("id v n alt", ""), ("id n v alt", "v n"), ("id v old n alt", ""),
        ("id v old alt new", "n"), ("id v x alt n", "n"), ("id v n", ""), ("id n v", "v n"),
    ],
)  # fmt: skip
def test_columns_are_known_by_their_places(described: str, named: str) -> None:
    """`old` was dropped, and `alt` is not taken: a publication's list of columns has no need of it."""

    def catalog(**names: str) -> TableCatalog:
        columns = {
            number[1:]: CatalogColumn(name=name, type="int4", version="1", kind="23") for number, name in names.items()
        }
        return TableCatalog(
            node="1", by_itself=True, by_schema=False, toast="0", version="1", moved="1", columns=columns
        )

    before, now = catalog(_1="id", _2="v", _3="old", _4="n", _5="alt"), catalog(_1="id", _2="v", _4="n", _5="alt")
    message = RelationMessage(relation=1, name="s.t", columns=tuple(described.split()), identity="f", keys=())
    reading = Reading(name="s.t", takes=lambda name: name != "alt", keys=("id",))
    found = [text.split()[1] for text in unlogged(before, now, [message], reading)]
    assert found == named.split()


def test_rows_of_an_attached_partition_that_its_policies_hide_are_known(drawn_server: sa.Engine) -> None:
    """A query of the partitioned table shows them, since policies of a partition are not asked then."""
    with fresh(drawn_server, "parts", "name") as source:
        for statement in (
            "CREATE TABLE s.r (LIKE {t} INCLUDING ALL)", "INSERT INTO s.r (id, alt) VALUES (201, 201)",
            "ALTER TABLE s.r ENABLE ROW LEVEL SECURITY", "GRANT USAGE ON SCHEMA s TO clerk",
            "ALTER TABLE {t} ATTACH PARTITION s.r FOR VALUES FROM (200) TO (300)",
            "GRANT SELECT ON ALL TABLES IN SCHEMA s TO clerk",
        ):  # fmt: skip
            source.carry_out(statement)
        with drawn_server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("SET ROLE clerk"))
            catalog = read_catalog(sa, connection, f"{source.number}/1/", known=tuple)
            connection.execute(sa.text("RESET ROLE"))
    assert [part.attached for part in catalog.parts.values() if part.name == "s.r"] == [True]


@pytest.mark.deep
def test_many_drawn_statements_stop_a_table_where_its_rows_would_be_wrong(drawn_server: sa.Engine) -> None:
    drawn_statements(drawn_server, DRAWN)


def test_drawn_statements_stop_a_table_where_its_rows_would_be_wrong(drawn_server: sa.Engine) -> None:
    drawn_statements(drawn_server, 40)


def drawn_statements(server: sa.Engine, count: int) -> None:
    found = [judged(server, f"{SEED} {at}") for at in range(count)]
    kinds = Counter(("equal" if one.at_last else "wrong", "stops" if one.why else "goes on") for one in found)
    print(f"GDDL_SEED={SEED}: {dict(kinds)}")
    assert not [one for one in found if not one.is_right]
    assert kinds["wrong", "stops"], "nothing was to stop a table"
    assert kinds["equal", "goes on"], "everything stops a table"
