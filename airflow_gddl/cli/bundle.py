"""`gddl bundle`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.bundle.archives import EPOCH
from airflow_gddl.bundle.environment import Target, here
from airflow_gddl.bundle.platforms import Bundle, Extra, Platform, Runner
from airflow_gddl.cli import context
from airflow_gddl.contract.errors import MetadataError

_EMR_PYTHON = "/usr/bin/python3.11"


class Arch(StrEnum):
    X86 = "x86_64"
    ARM = "aarch64"


def bundle(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    platform: Annotated[
        Platform | None, typer.Option("--for", help="Target platform; without it, only the wheel is built.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the files.")] = Path("dist"),
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="The cluster nodes' Python, with its version.")
    ] = None,
    arch: Annotated[Arch, typer.Option("--arch", help="Processor architecture of the cluster nodes.")] = Arch.X86,
    no_environment: Annotated[
        bool, typer.Option("--no-environment", metavar="", help="Neither fetch nor pack the libraries.")
    ] = False,
    runner: Annotated[Runner | None, typer.Option("--runner", help="With --for mwaa: where its jobs run.")] = None,
    extra: Annotated[
        list[Extra] | None,
        typer.Option("--extra", help="With --for mwaa: an extra that Airflow needs, too; may be given several times."),
    ] = None,
    airflow: Annotated[str, typer.Option("--airflow", metavar="VERSION", help="Airflow's version on MWAA.")] = "3.0.6",
    airflow_python: Annotated[
        str, typer.Option("--airflow-python", metavar="VERSION", help="Python's version on MWAA.")
    ] = "3.12",
) -> None:
    """Build the wheel and the files that a platform needs; reproducible."""
    cli = context.of(ctx)
    if runner is not None and platform is not Platform.MWAA:
        raise MetadataError("OPTION_INVALID", f"--runner {runner} without --for mwaa", remedy=f"write --for {runner}")
    if extra and platform is not Platform.MWAA:
        remedy = "leave --extra out, or write --for mwaa"
        raise MetadataError("OPTION_INVALID", f"--extra {extra[0]} without --for mwaa", remedy=remedy)
    on_emr = platform is Platform.EMR_SERVERLESS or runner is Runner.EMR_SERVERLESS
    nodes = python or (_EMR_PYTHON if on_emr else here())
    made = Bundle(
        out=out,
        target=Target(python=nodes, arch=arch) if not no_environment else None,
        airflow=airflow,
        airflow_python=airflow_python,
        runner=runner,
        extras=tuple(extra or ()),
        epoch=_epoch(cli.environ.get("SOURCE_DATE_EPOCH", "")),
    )
    for path in made.write(platform):
        typer.echo(path)


def _epoch(text: str) -> int:
    if text and not text.isdigit():
        raise MetadataError("OPTION_INVALID", f"SOURCE_DATE_EPOCH is {text!r}", remedy="write seconds since 1970")
    return int(text or EPOCH)
