"""`gddl onboard` on live databases: what their catalogues and statistics tell, and what a second look sees."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import FatalError, MetadataError, RetriableError
from airflow_gddl.metadata.loading import load
from airflow_gddl.tools.onboarding.database import Database, Statistics, with_rows
from airflow_gddl.tools.onboarding.rules import SourceFacts, TableFacts
from tests.databases.mariadb import SERVER, mariadb
from tests.one_task.postgres import postgres

PASSWORD = "hidden-in-the-variable"  # noqa: S105 - of no account; it must not be shown
POSTGRES = [
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.orders (id bigint PRIMARY KEY, total numeric(10,2), at timestamptz)",
    "INSERT INTO shop.orders SELECT n, n, now() FROM generate_series(1, 500) n",
    "UPDATE shop.orders SET total = 0 WHERE id <= 100",
    "DELETE FROM shop.orders WHERE id <= 50",
    'CREATE TABLE shop."Order Lines" (line int, order_id bigint, PRIMARY KEY (order_id, line))',
    "CREATE TABLE shop.users (email text NOT NULL, name text)",
    "CREATE UNIQUE INDEX users_email ON shop.users (email)",
    "CREATE UNIQUE INDEX users_name ON shop.users (name)",
    "CREATE TABLE shop.partial (a int NOT NULL, b int NOT NULL)",
    "CREATE UNIQUE INDEX ON shop.partial (a) WHERE b > 0",
    "CREATE UNIQUE INDEX ON shop.partial (abs(a))",
    "CREATE TABLE shop.events (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE shop.events_1 PARTITION OF shop.events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
    "INSERT INTO shop.events SELECT n, '2024-05-01' FROM generate_series(1, 30) n",
    'CREATE TABLE shop."../../etc" (id int PRIMARY KEY)',
    'CREATE TABLE shop."semi;--""quote" (id int PRIMARY KEY)',
    'CREATE TABLE shop.odd ("no" int, "qu""ote: #x" text, PRIMARY KEY ("no", "qu""ote: #x"))',
    "CREATE VIEW shop.seen AS SELECT * FROM shop.orders",
    "CREATE SCHEMA other",
    "CREATE TABLE other.t (id int PRIMARY KEY)",
]


@dataclass
class Live:
    """A database, and a metadata folder beside it."""

    engine: sa.Engine
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def environ(self) -> dict[str, str]:
        return {"SHOP_DB": self.engine.url.render_as_string(hide_password=False)}

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def read(self, *schemas: str) -> SourceFacts:
        return Database("SHOP_DB", self.environ).read(frozenset(schemas), frozenset())

    def tables(self, *schemas: str) -> dict[str, TableFacts]:
        return {one.table: one for one in self.read(*schemas).tables}

    def onboard(self, *more: str, status: int = 0) -> str:
        """Standard output of the command."""
        self.metadata.mkdir(exist_ok=True)
        (self.metadata / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
        given = ["onboard", "shop", "--connection", "SHOP_DB", "--metadata", str(self.metadata), *more]
        assert invoke(given, replace(real(), environ=self.environ)) == status
        return self.capsys.readouterr().out

    @property
    def metadata(self) -> Path:
        return self.folder / "metadata"


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def live(server: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Live]:
    live = Live(server, tmp_path, capsys)
    live.execute(*POSTGRES)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE shop.orders"))
    yield live
    live.execute("DROP SCHEMA shop CASCADE", "DROP SCHEMA other CASCADE")


def keys(tables: dict[str, TableFacts]) -> dict[str, Any]:
    return {name: one.key and (one.key.columns, one.key.evidence) for name, one in tables.items()}


def test_keys_are_declared_ones_or_whole_unique_indexes(live: Live) -> None:
    assert keys(live.tables("shop")) == {
        "shop.Order Lines": (("order_id", "line"), "primary key Order Lines_pkey"),
        "shop.events": (("id", "day"), "primary key events_pkey"),
        "shop.odd": (("no", 'qu"ote: #x'), "primary key odd_pkey"),
        "shop.orders": (("id",), "primary key orders_pkey"),
        "shop.partial": None,
        "shop.users": (("email",), "unique index users_email"),
    }


def test_comments_become_descriptions(live: Live) -> None:
    live.execute(
        "COMMENT ON TABLE shop.orders IS 'All orders, \"whole\"; it''s the source''s own: #1'",
        "COMMENT ON COLUMN shop.orders.id IS E'the key\\nof all'",
        "COMMENT ON COLUMN shop.orders.total IS 'in euros'",
        "COMMENT ON COLUMN shop.users.name IS 'password=hunter2secret'",
    )
    live.onboard("--write")
    rows = {row.table: row for row in load(str(live.metadata), {}).tables}
    orders = rows["shop.orders"]
    assert orders.description == "All orders, \"whole\"; it's the source's own: #1"
    assert orders.column_descriptions == {"id": "the key\nof all", "total": "in euros"}
    assert (rows["shop.users"].description, rows["shop.users"].column_descriptions) == (None, {})


def test_foreign_keys_are_described_at_their_columns(live: Live) -> None:
    live.execute(
        "CREATE TABLE public.seen_from_everywhere (code text PRIMARY KEY)",
        "CREATE TABLE shop.payments (id int PRIMARY KEY, order_id bigint REFERENCES shop.orders, other_id int "
        "REFERENCES other.t, code text REFERENCES seen_from_everywhere, line int, "
        'FOREIGN KEY (order_id, line) REFERENCES shop."Order Lines" (order_id, line))',
        "COMMENT ON COLUMN shop.payments.order_id IS 'what was paid'",
        "COMMENT ON COLUMN shop.payments.code IS 'A code.'",
    )
    try:
        live.onboard("--write")
        payments = next(row for row in load(str(live.metadata), {}).tables if row.table == "shop.payments")
    finally:
        live.execute("DROP TABLE shop.payments", "DROP TABLE public.seen_from_everywhere")
    assert payments.column_descriptions == {
        "order_id": "what was paid. References shop.Order Lines.order_id, shop.orders.id",
        "other_id": "References other.t.id",
        "code": "A code. References public.seen_from_everywhere.code",
        "line": "References shop.Order Lines.line",
    }


CONSTRAINED = """CREATE TABLE shop.sales (
    id bigint PRIMARY KEY, no int NOT NULL, line int NOT NULL, qty int, total numeric(10,2) NOT NULL,
    "Status" varchar(9), country text, paid date,
    CONSTRAINT qty_ok CHECK (qty > 0), CONSTRAINT total_ok CHECK (total >= 0 AND total < 1000000.50),
    CONSTRAINT status_ok CHECK ("Status" IN ('new', 'it''s')), CONSTRAINT country_ok CHECK (country LIKE 'D%'),
    CONSTRAINT paid_ok CHECK (paid > date '2020-01-31'),
    CONSTRAINT odd CHECK (position('x' in country) = 0), CONSTRAINT cut CHECK ((total)::int = 5)
)"""


def test_constraints_are_proposed_as_comments_that_are_valid_fields(live: Live) -> None:
    """What the grammar can't say is named as left; nothing is checked until a person writes it."""
    live.execute(CONSTRAINED)
    live.onboard("--schema", "shop", "--write")
    text = (live.metadata / "tables/shop.yaml").read_text()
    (line,) = [line for line in text.splitlines() if "table: shop.sales" in line]
    row, comment = line.split("  # ", 1)
    assert "expect" not in row
    proposed, left = comment.split("constraints? ")[1].split("; left: ")
    assert [name in left for name in ("CHECK odd", "CHECK cut", "CHECK qty_ok")] == [True, True, False]
    rows = live.metadata / "tables/shop.yaml"
    rows.write_text(text.replace(line, f"{row.removesuffix('}')}, {proposed}}}"))
    catalog = load(live.metadata, {})
    (sales,) = [spec for spec in catalog.tables if spec.table == "shop.sales"]
    assert catalog.problems == ()
    assert {name: one.rule for name, one in sales.expect.items()} == {
        "not_null": "no is not null and line is not null and total is not null",
        "country_ok": "coalesce(country like 'D%', true)",
        "paid_ok": "coalesce(paid > date '2020-01-31', true)",
        "qty_ok": "coalesce(qty > 0, true)",
        "status_ok": "coalesce(\"Status\" in ('new', 'it''s'), true)",
        "total_ok": "total >= 0 AND total < 1000000.50",
    }
    assert {one.on for one in sales.expect.values()} == {"warn"}
    live.onboard("--schema", "shop", status=0)


