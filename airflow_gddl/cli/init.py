"""`gddl init` and `gddl pools`: the files of a project, and the Airflow pools that its metadata names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.cli.project_files import PROJECT
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.topology import pipelines
from airflow_gddl.metadata.topology import pools as pools_of


def pools(ctx: typer.Context, *, metadata: options.Metadata = "metadata") -> None:
    """Print the Airflow pools that the tiers need, as JSON for `airflow pools import FILE`."""
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    needed = pools_of(pipelines(catalog.tables, catalog.tiers, catalog.dag_prefix))
    cli.screen.record(needed)


_SHARED = (".airflowignore", "README.md")
"""Files that may exist before a project is created."""
_STEPS = (
    "edit metadata/gddl.yaml    # where files land, where tables are kept",
    "gddl check                 # folders, permissions, connections, versions",
    "edit metadata/tables/shop.yaml, or gddl onboard SOURCE --write",
    "gddl validate && gddl run && gddl status",
)


def init(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Created if missing. Default: the current folder.")
    ] = Path(),
) -> None:
    """Create an empty project: metadata with a sample row, DAGs and a README. No file is overwritten."""
    screen = context.of(ctx).screen
    for name, is_new in write_project(folder, {**PROJECT, **_schemas()}).items():
        screen.say(f"{'wrote' if is_new else 'kept '} {folder / name}", "" if is_new else "dim")
    screen.say("\nNext steps:")
    for step in (*([f"cd {shlex.quote(str(folder))}"] if folder != Path() else []), *_STEPS):
        screen.dictate(f"  {step}")


def write_project(folder: Path, files: Mapping[str, str]) -> dict[str, bool]:
    """Write these files; return by name whether it was written (false: it exists and is kept).

    Raises:
        MetadataError: `PROJECT_EXISTS`: nothing was written.
    """
    there = [name for name in files if name not in _SHARED and (folder / name).exists()]
    there += ["metadata"] if (folder / "metadata").exists() and any((folder / "metadata").iterdir()) else []
    if there:
        remedy = "name another folder, e.g. gddl init my-project, or continue with this one: gddl check"
        raise MetadataError("PROJECT_EXISTS", f"{folder / there[0]} already exists; nothing was written", remedy=remedy)
    return {name: _write_new(folder / name, text) for name, text in files.items()}


def _write_new(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _schemas() -> dict[str, str]:
    from airflow_gddl.metadata.json_schema import rendered, schemas  # noqa: PLC0415 - see `metadata.read`

    return {f"metadata/schema/{name}": rendered(schema) for name, schema in schemas().items()}
