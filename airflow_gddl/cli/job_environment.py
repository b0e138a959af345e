"""An environment of its own for jobs on this machine, beside an Airflow whose pins would meet Spark's."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.codes import ENVIRONMENT_FAILED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.python_command import module_command
from airflow_gddl.tools.bundle import build_wheel


def create(screen: Screen, folder: Path) -> tuple[str, ...]:
    """Make the environment with this version of the package and Spark; return the command of its jobs.

    An environment that is there is kept.

    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
    """
    program = folder / "bin" / "gddl-job"
    if program.exists():
        screen.say(f"kept  {folder}", "dim")
        return (str(program),)
    screen.say(f"installing Spark into {folder}: some minutes, 700 MB")
    with tempfile.TemporaryDirectory(prefix="gddl-init-") as scratch:
        wheel = build_wheel(Path(scratch))
        run_command(*module_command("venv", str(folder)))
        pip = (str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check")
        run_command(*pip, "install", f"airflow-gddl[spark] @ {wheel.as_uri()}")
    screen.say(f"wrote {folder}")
    return (str(program),)


def run_command(*command: str) -> None:
    """Run a program of the environment to its end.

    Raises:
        FatalError: `ENVIRONMENT_FAILED`.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this Python, and pip
    if done.returncode:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])[:500]
        remedy = "correct what the message says (a package index: PIP_INDEX_URL), remove the folder, and run it again"
        raise FatalError(ENVIRONMENT_FAILED, f"`{' '.join(command[:4])} …` failed: {said}", remedy=remedy)
