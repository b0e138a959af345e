"""`make newcomer`: a wheel of this tree in an environment of its own, and the README's first hour in an empty folder.

Prints each command with the seconds it took, and the sum; the exit status is 1 at the first command that fails or does
not print what the README shows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.readme.walk import ROOT, Block, Walk, blocks

_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def main() -> int:
    """Exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", type=Path, help="take this installation instead of making one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-newcomer-") as temporary:
        folder = Path(temporary, "project")
        folder.mkdir()
        return walk(folder, given.python)


def walk(folder: Path, python: Path | None) -> int:
    """Take the README's blocks in `folder`; null: install the wheel first, as the README's install block says."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.monotonic()
    path = python.parent if python is not None else folder.parent / "venv" / "bin"
    taken = Walk(folder, path, environ=kept)
    try:
        for block in blocks((ROOT / "README.md").read_text()):
            if block.what == "install" and python is None:
                timed(block.text.strip(), partial(install, block, path))
            for step in taken.take(block):
                shown(step.text, step.seconds)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    shown("all of the README", time.monotonic() - began)
    return 0


def install(block: Block, path: Path) -> None:
    """The README's `pip install '.[...]'` with a wheel in place of the clone."""
    place = path.parent.parent
    run([sys.executable, *_PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(ROOT)])
    wheel = next(place.glob("airflow_gddl-*.whl"))
    venv.create(path.parent, with_pip=True)
    command = block.text.split()
    assert command[:2] == ["pip", "install"], block.text
    arguments = [word.strip("'").replace(".[", f"{wheel}[") for word in command[2:]]
    run([str(path / "python"), *_PIP, "install", *arguments])


def run(command: list[str]) -> None:
    """
    Raises:
        AssertionError: it failed.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def timed(text: str, do: Callable[[], None]) -> None:
    """Do it and print how long it took."""
    began = time.monotonic()
    do()
    shown(text, time.monotonic() - began)


def shown(text: str, seconds: float) -> None:
    """A line for a step."""
    first, *others = text.splitlines()
    print(f"{seconds:7.1f} s  {first}{' …' if others else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
