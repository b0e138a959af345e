"""Each page of docs/recipes does what its page says: its rows, files, commands and results, one after the other.

Marks beside those of the README: `landed: PATH` is a file of the CDC service, shown as CSV and landed as parquet;
`rows: PATH` is what a table of the lake then holds, in these columns; `sql` runs in a PostgreSQL, whose connection is
GDDL_SOURCE_CRM; `messages: TOPIC` are sent to a Kafka, whose connection is GDDL_SOURCE_KAFKA;
`endpoint` and `mapping` are settings as `gddl onboard` prints them; `dag: NAME` is a DAG file that Airflow parses;
`fails` is a command that ends with an error; `dbt` runs where dbt is installed; `answer` is what the `query` above it
gives. The tutorial has the same marks.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.metadata.loading import load
from airflow_gddl.tools.onboarding.plan import endpoint_settings, table_mapping
from tests.conftest import LocalPort
from tests.kafka.broker import Broker, broker
from tests.one_task.postgres import execute, postgres
from tests.readme.walk import ROOT, WITHOUT_SPARK, Block, Walk, blocks

RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
ROOTS = "landing: ../landing\nlake: ../lake\n"
TYPES = {"AR_H_CHANGE_SEQ": pa.string(), "dms_timestamp": pa.timestamp("us")}
MADE_BY_FACTORY = {"gddl_pack.crm.small.1"}
DBT = ("dbt-core<1.11", "dbt-duckdb<1.11", "deltalake", "pyarrow")
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {dag.dag_id: [task.task_id for task in dag.tasks] for dag in bag.dags.values()}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


def land(path: Path, text: str) -> None:
    """The rows as DMS writes them: empty fields are null, the sequence is text."""
    options = pa_csv.ConvertOptions(column_types=TYPES, strings_can_be_null=True, null_values=[""])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa_csv.read_csv(io.BytesIO(text.encode()), convert_options=options), path)


def assert_rows(path: Path, text: str) -> None:
    """The table holds these rows, whatever their order; a dotted column is a field of a struct."""
    shown = list(csv.DictReader(io.StringIO(text)))
    found = DeltaTable(path).to_pyarrow_table().flatten().to_pylist()
    held = [{name: "" if row[name] is None else str(row[name]) for name in shown[0]} for row in found]
    assert sorted(held, key=str) == sorted(shown, key=str)


def answer(lake: Path, query: str) -> str:
    """What DuckDB answers to a query of the gallery, as CSV."""
    with duckdb.connect() as connection:
        for name in ("orders", "orders__changes", "orders__history", "orders__errors"):
            connection.register(name.removeprefix("orders__"), DeltaTable(lake / "shop" / name).to_pyarrow_table())
        connection.execute(f"CREATE VIEW runs AS SELECT * FROM read_json_auto('{lake}/_gddl/runs/*/*/*.json')")
        found = connection.execute(query)
        written = io.StringIO()
        lines = csv.writer(written, lineterminator="\n")
        lines.writerow(column[0] for column in found.description or ())
        lines.writerows(found.fetchall())
        return written.getvalue()


def assert_parsed(folder: Path, name: str, text: str) -> None:
    """Airflow parses the DAG file, and it has the DAG that its name says."""
    dags = folder / "recipe_dags" / Path(name).stem
    dags.mkdir(parents=True)
    (dags / name).write_text(text)
    environ = {**os.environ, "AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [sys.executable, "-c", PARSE, str(dags)]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["errors"] == {}
    expected = [Path(name).stem] if "@dag" in text else sorted(MADE_BY_FACTORY)
    assert sorted(answer["dags"]) == expected
    assert all(answer["dags"].values())


def send(kafka: Broker, topic: str, text: str) -> None:
    """A line for each message: its key, and behind a tab its value; `null` is a tombstone."""
    from confluent_kafka import Producer  # noqa: PLC0415 - one recipe needs it

    producer = Producer({"bootstrap.servers": kafka.address, "allow.auto.create.topics": "true"})
    for line in text.splitlines():
        key, _, value = line.partition("\t")
        producer.produce(topic, None if value == "null" else value.encode(), key.encode())
    assert producer.flush(60) == 0


def take(
    walk: Walk, block: Block, source: sa.Engine | None, kafka: Broker | None = None, *, with_dbt: bool = False
) -> None:
    """A block of a recipe.

    Args:
        source: where its SQL runs; null: it has none.
        kafka: where its messages are sent; null: it has none.
    """
    lake = walk.folder / "lake"
    known: dict[str, Callable[[], object]] = {
        "landed": lambda: land(walk.folder / "landing" / block.name, block.text),
        "rows": lambda: assert_rows(lake / block.name, block.text),
        "query": lambda: setattr(walk, "output", answer(lake, block.text)),
        "answer": lambda: assert_same_lines(walk.output, block.text),
        "endpoint": lambda: assert_same_json(block.text, endpoint_settings("s3://my-landing/dms")),
        "mapping": lambda: assert_same_json(block.text, table_mapping(load(walk.folder / "metadata", {}).tables)),
        "dag": lambda: assert_parsed(walk.folder, block.name, block.text),
        "fails": lambda: assert_failing(walk, block),
        "dbt": lambda: list(walk.take(replace(block, what="run"))) if with_dbt else None,
        **dict.fromkeys(("file", "run", "shown"), lambda: list(walk.take(block))),
    }
    if source is not None:
        known["sql"] = lambda: execute(source, block.text)
    if kafka is not None:
        known["messages"] = lambda: send(kafka, block.name, block.text)
    known[block.what]()


def assert_same_lines(found: str, shown: str) -> None:
    assert sorted(found.splitlines()) == sorted(shown.splitlines())


def assert_same_json(shown: str, expected: object) -> None:
    assert json.loads(shown) == expected


def assert_failing(walk: Walk, block: Block) -> None:
    with pytest.raises(AssertionError, match="exit status"):
        list(walk.take(replace(block, what="run")))


def play(page: Path, folder: Path, programs: Sequence[Path] = ()) -> None:
    """All blocks of a page, in their order.

    Args:
        programs: folders of further programs; with them, `dbt` blocks run.
    """
    (folder / "metadata").mkdir()
    (folder / "metadata" / "gddl.yaml").write_text(ROOTS)
    marked = blocks(page.read_text())
    kinds = {block.what for block in marked}
    settings = {"auto.create.topics.enable": "true"}
    with (
        postgres(settings="wal_level = logical") if "sql" in kinds else nullcontext() as source,
        broker(folder / "broker", settings) if "messages" in kinds else nullcontext() as kafka,
    ):
        url = {} if source is None else {"GDDL_SOURCE_CRM": source.url.render_as_string(hide_password=False)}
        url |= {} if kafka is None else {"GDDL_SOURCE_KAFKA": json.dumps({"bootstrap.servers": kafka.address})}
        path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
        environ = {**os.environ, **url, "PATH": path}
        walk = Walk(folder, Path(sys.executable).parent, environ=environ, kept=(*WITHOUT_SPARK, *url))
        for block in marked:
            take(walk, block, source, kafka, with_dbt=bool(programs))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_the_recipe_works(page: Path, tmp_path: Path) -> None:
    kinds = {block.what for block in blocks(page.read_text())}
    assert {"file", "run"} <= kinds
    assert kinds & {"rows", "answer"}
    assert kinds & {"landed", "messages", "sql"}
    play(page, tmp_path)


@pytest.mark.timeout(900)
def test_the_query_of_a_moment_has_the_same_answer_in_spark(tmp_path: Path) -> None:
    page = ROOT / "docs" / "recipes" / "queries.md"
    play(page, tmp_path)
    marked = blocks(page.read_text())
    (at,) = (number for number, block in enumerate(marked) if (block.what, block.name) == ("query", "moment"))
    spark = LocalPort("many").spark.for_table()
    history = spark.read.format("delta").load(str(tmp_path / "lake" / "shop" / "orders__history"))
    history.createOrReplaceTempView("history")
    found = [",".join(map(str, row)) for row in spark.sql(marked[at].text).collect()]
    assert sorted(found) == sorted(marked[at + 1].text.splitlines()[1:])


@pytest.mark.timeout(900)
def test_the_tutorial_works(tmp_path: Path) -> None:
    play(TUTORIAL, tmp_path)


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_tutorial_s_model_is_built_by_dbt(tmp_path: Path) -> None:
    """With a dbt in an environment of its own, since its pins and Airflow's contradict each other."""
    home = Path(os.environ.get("GDDL_TEST_VENVS", tmp_path)) / "dbt"
    if not (home / "bin" / "dbt").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", *DBT], check=True)
    (tmp_path / "walk").mkdir()
    play(TUTORIAL, tmp_path / "walk", [home / "bin"])
    with duckdb.connect(tmp_path / "walk" / "revenue" / "revenue.duckdb") as built:
        found = built.execute(
            "SELECT country, orders, CAST(revenue AS VARCHAR) FROM revenue ORDER BY country"
        ).fetchall()
    # Odd orders are Grace's, even ones Ada's; order 10 had become 5000, and 11 was deleted.
    assert found == [("FR", 500, "255490.00"), ("US", 499, "249989.00")]
