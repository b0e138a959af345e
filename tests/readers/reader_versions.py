"""Which versions of a reader read the tables: each is installed in an environment of its own and asked filters.

    python -m tests.readers.reader_versions "deltalake==1.4.0" "polars==1.20.0 deltalake==0.25.5"

Each argument is one environment: requirements, of which the first names the reader (deltalake, polars, duckdb or
pyspark). DuckDB reads by its extension where `duckdb-ext-delta` is installed, else what deltalake hands it. An answer
is `reads`, `refuses` with the reader's error, or `WRONG` with the first filter that found other rows; the exit status
is 1 where one is wrong. `--make FOLDER` only makes the tables, `--ask READER FOLDER` asks the reader that is installed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

TABLES = ("plain", "local_times", "vectors")
"""Without any table feature; with times without a zone (`timestampNtz`); with deletion vectors."""
KEPT, DELETED, ADDED, CHANGED = 40, (3, 5), (100, 101), (1, 7, 20)
CHANGES = len(CHANGED) + len(DELETED) + len(ADDED)
"""Files after the full load, each a batch of its own."""
_START = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
Filter = tuple[str, str, Any]
"""Column, the name of its type, and the value that it equals, as JSON has it; a null asks for rows without a value."""


def value_of(kind: str, text: Any) -> Any:
    """The value of a filter."""
    of: Mapping[str, Callable[[Any], Any]] = {
        "decimal": Decimal, "date": date.fromisoformat, "time": datetime.fromisoformat
    }  # fmt: skip
    return of[kind](text) if text is not None and kind in of else text


def rows() -> dict[int, dict[str, Any]]:
    """What each table holds in the end, by key."""
    ids = sorted({*range(KEPT), *ADDED} - {*DELETED})
    return {n: row(n, n + 1000 if n in CHANGED else n) for n in ids}


def row(key: int, number: int) -> dict[str, Any]:
    return {
        "id": key, "name": f"name {number % 9}", "amount": str(Decimal(number) / 4 + Decimal("0.00")),
        "born": (date(2024, 1, 1) + timedelta(days=number % 7)).isoformat(),
        "at": (_START + timedelta(hours=number % 5)).isoformat(),
        "ratio": number % 6 / 2, "flag": number % 2 == 0, "note": None if number % 4 == 0 else f"note {number % 3}",
    }  # fmt: skip


KINDS = {"id": "number", "name": "text", "amount": "decimal", "born": "date", "at": "time", "ratio": "number",
         "flag": "flag", "note": "text"}  # fmt: skip


def filters() -> list[tuple[Filter, int]]:
    """Each value of each column with the rows that have it, and values that no row has any more."""
    held = rows().values()
    found = []
    for name, kind in KINDS.items():
        values = dict.fromkeys([*(one[name] for one in held), *([3, 5, 7] if name == "id" else [])])
        found += [((name, kind, value), sum(one[name] == value for one in held)) for value in values]
    return found


# --- the tables


ALONE = {"GDDL_SETTLE": "0s", "GDDL_WITHOUT_SPARK": "1"}


def make(folder: Path) -> None:
    """Land files for each table and load them, with the `gddl` of this environment."""
    metadata = folder / "metadata"
    (metadata / "tables").mkdir(parents=True)
    tier = "{{max_files_per_batch: 1, deletion_vectors: {}}}"
    tiers = f"small: {tier.format('false')}, medium: {tier.format('true')}"
    (metadata / "gddl.yaml").write_text(f"landing: ../landing\nlake: ../lake\ntiers: {{{tiers}}}\n")
    listed = ", ".join(
        f"{{table: s.{name}, keys: [id], sequence_by: [seq], size: {'medium' if name == 'vectors' else 'small'}}}"
        for name in TABLES
    )
    (metadata / "tables/s.yaml").write_text(f"tables: [{listed}]\n")
    first = [row(n, n) for n in range(KEPT)]
    run = [sys.executable, "-P", "-m", "airflow_gddl.cli.main", "run", "--metadata", str(metadata)]
    for number, (columns, part) in enumerate([({}, first), *_changes()]):
        for name in TABLES:
            _land(folder / "landing/s" / name, number, part, columns, zone=name != "local_times")
        if number in (0, CHANGES):
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **ALONE})


def _changes() -> Iterator[tuple[dict[str, list[Any]], list[dict[str, Any]]]]:
    each = [
        *(("U", n, n + 1000) for n in CHANGED), *(("D", n, n) for n in DELETED), *(("I", n, n) for n in ADDED)
    ]  # fmt: skip
    for number, (op, key, value) in enumerate(each, 1):
        yield {"Op": [op], "seq": [number]}, [row(key, value)]


def _land(folder: Path, number: int, part: Sequence[dict[str, Any]], columns: dict[str, Any], *, zone: bool) -> None:
    import pyarrow as pa  # noqa: PLC0415 - not where a reader is asked
    import pyarrow.parquet as pq  # noqa: PLC0415 - in the environment of this reader alone

    types = {"id": pa.int32(), "amount": pa.decimal128(12, 2), "born": pa.date32(), "ratio": pa.float64()}
    types["at"] = pa.timestamp("us", "UTC" if zone else None)
    for name, kind in KINDS.items():
        values = [value_of(kind, one[name]) for one in part]
        if name == "at" and not zone:
            values = [value.replace(tzinfo=None) for value in values]
        columns = {**columns, name: pa.array(values, types.get(name))}
    folder.mkdir(parents=True, exist_ok=True)
    file = "LOAD00000001.parquet" if number == 0 else f"20240101-{number:09d}.parquet"
    pq.write_table(pa.table(columns), folder / file)


# --- the readers, in their own environment


def ask_deltalake(path: str, asked: Sequence[Filter]) -> Iterator[int]:
    import deltalake  # noqa: PLC0415 - in the environment of this reader alone

    table = deltalake.DeltaTable(path)
    try:
        dataset = table.to_pyarrow_dataset()
    except Exception:
        if not hasattr(deltalake, "QueryBuilder"):
            raise
        for one in asked:
            query = f"SELECT count(*) AS n FROM t WHERE {sql(one)}"
            found = deltalake.QueryBuilder().register("t", table).execute(query)
            rows_found = found.read_all() if hasattr(found, "read_all") else found.fetchall()[0]
            yield int(rows_found["n"][0].as_py())
        return
    import pyarrow.dataset as ds  # noqa: PLC0415 - in the environment of this reader alone

    for name, kind, value in asked:
        column = ds.field(name)
        found = dataset.to_table(filter=column.is_null() if value is None else column == value_of(kind, value))
        yield found.num_rows


def ask_polars(path: str, asked: Sequence[Filter]) -> Iterator[int]:
    import polars as pl  # noqa: PLC0415 - in the environment of this reader alone

    frame = pl.scan_delta(path)
    for name, kind, value in asked:
        column = pl.col(name)
        found = frame.filter(column.is_null() if value is None else column == pl.lit(value_of(kind, value)))
        yield found.select("id").collect().height


def ask_duckdb(path: str, asked: Sequence[Filter]) -> Iterator[int]:
    import duckdb  # noqa: PLC0415 - in the environment of this reader alone

    packaged = importlib.util.find_spec("duckdb_ext")
    table = f"delta_scan('{path}')"
    if packaged is not None and packaged.submodule_search_locations:
        folder = Path(next(iter(packaged.submodule_search_locations))) / "extensions"
        connection = duckdb.connect(config={"extension_directory": str(folder)})
        connection.execute("LOAD delta")
    else:
        import deltalake  # noqa: PLC0415 - in the environment of this reader alone

        connection, table = duckdb.connect(), "t"
        connection.register(table, deltalake.DeltaTable(path).to_pyarrow_dataset())
    connection.execute("SET TimeZone = 'UTC'")
    for one in asked:
        query = f"SELECT count(*) FROM {table} WHERE {sql(one)}"
        (count,) = connection.execute(query).fetchone() or (-1,)
        yield count


CENTRAL = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""


def ask_pyspark(path: str, asked: Sequence[Filter]) -> Iterator[int]:
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - in the environment of this reader alone
    from pyspark.sql import SparkSession  # noqa: PLC0415 - in the environment of this reader alone

    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension", "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }  # fmt: skip
    central = Path(tempfile.mkdtemp()) / "ivy.xml"  # Spark's own settings ask a second repository, too
    central.write_text(CENTRAL)
    settings["spark.jars.ivySettings"] = str(central)
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.format("delta").load(path)
    for at in range(0, len(asked), 23):  # a query of its own takes a second
        counts = [frame.where(sql(one, "`")).selectExpr("count(*) AS n") for one in asked[at : at + 23]]
        yield from (row["n"] for row in functools.reduce(lambda left, right: left.union(right), counts).collect())


def sql(one: Filter, quote: str = '"') -> str:
    """The filter as DataFusion, DuckDB and, with its quote, Spark read it."""
    column, kind, value = one
    name = f"{quote}{column}{quote}"
    types = {"decimal": "DECIMAL(12,2)", "date": "DATE", "time": "TIMESTAMP"}
    if value is None:
        return f"{name} IS NULL"
    if kind in types:
        return f"{name} = CAST('{value}' AS {types[kind]})"
    return f"{name} = '{value}'" if kind == "text" else f"{name} = {value}"


ASKED = {"deltalake": ask_deltalake, "polars": ask_polars, "duckdb": ask_duckdb, "pyspark": ask_pyspark}


def answer(reader: str, folder: Path, name: str) -> str:
    """`reads`, `refuses: …` or `WRONG: …`."""
    known = filters()
    if name == "local_times":
        known = [(one, count) for one, count in known if one[0] != "at"] + _local()
    try:
        counts = list(ASKED[reader](str(folder / "lake/s" / name), [one for one, _ in known]))
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        return f"refuses: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    wrong = [f"{one}: {n}, not {count}" for (one, count), n in zip(known, counts, strict=True) if n != count]
    return f"WRONG: {wrong[0]}" if wrong else f"reads ({len(counts)} filters)"


def _local() -> list[tuple[Filter, int]]:
    times = [one for one in filters() if one[0][0] == "at"]
    return [((name, kind, value.replace("+00:00", "")), count) for (name, kind, value), count in times]


def ask(reader: str, folder: Path) -> dict[str, str]:
    return {name: answer(reader, folder, name) for name in TABLES}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environments", nargs="*", metavar="REQUIREMENTS")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--tables", metavar="FOLDER", help="made before")
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument("--ask", nargs=2, metavar=("READER", "FOLDER"))
    given = parser.parse_args(arguments)
    if given.make:
        make(given.make)
    elif given.ask:
        print(json.dumps(ask(given.ask[0], Path(given.ask[1]))))
    else:
        with tempfile.TemporaryDirectory() as made:
            if given.tables is None:
                make(Path(made))
            return _each(given.environments, given.python, given.tables or made)
    return 0


def _each(environments: Sequence[str], python: str, folder: str) -> int:
    status = 0
    for requirements in environments:
        with tempfile.TemporaryDirectory() as venv:
            found = _in_environment(requirements.split(), Path(venv), python, folder)
        print(requirements)
        for name, said in found.items():
            print(f"  {name:12} {said}", flush=True)
        status |= any(said.startswith("WRONG") for said in found.values())
    return status


def _in_environment(requirements: list[str], venv: Path, python: str, folder: str) -> dict[str, str]:
    reader = requirements[0].partition("==")[0]
    command = [str(Path(__file__).resolve()), "--ask", reader, folder]
    output, failure = in_environment(requirements, venv, python, command)
    return dict.fromkeys(TABLES, failure) if failure else dict(json.loads(output))


def in_environment(requirements: list[str], venv: Path, python: str, command: Sequence[str]) -> tuple[str, str]:
    """Run a script in a new environment with these requirements.

    Returns:
        its last line, and the failure: of the installation, or of the script. Empty: it ran.
    """
    subprocess.run([python, "-m", "venv", str(venv)], check=True)
    inside = str(venv / "bin/python")
    install = [inside, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *requirements]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        return "", f"not installed: {done.stderr.strip()[-200:]}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([inside, *command], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return "", f"refuses: {done.stderr.strip()[-200:]}"
    return done.stdout.splitlines()[-1], ""


if __name__ == "__main__":
    raise SystemExit(main())
