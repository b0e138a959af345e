"""`gddl init` and `gddl validate`: files and metadata of a project.

`gddl demo` writes the same files beside its metadata.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import airflow_home, context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import BAD_METADATA, CliContext
from airflow_gddl.cli.screen import Screen, counted
from airflow_gddl.contract.codes import FOLDER_TAKEN
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.tools.bundle import DAG_FILES

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem


SETTINGS = """\
# yaml-language-server: $schema=schema/gddl.json
# Folders are absolute, relative to this folder, or s3://bucket/prefix.
# GDDL_LANDING and GDDL_LAKE override them, so that one project serves development and production.
landing: ../landing
lake: ../lake
"""
TABLES = """\
# yaml-language-server: $schema=../schema/tables.json
# A row is a table. To add one, remove the # before its line and write its name and keys as the source has them.
# Its files are expected in <landing>/shop/orders/.
source: shop
tables:
#  - {table: shop.orders, keys: id}
#  - {table: shop.order_lines, keys: [order_id, line_no], freshness: 2h, history: true}
"""
IGNORED = """\
landing/
lake/
metadata/
"""
README = """\
# Tables in Delta Lake

Made by `gddl init`. A row in `metadata/tables/` brings a database table from the files of a change-data-capture
service into Delta Lake.

1. Set `landing` (where AWS DMS or Debezium writes files) and `lake` (where tables are kept) in `metadata/gddl.yaml`.
2. Run `gddl check`. It tries folders, permissions, connections and versions, and says what is wrong.
3. Add rows. `gddl onboard shop` proposes them for all tables that have files in the landing folder; or write the first
   row by hand in `metadata/tables/shop.yaml`.
4. Run `gddl validate`, then `gddl run`, then `gddl status`.
5. Put this folder into version control, without `landing` and `lake`. For Airflow, put `dags/` and `metadata/` side by
   side into its DAGs folder or bundle. Airflow pauses new DAGs: unpause each, or set `[gddl] paused_upon_creation` to
   False.

| path | contents |
|---|---|
| `metadata/gddl.yaml` | settings for all tables |
| `metadata/tables/` | a row for each table |
| `metadata/schema/` | JSON Schemas, for completion in editors |
| `dags/` | Airflow DAGs, made of the rows; no need to change them |
| `.airflowignore` | folders in which Airflow looks for no DAGs |
"""
PROJECT = {
    "metadata/gddl.yaml": SETTINGS,
    "metadata/tables/shop.yaml": TABLES,
    **{f"dags/{name}": text for name, text in DAG_FILES.items()},
    ".airflowignore": IGNORED,
    "README.md": README,
}


IN_AIRFLOW = {
    # Neither lake nor landing below the folder in which Airflow looks for DAGs.
    "metadata/gddl.yaml": SETTINGS.replace("../", "../../"),
    "metadata/tables/shop.yaml": TABLES,
    **DAG_FILES,
    ".airflowignore": "metadata/\n",
}
"""Files of `gddl init --airflow`, in a DAGs folder."""


_MARK = ".gddl-demo"
_SETTINGS = """\
# Relative roots are relative to this folder. Each value can be set from outside, e.g. GDDL_LAKE.
landing: ../landing
lake: ../lake
runner: local

defaults:
  freshness: 2h

tiers:
  large: {cores: 2, memory: 4g}
"""
_TABLES = """\
source: nyc
tables:
  - {table: nyc.airlines}
  - {table: nyc.airports}
  - {table: nyc.planes, history: true}
  - {table: nyc.weather}
  - {table: nyc.flights, size: large, priority: high, depends_on: [nyc.airlines, nyc.airports, nyc.planes]}
"""
_KEYS = """\
keys:
  nyc.airlines: [carrier]
  nyc.airports: [faa]
  nyc.flights: [id]
  nyc.planes: [tailnum]
  nyc.weather: [origin, time_hour]
"""
DEMO_FILES = {
    "metadata/gddl.yaml": _SETTINGS,
    "metadata/tables/nyc.yaml": _TABLES,
    "metadata/keys/nyc.yaml": _KEYS,
    **{f"dags/{name}": DAG_FILES[name] for name in ("gddl.py", "gddl_metadata_problems.py")},
}


@dataclass(frozen=True)
class DemoFolder:
    """Paths of the demo."""

    root: Path

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def dags(self) -> Path:
        return self.root / "dags"

    @property
    def airflow(self) -> Path:
        return self.root / "airflow"

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    def begin(self) -> None:
        """Recreate the folder: files of an earlier demo are removed, other files are refused.

        Raises:
            MetadataError: `FOLDER_TAKEN`: the folder contains other files.
        """
        mark = self.root / _MARK
        if self.root.exists() and not mark.exists() and any(self.root.iterdir()):
            remedy = "choose another folder with --dir, or empty this one"
            raise MetadataError(FOLDER_TAKEN, "the folder contains other files", where=str(self.root), remedy=remedy)
        for old in (self.metadata, self.dags, self.airflow, self.landing, self.lake):
            shutil.rmtree(old, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def write_project(self) -> None:
        """Metadata and DAG files, the same as this project's own."""
        for name, text in DEMO_FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


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
    airflow: Annotated[
        Path | None,
        typer.Option(metavar="DAGS_FOLDER", help="Instead: into the DAGs folder of the Airflow here."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --airflow: environment of jobs. Default: gddl-jobs beside the DAGs."),
    ] = None,
) -> None:
    """Create an empty project: metadata with a sample row, DAGs and a README. No file is overwritten.

    With --airflow, DAG files and metadata go into a DAGs folder, Spark gets an environment of its own, and `[gddl]
    job_command` of Airflow's configuration names it.
    """
    cli = context.of(ctx)
    if airflow is not None:
        _into_airflow(cli, airflow, jobs or airflow.absolute().parent / "gddl-jobs")
        return
    _write(cli.screen, folder, PROJECT)
    steps = [f"cd {shlex.quote(str(folder))}"] if folder != Path() else []
    _next_steps(cli.screen, *steps, *_STEPS)


