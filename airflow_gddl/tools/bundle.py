"""Reproducible archives of the code and of a Python environment; files for MWAA and the platforms of runners.

Names are sorted; all files have the same time and mode. An environment is libraries beside a link to the nodes' Python.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import airflow_gddl
from airflow_gddl.contract.codes import COMMAND_MISSING, ENVIRONMENT_FAILED, OPTION_INVALID
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.python_command import module_command

EPOCH = 315_532_800
"""1980-01-01, the earliest time that a zip can hold."""
_MODE = 0o644
_EXECUTABLE = 0o755


def write_zip(path: Path, files: Mapping[str, bytes], epoch: int = EPOCH) -> Path:
    """Write files by name, in the order given; each gets the time `epoch` (seconds, UTC)."""
    moment = datetime.fromtimestamp(max(epoch, EPOCH), UTC)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.external_attr = (0o100000 | _MODE) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def write_tar(path: Path, folder: Path, epoch: int = EPOCH) -> Path:
    """Write a folder's files and links, by name, as a gzipped tar without owner."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for each in sorted(folder.rglob("*")):
            if each.is_symlink() or each.is_file():
                _add(archive, each.relative_to(folder).as_posix(), each, epoch)
    return path


def _add(archive: tarfile.TarFile, name: str, path: Path, epoch: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = epoch
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(entry)
        return
    data = path.read_bytes()
    entry.size = len(data)
    entry.mode = _EXECUTABLE if path.stat().st_mode & 0o100 else _MODE
    archive.addfile(entry, io.BytesIO(data))


SHARED = ("contract", "stores")
"""Packages of `airflow_gddl` that jobs import."""


def code_files() -> dict[str, Path]:
    """Name in the archive to file, of all modules that a job on a cluster imports.

    Raises:
        FatalError: `COMMAND_MISSING`.
    """
    ours = Path(airflow_gddl.__file__).parent
    files = {"airflow_gddl/__init__.py": ours / "__init__.py"}
    # Found, not imported: this side never imports the job.
    job = importlib.util.find_spec("spark_jobs")
    if job is None or job.origin is None or not ours.joinpath("__init__.py").is_file():
        remedy = "install the whole wheel of airflow-gddl, unpacked, where jobs are started"
        raise FatalError(COMMAND_MISSING, "the job's code lies in no folder of this Python", remedy=remedy)
    shared = {f"airflow_gddl/{name}": ours / name for name in SHARED}
    for name, folder in {**shared, "spark_jobs": Path(job.origin).parent}.items():
        files |= {f"{name}/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.py"))}
    return files


def write_code(path: Path) -> Path:
    """Write the archive; equal code gives equal bytes."""
    files = code_files()
    return write_zip(path, {name: files[name].read_bytes() for name in sorted(files)})


DAG_FILES: Mapping[str, str] = {
    "gddl.py": '''\
"""Every table of the metadata folder as an Airflow DAG."""

from airflow_gddl.dags.factory import build_dags

globals().update(build_dags(beside=__file__))
''',
    "gddl_metadata_problems.py": '''\
"""Invalid metadata rows as one import error in Airflow's UI, in a separate file, so that no DAG is affected."""

from airflow_gddl.dags.factory import raise_problems

raise_problems(beside=__file__)  # raises when there is something to report; it defines no DAG
''',
    "gddl_upkeep.py": '''\
"""Maintenance and verification of all tables, a task for each tier."""

from airflow_gddl.dags.maintenance import build_upkeep_dags

globals().update(build_upkeep_dags(beside=__file__))
''',
}


NAME = "airflow-gddl"


def build_wheel(folder: Path, epoch: int = EPOCH) -> Path:
    """Let pip make the wheel of the source tree that this code lies in, else fetch that of this version.

    Args:
        epoch: time of every file in the wheel of a tree, seconds UTC.

    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
    """
    source = f"{NAME}=={airflow_gddl.__version__}" if project() is None else str(_TREE)
    _pip(["wheel", "--no-deps", "--wheel-dir", str(folder), source], SOURCE_DATE_EPOCH=str(epoch))
    return next(folder.glob(f"airflow_gddl-{airflow_gddl.__version__}-*.whl"))


_TREE = Path(airflow_gddl.__file__).parents[1]