def test_rows_sizes_and_types_are_those_of_its_statistics(live: Live) -> None:
    tables = live.tables("shop")
    orders = tables["shop.orders"]
    assert orders.rows == 450
    assert orders.size_bytes is not None
    assert 450 * 16 < orders.size_bytes < 500_000
    assert dict(orders.columns) == {"id": "BIGINT", "total": "NUMERIC(10, 2)", "at": "TIMESTAMP"}
    assert tables["shop.events"].rows == 30
    assert tables["shop.users"].rows == 0


def test_an_index_that_could_not_be_built_is_no_key(live: Live) -> None:
    live.execute("CREATE TABLE shop.twice (a int NOT NULL)", "INSERT INTO shop.twice VALUES (1), (1)")
    alone = live.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with alone as connection, pytest.raises(sa.exc.IntegrityError):
        connection.execute(sa.text("CREATE UNIQUE INDEX CONCURRENTLY twice_a ON shop.twice (a)"))
    live.execute("ALTER TABLE ONLY shop.events DROP CONSTRAINT events_pkey")
    live.execute("ALTER TABLE ONLY shop.events ADD CONSTRAINT whole PRIMARY KEY (id, day)")  # its parts are without
    found = keys(live.tables("shop"))
    assert (found["shop.twice"], found["shop.events"]) == (None, None)


