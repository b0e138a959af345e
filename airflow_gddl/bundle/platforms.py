"""Files for MWAA and for the platforms of runners."""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from airflow_gddl.bundle.archives import (
    DAG_FILES,
    EPOCH,
    Target,
    fetch_wheels,
    requirements,
    write_code,
    write_environment,
    write_wheel,
    write_zip,
)
from airflow_gddl.contract.errors import FatalError

ENTRY = '"""Entry point for spark-submit; code and libraries are passed separately."""\n\nimport sys\n\n'
ENTRY += 'from spark_jobs.main import main\n\nif __name__ == "__main__":\n    sys.exit(main())\n'
ENTRY_TASK = '"""Entry point on EMR Serverless: the details of a failed run name the error."""\n\n'
ENTRY_TASK += 'from spark_jobs.main import task\n\nif __name__ == "__main__":\n    task()\n'
ENTRY_GLUE = '''"""Entry point on Glue: Glue's own arguments are ignored."""

import argparse
import os
import sys

from spark_jobs.main import task

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--gddl_spec", required=True)
    parser.add_argument("--gddl_region")
    found, _ = parser.parse_known_args()
    if found.gddl_region:
        os.environ.setdefault("AWS_REGION", found.gddl_region)
    sys.argv[1:] = ["--spec", found.gddl_spec, "--results"]
    task()
'''
_PLUGINS = "/usr/local/airflow/plugins"
"""Path of the unpacked plugins.zip on MWAA."""
_CONSTRAINTS = "https://raw.githubusercontent.com/apache/airflow/constraints-{0}/constraints-{1}.txt"
_CONSTRAINTS_FILE = "constraints.txt"
PINS: Mapping[str, str] = {"databricks-sdk": "0.156.0", "obstore": "0.12.1"}
"""Packages of the Airflow side's extras that no constraints file pins, with the version tested with MWAA's pins."""
_OF_IMAGE = ("apache-airflow-providers-amazon", "apache-airflow-providers-standard")
"""Packages that MWAA's images have beside Airflow."""
CONFIGURATION = {"gddl.cache_dir": "/tmp/gddl", "gddl.paused_upon_creation": "False"}  # noqa: S108 - of MWAA's containers
"""Airflow configuration options of every environment; `gddl.metadata_copy` is the lake's URL."""
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
        target: nodes of the environment; null: no environment.
        airflow: version of Airflow on MWAA. `airflow_python`: its Python, e.g. `3.12`.
        runner: files of the runner of MWAA's jobs, written to the folder `jobs` of `out`. Null: none.
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
        """Return the written files, the wheel first; null: only the wheel.

        Raises:
            FatalError: `CODE_MISSING`, `ENVIRONMENT_FAILED`.
            MetadataError: `PYTHON_INVALID`.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        wheel = write_wheel(self.out, self.epoch)
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
    pins = [f"{name}=={PINS[name]}" for name in sorted({"obstore", *runner.pinned})]
    # Packages without a constraint are pinned, too, so that a rebuilt environment equals the tested one.
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
        raise FatalError("ENVIRONMENT_FAILED", f"no constraints: {error}", where=place, remedy=remedy) from error


def _databricks(bundle: Bundle, wheel: Path) -> list[Path]:
    return [bundle.text("requirements.txt", "".join(f"{line}\n" for line in [*requirements(), f"./{wheel.name}"]))]


def _spark(bundle: Bundle, wheel: Path) -> list[Path]:
    """Code and libraries in separate archives: the code changes more often and is sent with each job."""
    made = [write_code(bundle.out / "gddl-job-code.zip"), bundle.text("gddl_job.py", ENTRY)]
    made.append(bundle.text("requirements.txt", "".join(f"{line}\n" for line in requirements())))
    return made + _environment(bundle, wheel)


def _emr_serverless(bundle: Bundle, wheel: Path) -> list[Path]:
    return [bundle.text("gddl_task.py", ENTRY_TASK), *_environment(bundle, wheel)]


def _glue(bundle: Bundle, wheel: Path) -> list[Path]:  # noqa: ARG001 - Glue installs the wheel itself
    return [bundle.text("gddl_glue.py", ENTRY_GLUE)]


def _environment(bundle: Bundle, wheel: Path) -> list[Path]:
    if bundle.target is None:
        return []
    return [write_environment(bundle.out / "environment.tar.gz", wheel, bundle.target, bundle.epoch)]


@dataclass(frozen=True, kw_only=True)
class JobFiles:
    """Files that a runner's platform needs beside the wheel.

    Attributes:
        write: writes them to the bundle's folder, given the wheel, and returns them.
        extra: extra of the wheel that Airflow needs for the runner; empty: none. `pinned`: its packages in `PINS`.
        python: Python of the nodes, unless the command names one; empty: like this one's.
    """

    write: Callable[[Bundle, Path], list[Path]]
    extra: str = ""
    pinned: tuple[str, ...] = ()
    python: str = ""


MWAA = JobFiles(write=_mwaa)
DATABRICKS = JobFiles(write=_databricks, extra="databricks", pinned=("databricks-sdk",))
EMR_SERVERLESS = JobFiles(write=_emr_serverless, extra="emr-serverless", python="/usr/bin/python3.11")
GLUE = JobFiles(write=_glue, extra="glue")
SPARK = JobFiles(write=_spark)