def project() -> dict[str, Any] | None:
    """The `[project]` table of the code's source tree; null when there is none.

    The metadata of an editable install may be outdated, so the source tree takes precedence.
    """
    tree = _TREE / "pyproject.toml"
    if not tree.is_file():
        return None
    table: dict[str, Any] = tomllib.loads(tree.read_text(encoding="utf-8")).get("project", {})
    return table


_OF_SPARK = ("pyspark", "delta-spark")
"""Packages that the cluster provides."""
_GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17")
_FORM = re.compile(r"([A-Za-z0-9._-]++)(\[[^\]]*\])?([^;]*+)(?:;\s*extra\s*==\s*['\"]([^'\"]+)['\"])?")
_PYTHON = re.compile(r"/\S*/python(3\.\d+)")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target of an environment.

    Attributes:
        python: path of the nodes' Python, e.g. `/usr/bin/python3.11`.
        arch: `x86_64` or `aarch64`.
    """

    python: str
    arch: str = "x86_64"

    @property
    def version(self) -> str:
        """
        Raises:
            MetadataError: `OPTION_INVALID`.
        """
        match = _PYTHON.fullmatch(self.python)
        if match is None:
            remedy = "write it with its version, e.g. /usr/bin/python3.11"
            raise MetadataError(OPTION_INVALID, f"{self.python!r} is not the path of a Python", remedy=remedy)
        return match[1]


def here() -> str:
    """Path of the base Python of the current environment."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def requirements() -> list[str]:
    """Requirements of a task on a cluster beyond Spark itself, from the package's metadata."""
    requirement_lines = []
    for line in _required():
        match = _FORM.fullmatch(line.strip())
        if match and match[4] in (None, "spark") and match[1] not in _OF_SPARK:
            requirement_lines.append(f"{match[1]}{match[2] or ''}{match[3].strip()}")
    return sorted(requirement_lines)


def _required() -> list[str]:
    """See `wheel.project`."""
    written = project()
    if written is None:
        return list(metadata.requires(NAME) or ())
    extra: list[str] = written.get("optional-dependencies", {}).get("spark", [])
    return [*written.get("dependencies", []), *extra]


def write_environment(path: Path, wheel: Path, target: Target, epoch: int = EPOCH) -> Path:
    """Fetch the libraries for the target and pack them with the wheel.

    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
        MetadataError: `OPTION_INVALID`.
    """
    with tempfile.TemporaryDirectory(prefix="gddl-bundle-") as scratch:
        root = Path(scratch, "environment")
        site = root / "lib" / f"python{target.version}" / "site-packages"
        site.mkdir(parents=True)
        _install(site, ["--no-deps", str(wheel)], target)
        _install(site, requirements(), target)
        link_python(root, target)
        return write_tar(path, root, epoch)