def test_tables_of_another_server_are_none_of_this_one(live: Live) -> None:
    live.execute(
        "CREATE FOREIGN DATA WRAPPER nowhere",
        "CREATE SERVER far FOREIGN DATA WRAPPER nowhere",
        "CREATE FOREIGN TABLE shop.far (id int) SERVER far",
    )
    try:
        assert "shop.far" not in live.tables("shop")
    finally:
        live.execute("DROP FOREIGN DATA WRAPPER nowhere CASCADE")


def test_a_table_that_may_not_be_read_has_a_row_without_a_count(live: Live) -> None:
    live.execute("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", "GRANT SELECT ON shop.users TO reader")
    url = live.engine.url.set(username="reader")
    facts = Database("SHOP_DB", {"SHOP_DB": url.render_as_string(hide_password=False)}).read(frozenset(), frozenset())
    live.execute("DROP OWNED BY reader", "DROP ROLE reader")
    rows = {one.table: one.rows for one in facts.tables}
    assert {name: rows[name] for name in ("shop.users", "shop.odd", "other.t")} == {
        "shop.users": None,  # the schema itself is closed
        "shop.odd": None,
        "other.t": None,
    }
    assert rows["shop.orders"] == 450  # statistics are open to all


def test_a_count_that_takes_longer_than_a_statement_may_stops_nothing(live: Live) -> None:
    live.execute("CREATE TABLE shop.slow (id int PRIMARY KEY)")
    slow = "CREATE POLICY slow ON shop.slow USING (pg_sleep(10) IS NOT NULL)"
    live.execute("INSERT INTO shop.slow VALUES (1)", "ALTER TABLE shop.slow ENABLE ROW LEVEL SECURITY", slow)
    live.execute("DROP ROLE IF EXISTS hasty", "CREATE ROLE hasty LOGIN", "ALTER ROLE hasty SET statement_timeout = 500")
    live.execute("GRANT USAGE ON SCHEMA shop TO hasty", "GRANT SELECT ON ALL TABLES IN SCHEMA shop TO hasty")
    url = live.engine.url.set(username="hasty")
    environ = {"SHOP_DB": url.render_as_string(hide_password=False)}
    rows = {one.table: one.rows for one in Database("SHOP_DB", environ).read(frozenset({"shop"}), frozenset()).tables}
    live.execute("DROP OWNED BY hasty", "DROP ROLE hasty")
    assert (rows["shop.slow"], rows["shop.users"]) == (None, 0)


