"""`gddl deploy` and `gddl bundle`: files for platforms, with the jobs that these keep."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.contract.errors import MetadataError, invalid_option
from airflow_gddl.runners.descriptor import RUNNERS, renderer_of, settings_of
from airflow_gddl.tools.bundle import EPOCH, MWAA, Bundle, Extra, JobFiles, Target, here

_MWAA = "mwaa"
_RUNNERS = {"spark": "spark_submit"}
"""Words of `--for` that differ from the runner's name."""


class Arch(StrEnum):
    X86 = "x86_64"
    ARM = "aarch64"


_Platform = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="PLATFORM",
        help="Target platform: mwaa, databricks, emr_serverless, glue, spark, or an installed runner; without it,"
        " only the wheel is built.",
    ),
]
_Runner = Annotated[
    str | None,
    typer.Option(
        metavar="RUNNER",
        help="With --for mwaa: where its jobs run: databricks, emr_serverless, glue, or an installed runner.",
    ),
]
_Extras = Annotated[
    list[Extra] | None,
    typer.Option(
        metavar="NAME",
        help="With --for mwaa: an extra (events, openlineage, s3, source) that Airflow needs; repeat for more.",
    ),
]


_Offline = Annotated[
    bool, typer.Option("--offline", help="With --for mwaa: pack all packages, for MWAA without internet access.")
]
_Constraints = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="With --offline: Airflow's constraints, a path or URL."),
]


def bundle(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    platform: _Platform = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.")] = Path("dist"),
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The cluster nodes' Python, with its version.")
    ] = None,
    arch: Annotated[Arch, typer.Option(help="Processor architecture of the cluster nodes.")] = Arch.X86,
    no_environment: Annotated[
        bool, typer.Option("--no-environment", help="Neither fetch nor pack the libraries.")
    ] = False,
    runner: _Runner = None,
    extra: _Extras = None,
    airflow: Annotated[str, typer.Option(metavar="VERSION", help="Airflow's version on MWAA.")] = "3.0.6",
    airflow_python: Annotated[str, typer.Option(metavar="VERSION", help="Python's version on MWAA.")] = "3.12",
    offline: _Offline = False,
    constraints: _Constraints = None,
) -> None:
    """Build the wheel and the files that a platform needs; reproducible."""
    cli = context.of(ctx)
    _check_mwaa(platform, runner, extra)
    _check_offline(platform, offline=offline, constraints=constraints)
    of_runner = None if runner is None else _job_files("--runner", runner)
    files = MWAA if platform == _MWAA else None if platform is None else _job_files("--for", platform)
    nodes = python or next((one.python for one in (of_runner, files) if one and one.python), "") or here()
    # On MWAA only if asked for: the platform of the jobs is given its own by `--for` that platform.
    has_environment = not no_environment and (platform != _MWAA or python is not None)
    made = Bundle(
        out=out,
        target=Target(python=nodes, arch=arch) if has_environment else None,
        airflow=airflow,
        airflow_python=airflow_python,
        runner=of_runner,
        extras=tuple(extra or ()),
        offline=offline,
        constraints=constraints or "",
        epoch=_epoch(cli.environ.get("SOURCE_DATE_EPOCH", "")),
    )
    for path in made.write(files):
        typer.echo(path)
        if offline and path.name == "plugins.zip":
            cli.screen.warn(
                f"{path}: {path.stat().st_size / 1e6:,.1f} MB; compare with the quota of your environment", ""
            )


def _check_mwaa(platform: str | None, runner: str | None, extra: list[Extra] | None) -> None:
    if runner is not None and platform != _MWAA:
        raise invalid_option(f"--runner {runner} without --for mwaa", f"write --for {runner}")
    if extra and platform != _MWAA:
        remedy = "leave --extra out, or write --for mwaa"
        raise invalid_option(f"--extra {extra[0]} without --for mwaa", remedy)
    if runner is not None and runner in RUNNERS.names() and not RUNNERS.get(runner).remote:
        remedy = "name a runner whose jobs run on a platform"
        raise invalid_option(f"--runner {runner}: its jobs would run on MWAA's workers", remedy)


def _check_offline(platform: str | None, *, offline: bool, constraints: str | None) -> None:
    if offline and platform != _MWAA:
        raise invalid_option("--offline without --for mwaa", "leave it out: only MWAA installs")
    if constraints is not None and not offline:
        raise invalid_option("--constraints without --offline", "add --offline")


def _job_files(option: str, name: str) -> JobFiles:
    """
    Raises:
        MetadataError: `OPTION_INVALID`: no such runner, or one that needs no files.
        FatalError: `RUNNER_BROKEN`.
    """
    try:
        reference = RUNNERS.get(_RUNNERS.get(name, name)).bundle
    except MetadataError as error:
        raise invalid_option(f"{option}: {error.what}", error.remedy) from error
    if not reference:
        remedy = "leave the option out: this runner needs the wheel at most"
        raise invalid_option(f"{option} {name}: there are no files for it", remedy)
    files: JobFiles = RUNNERS.load(reference)
    return files


def _epoch(text: str) -> int:
    if text and not text.isdigit():
        raise invalid_option(f"SOURCE_DATE_EPOCH is {text!r}", "write seconds since 1970")
    return int(text or EPOCH)


def deploy(
    ctx: typer.Context,
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="databricks, glue, or an installed runner.")],
    *,
    metadata: options.Metadata = "metadata",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the file.")] = Path("dist"),
) -> None:
    """Write a platform's saved jobs, one for each tier with tables, in its own form, and name what creates them."""
    cli = context.of(ctx)
    loaded = metadata_folder.read(cli, metadata)
    render = renderer_of(runner)
    sizes = {spec.size for spec in loaded.tables if spec.enabled}
    tiers = {size: tier for size, tier in sorted(loaded.tiers.items()) if size in sizes}
    section = RUNNERS.get(runner).settings
    settings = section and settings_of(runner, section, loaded.runners.get(runner, {}))
    out.mkdir(parents=True, exist_ok=True)
    cli.screen.say(render(out, tiers, settings, loaded.roots))