def _into_airflow(cli: CliContext, dags: Path, jobs: Path) -> None:
    from airflow_gddl.cli import job_environment  # noqa: PLC0415 - `gddl validate` is in this module, too

    _write(cli.screen, dags, IN_AIRFLOW)
    command = job_environment.create(cli.screen, jobs.absolute())
    setting = json.dumps(list(command))
    if airflow_home.set_job_command(cli.environ, command):
        cli.screen.say(f"wrote [gddl] job_command to {airflow_home.configuration(cli.environ)}")
        steps = []
    else:
        steps = [f"export {airflow_home.VARIABLE}={shlex.quote(setting)}    # for all of Airflow's processes"]
    place = shlex.quote(str(dags / "metadata"))
    _next_steps(
        cli.screen,
        *steps,
        f"edit {place}/gddl.yaml    # where files land, where tables are kept",
        f"gddl check --metadata {place}    # runs the command of jobs, too",
        f"edit {place}/tables/shop.yaml, or gddl onboard SOURCE --write --metadata {place}",
        *_unpausing(cli),
    )


def _unpausing(cli: CliContext) -> list[str]:
    """The command that unpauses every DAG, unless variables or the configuration say that new ones are not paused."""
    own = airflow_home.written(cli.environ, "gddl", "paused_upon_creation").strip()
    said = own or airflow_home.written(cli.environ, "core", "dags_are_paused_at_creation").strip()
    if said.lower() in ("false", "f", "0"):
        return []
    cli.screen.say("\nAirflow pauses new DAGs, and a paused DAG loads nothing: unpause each new one, or set")
    cli.screen.say("[gddl] paused_upon_creation = False in Airflow's configuration.")
    return ["airflow dags unpause --treat-dag-id-as-regex -y '^gddl[._]'    # once Airflow shows the DAGs of your rows"]


def _write(screen: Screen, folder: Path, files: Mapping[str, str]) -> None:
    for name, is_new in write_project(folder, {**files, **_schemas()}).items():
        screen.say(f"{'wrote' if is_new else 'kept '} {folder / name}", "" if is_new else "dim")


def _next_steps(screen: Screen, *steps: str) -> None:
    screen.say("\nNext steps:")
    for step in steps:
        screen.dictate(f"  {step}")


def write_project(folder: Path, files: Mapping[str, str]) -> dict[str, bool]:
    """Write these files; return by name whether it was written (false: it exists and is kept).

    Raises:
        MetadataError: `FOLDER_TAKEN`: nothing was written.
    """
    there = [name for name in files if name not in _SHARED and (folder / name).exists()]
    there += ["metadata"] if (folder / "metadata").exists() and any((folder / "metadata").iterdir()) else []
    if there:
        remedy = "name another folder, e.g. `gddl init my-project`, or continue with this one: `gddl check`"
        raise MetadataError(FOLDER_TAKEN, f"{folder / there[0]} already exists; nothing was written", remedy=remedy)
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


_FIRST_TABLE = "add a metadata row to metadata/tables/shop.yaml, or let `gddl onboard SOURCE` write the rows"


class Format(StrEnum):
    """Output format of problems."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def validate(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    form: Annotated[
        Format, typer.Option("--format", help="A line a problem: text, JSON, or annotations of GitHub Actions.")
    ] = Format.TEXT,
) -> None:
    """Check every metadata row; exit status 2 when one is invalid."""
    from airflow_gddl.metadata.advice import advise  # noqa: PLC0415 - see `metadata.read`
    from airflow_gddl.metadata.folder import open_folder  # noqa: PLC0415 - see `metadata.read`
    from airflow_gddl.metadata.loading import unread  # noqa: PLC0415 - as above
    from airflow_gddl.metadata.settings import SettingsError  # noqa: PLC0415 - as above

    cli = context.of(ctx)
    form = Format.JSON if json else form
    try:
        loaded = metadata_folder.read(cli, metadata, keep_rows=True)
    except SettingsError as error:
        _answer(cli.screen, error.problems, metadata, form)
        raise typer.Exit(BAD_METADATA) from error
    _answer(cli.screen, loaded.problems, metadata, form)
    unread_files = unread(open_folder(metadata, cli.environ))
    for warning in (*loaded.unused_keys, *unread_files, *advise(loaded, cli.environ)):
        _warn(cli.screen, warning, metadata, form)
    if loaded.problems:
        raise typer.Exit(BAD_METADATA)
    if form is Format.JSON:
        return
    if loaded.tables:
        cli.screen.say(f"{counted(len(loaded.tables), 'table')}, no problems", "green")
    else:
        cli.screen.say(f"no table yet: {_FIRST_TABLE}", "yellow")


def _answer(screen: Screen, problems: tuple[Problem, ...], folder: str, form: Format) -> None:
    if form is Format.TEXT:
        metadata_folder.show(screen, problems, folder, error=False)
    for problem in problems:
        if form is Format.JSON:
            screen.record(problem)
        elif form is Format.GITHUB:
            screen.dictate(metadata_folder.github_annotation(problem, folder))


def _warn(screen: Screen, warning: Problem, folder: str, form: Format) -> None:
    """On standard error, unless for programs."""
    if form is Format.JSON:
        screen.records([{**asdict(warning), "level": "warning"}])
    elif form is Format.GITHUB:
        screen.dictate(metadata_folder.github_annotation(warning, folder, "warning"))
    else:
        screen.warn(warning.compiler_line(folder), "yellow")