def test_tables_without_statistics_are_counted_many_at_a_time(live: Live) -> None:
    names = [f"t{number}%s" for number in range(150)]
    live.execute(*(f'CREATE TABLE shop."{name}" (id int PRIMARY KEY)' for name in names))
    live.execute(*(f'INSERT INTO shop."{name}" SELECT generate_series(1, {i})' for i, name in enumerate(names)))
    asked: list[str] = []
    with live.engine.connect() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        found = with_rows(connection, "shop", {name: Statistics() for name in names})
    assert [found[name].rows for name in names] == list(range(150))
    assert sum("count(" in statement for statement in asked) == 3


def test_names_that_no_row_can_have_are_told(live: Live) -> None:
    assert {(notice.table, notice.code) for notice in live.read("shop").notices} == {
        ("shop.../../etc", "FIELD_VALUE"),
        ('shop.semi;--"quote', "FIELD_VALUE"),
    }


def test_all_schemas_but_the_systems_own_are_read(live: Live) -> None:
    assert {one.split(".")[0] for one in live.tables()} == {"shop", "other"}
    with pytest.raises(MetadataError) as caught:
        live.read("absent")
    assert caught.value.code == "ONBOARD_SCHEMA_MISSING"


def test_the_command_writes_metadata_that_is_sound_and_a_second_one_nothing(live: Live) -> None:
    shown = live.onboard("--schema", "shop", status=1)
    assert "+  shop.users: [email]  # unique index users_email" in shown
    assert not (live.metadata / "tables").exists()
    live.onboard("--schema", "shop", "--write")
    catalog = load(live.metadata, {})
    assert catalog.problems == ()
    assert len(catalog.tables) == 6
    assert [spec.table for spec in catalog.tables if not spec.enabled] == ["shop.partial"]
    assert live.onboard("--schema", "shop") == "nothing to change\n"


def test_the_second_command_proposes_what_is_new_alone(live: Live) -> None:
    live.onboard("--schema", "shop", "--write")
    live.execute(
        "DROP TABLE shop.users",
        "CREATE TABLE shop.fresh (id int PRIMARY KEY)",
        "ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey",
        "ALTER TABLE shop.orders ADD COLUMN no serial PRIMARY KEY",
    )
    records = [json.loads(line) for line in live.onboard("--schema", "shop", "--json", status=1).splitlines()]
    assert [one["table"] for one in records if one["kind"] == "new_table"] == ["shop.fresh"]
    assert [one["file"] for one in records if one["kind"] == "file"] == ["tables/shop-2.yaml", "keys/shop-2.yaml"]


def test_only_tables_that_were_asked_for_are_written(live: Live) -> None:
    live.onboard("--schema", "shop", "--write")
    assert live.onboard("--table", "shop.orders") == "nothing to change\n"
    assert live.onboard("--schema", "other", "--write").count("+  - ") == 1
    assert len(load(live.metadata, {}).tables) == 7