def link_python(root: Path, target: Target) -> None:
    """Turn a folder of libraries into an environment of the target's Python."""
    binaries = root / "bin"
    binaries.mkdir()
    (binaries / "python").symlink_to(target.python)
    (binaries / "python3").symlink_to("python")
    home = PurePosixPath(target.python).parent
    (root / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")


def _install(site: Path, what: Sequence[str], target: Target) -> None:
    _pip(["install", "--no-compile", "--target", str(site), "--upgrade", *_for(target), *what])


def fetch_wheels(folder: Path, wanted: Sequence[str], present: Sequence[str], target: Target) -> list[Path]:
    """Fetch the wheels that some requirements need and others, of what is there, do not.

    Args:
        wanted, present: arguments of `pip install`, with the same constraints.

    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
        MetadataError: `OPTION_INVALID`, also where this Python has another version: pip judges by its own which
            requirements apply.
    """
    if target.version != f"{sys.version_info.major}.{sys.version_info.minor}":
        remedy = f"run the command with Python {target.version}"
        raise MetadataError(OPTION_INVALID, f"this is not Python {target.version}, which they are for", remedy=remedy)
    known = _resolved(present)
    names = [f"{name}=={version}" for name, version in _resolved(wanted).items() if name not in known]
    _pip(["download", "--no-deps", "--dest", str(folder), *_for(target), *names])
    return sorted(folder.glob("*.whl"))


def _resolved(what: Sequence[str]) -> dict[str, str]:
    """Name to version of all packages that pip would install into an empty environment, but this one.

    For this machine's platform: for another, pip takes no source distribution, and the image of Airflow 3.0.6 has one.
    """
    with tempfile.TemporaryDirectory(prefix="gddl-bundle-") as scratch:
        report = Path(scratch, "report.json")
        _pip(["install", "--dry-run", "--ignore-installed", "--prefer-binary", "--report", str(report), *what])
        packages = [one["metadata"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]]
    versions = {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in packages}
    return {name: version for name, version in sorted(versions.items()) if name != NAME}


def _for(target: Target) -> list[str]:
    """Options of pip that choose wheels of the target's platform and Python."""
    platforms = [part for glibc in _GLIBC for part in ("--platform", f"manylinux_{glibc}_{target.arch}")]
    platforms += ["--platform", f"manylinux2014_{target.arch}", "--python-version", target.version]
    return ["--only-binary=:all:", "--implementation", "cp", *platforms]


def _pip(arguments: Sequence[str], **variables: str) -> None:
    command = [*module_command("pip", arguments[0]), "--quiet", "--disable-pip-version-check", *arguments[1:]]
    environ = {**os.environ, **variables}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with names from here
    if done.returncode:
        said = " / ".join(line for line in done.stderr.splitlines() if "ERROR" in line)[:500] or done.stderr[-500:]
        remedy = "configure a package index for pip (PIP_INDEX_URL, PIP_FIND_LINKS)"
        if "No module named pip" in said:
            remedy = "install pip into this Python (uv pip install pip)"
        raise FatalError(ENVIRONMENT_FAILED, f"pip failed: {said.strip()}", remedy=remedy)


ENTRY = '"""Entry point for spark-submit; code and libraries are passed separately."""\n\n'
ENTRY += 'from spark_jobs.main import script\n\nif __name__ == "__main__":\n    script()\n'
_PLUGINS = "/usr/local/airflow/plugins"
"""Path of the unpacked plugins.zip on MWAA."""
_CONSTRAINTS = "https://raw.githubusercontent.com/apache/airflow/constraints-{0}/constraints-{1}.txt"
_CONSTRAINTS_FILE = "constraints.txt"
PINS: Mapping[str, str] = {"obstore": "0.12.1", "sqlglot": "30.30.0"}
"""Packages of the Airflow side that not every constraints file pins, with the version tested with MWAA's pins."""
_OF_IMAGE = ("apache-airflow-providers-amazon", "apache-airflow-providers-standard")
"""Packages that MWAA's images have beside Airflow."""
CONFIGURATION = {"gddl.cache_dir": "/tmp/gddl", "gddl.paused_upon_creation": "False"}  # noqa: S108 - of MWAA's containers
"""Airflow configuration options of every environment."""
DAGS = {**DAG_FILES, ".airflowignore": "metadata/\n"}


class Extra(StrEnum):
    EVENTS = "events"
    OPENLINEAGE = "openlineage"
    S3 = "s3"
    SOURCE = "source"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Options of a bundle.

    Attributes:
        out: folder, created if missing; files in it are replaced.
        target: nodes of the environment; None: no environment.
        airflow: version of Airflow on MWAA. `airflow_python`: its Python, e.g. `3.12`.
        runner: files of the runner of MWAA's jobs, written to the folder `jobs` of `out`. None: none.
        extras: further extras of the Airflow side for MWAA.
        offline: whether MWAA reaches no package index, so that `plugins.zip` has the packages that its image lacks.
        constraints: path or URL of Airflow's constraints; empty: those of `airflow` and `airflow_python`.
        epoch: time of every file in archives, seconds UTC.
    """

    out: Path
    target: Target | None = None
    airflow: str = "3.0.6"
    airflow_python: str = "3.12"
    runner: JobFiles | None = None
    extras: tuple[Extra, ...] = ()
    offline: bool = False
    constraints: str = ""
    epoch: int = EPOCH

    def write(self, files: JobFiles | None) -> list[Path]:
        """Return the written files, the wheel first; None: only the wheel.

        Raises:
            FatalError: `COMMAND_MISSING`, `ENVIRONMENT_FAILED`.
            MetadataError: `OPTION_INVALID`.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        wheel = build_wheel(self.out, self.epoch)
        return [wheel, *(files.write(self, wheel) if files else [])]

    def text(self, name: str, text: str) -> Path:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def _mwaa(bundle: Bundle, wheel: Path) -> list[Path]:
    constraints = bundle.constraints or _CONSTRAINTS.format(bundle.airflow, bundle.airflow_python)
    runner = bundle.runner or JobFiles(write=lambda _bundle, _wheel: [])
    extras = ("cli", *([runner.extra] if runner.extra else []), *sorted(set(bundle.extras)))
    pins = [f"{name}<={pin}" for name, pin in sorted({**PINS, **runner.pins}.items())]
    # Packages without a constraint are pinned, too, so that a rebuilt environment equals the tested one; where the
    # constraints have one, it is often an older one.
    named = [*pins, f"{_PLUGINS}/{wheel.name}[{','.join(extras)}]"]
    files, options = {wheel.name: wheel.read_bytes()}, [f'--constraint "{constraints}"']
    if bundle.offline:
        files |= _packages(bundle, constraints, [*pins, f"{wheel}[{','.join(extras)}]"])
        options = [f'--constraint "{_PLUGINS}/{_CONSTRAINTS_FILE}"', f'--find-links "{_PLUGINS}"', "--no-index"]
    lines = [*options, *named]
    plugins = write_zip(bundle.out / "plugins.zip", files, epoch=bundle.epoch)
    dags = [bundle.text(f"dags/{name}", text) for name, text in DAGS.items()]
    jobs = replace(bundle, out=bundle.out / "jobs").write(runner) if bundle.runner else []
    configuration = bundle.text("configuration.json", json.dumps(CONFIGURATION, indent=2) + "\n")
    text = "".join(f"{line}\n" for line in lines)
    return [bundle.text("requirements.txt", text), plugins, configuration, *dags, *jobs]


def _packages(bundle: Bundle, constraints: str, wanted: Sequence[str]) -> dict[str, bytes]:
    """Wheels that MWAA's image lacks, and the constraints."""
    with tempfile.TemporaryDirectory(prefix="gddl-bundle-") as scratch:
        known = Path(scratch, _CONSTRAINTS_FILE)
        known.write_bytes(_read(constraints))
        image = ["--constraint", str(known), f"apache-airflow=={bundle.airflow}", *_OF_IMAGE]
        target = Target(python=f"/usr/bin/python{bundle.airflow_python}")
        wheels = fetch_wheels(Path(scratch, "wheels"), [*image, *wanted], image, target)
        return {path.name: path.read_bytes() for path in (known, *wheels)}


def _read(place: str) -> bytes:
    """
    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
    """
    try:
        if not place.startswith("https://"):
            return Path(place).read_bytes()
        with urllib.request.urlopen(place, timeout=60) as answer:  # noqa: S310 - https alone
            data: bytes = answer.read()
            return data
    except OSError as error:
        remedy = "name a file or an https:// URL that can be read here: `--constraints`"
        raise FatalError(ENVIRONMENT_FAILED, f"no constraints: {error}", where=place, remedy=remedy) from error


def _spark(bundle: Bundle, wheel: Path) -> list[Path]:
    """Code and libraries in separate archives: the code changes more often and is sent with each job."""
    made = [write_code(bundle.out / "gddl-job-code.zip"), bundle.text("gddl_job.py", ENTRY)]
    made.append(bundle.text("requirements.txt", "".join(f"{line}\n" for line in requirements())))
    return made + environment_of(bundle, wheel)


def environment_of(bundle: Bundle, wheel: Path) -> list[Path]:
    """The archive of the libraries, where the bundle has a target."""
    if bundle.target is None:
        return []
    return [write_environment(bundle.out / "environment.tar.gz", wheel, bundle.target, bundle.epoch)]


@dataclass(frozen=True, kw_only=True)
class JobFiles:
    """Files that a runner's platform needs beside the wheel.

    Attributes:
        write: writes them to the bundle's folder, given the wheel, and returns them.
        extra: extra of the wheel that Airflow needs for the runner; empty: none. `pins`: its packages as in `PINS`.
        python: Python of the nodes, unless the command names one; empty: like this one's.
    """

    write: Callable[[Bundle, Path], list[Path]]
    extra: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


MWAA = JobFiles(write=_mwaa)
SPARK = JobFiles(write=_spark)