def test_no_file_and_no_message_holds_the_connection(live: Live) -> None:
    live.onboard("--write")
    written = "".join(path.read_text() for path in live.metadata.rglob("*.*"))
    assert str(live.engine.url) not in written
    wrong = {"SHOP_DB": f"postgresql+psycopg2://u:{PASSWORD}@127.0.0.1:1/x"}
    with pytest.raises(RetriableError) as caught:
        Database("SHOP_DB", wrong).read(frozenset(), frozenset())
    assert (caught.value.code, PASSWORD in str(caught.value)) == ("SOURCE_UNREACHABLE", False)
    for environ in ({}, {"SHOP_DB": f"{PASSWORD} is no url"}):
        with pytest.raises(FatalError) as refused:
            Database("SHOP_DB", environ).read(frozenset(), frozenset())
        assert (refused.value.code, PASSWORD in str(refused.value)) == ("SOURCE_CONNECTION_MISSING", False)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:p@{PASSWORD}@127.0.0.1:1/d",
        f"mysql+pymysql://u:p@{PASSWORD}@127.0.0.1:1/d",
        f"postgresql://u:p@/{PASSWORD}@127.0.0.1:1/d",
    ],
)
def test_the_rest_of_a_password_with_an_unescaped_at_is_not_shown_as_a_host(url: str) -> None:
    with pytest.raises(FatalError) as refused:
        Database("SHOP_DB", {"SHOP_DB": url}).read(frozenset(), frozenset())
    assert (refused.value.code, PASSWORD in str(refused.value)) == ("SOURCE_CONNECTION_MISSING", False)
    assert "%40" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["--connection", f"postgresql://u:{PASSWORD}@h/d"], "FIELD_VALUE"),
        (["--connection", "SHOP_DB", "--table", "../x.y"], "FIELD_VALUE"),
    ],
)
def test_what_is_no_name_is_refused_unread(
    given: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["onboard", "shop", "--metadata", str(tmp_path), *given], replace(real(), environ={})) == 2
    reported = capsys.readouterr().err
    assert code in reported
    assert PASSWORD not in reported


def test_a_source_that_is_no_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["onboard", "../../x", "--metadata", str(tmp_path), "--connection", "A"], real()) == 2
    assert "FIELD_VALUE" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


MARIADB = [
    "CREATE TABLE orders (id bigint PRIMARY KEY, total decimal(10,2))",
    "INSERT INTO orders SELECT seq, seq FROM seq_1_to_400",
    "UPDATE orders SET total = 0 WHERE id <= 10",
    "CREATE TABLE `Order Lines` (line int, order_id bigint, PRIMARY KEY (order_id, line))",
    "CREATE TABLE users (email varchar(80) NOT NULL, name varchar(80), UNIQUE KEY by_email (email), UNIQUE (name))",
    "CREATE TABLE bag (a int)",
    "CREATE TABLE `qu``ote` (id int PRIMARY KEY)",
    "CREATE TABLE sold (id int PRIMARY KEY, qty int, CONSTRAINT qty_ok CHECK (qty > 0 and qty <> 13))",
    "ANALYZE TABLE orders",
]


@pytest.mark.skipif(
    SERVER is None or importlib.util.find_spec("pymysql") is None,
    reason="needs Debian's mariadb-server and the package pymysql",
)
def test_a_database_that_speaks_mysql(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mariadb() as engine:
        live = Live(engine, tmp_path, capsys)
        live.execute(*MARIADB)
        tables = live.tables()
        assert keys(tables) == {
            "shop.Order Lines": (("order_id", "line"), "primary key"),
            "shop.bag": None,
            "shop.orders": (("id",), "primary key"),
            "shop.sold": (("id",), "primary key"),
            "shop.users": (("email",), "unique index by_email"),
        }
        rule = r'"coalesce(\"qty\" > 0 and \"qty\" <> 13, true)"'
        assert [tables[f"shop.{name}"].remarks for name in ("bag", "users", "sold")] == [
            (),
            (),
            (f"constraints? expect: {{qty_ok: {{rule: {rule}, on: warn}}}}",),
        ]
        orders = tables["shop.orders"]
        assert (orders.rows, orders.columns["total"]) == (400, "DECIMAL(10, 2)")
        assert orders.size_bytes is not None
        assert orders.size_bytes >= 16 * 1024
        live.onboard("--write")
        assert (len(load(live.metadata, {}).tables), live.onboard()) == (5, "nothing to change\n")
