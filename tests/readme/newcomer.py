"""`make newcomer`: this tree in an environment of its own, and the first page, `docs/start.md`, in an empty folder.

Prints each command with the time it took, how long it was to the first table once all was installed, and the sum. The
exit status is 1 at the first command that fails or does not print what the page shows. `NEWCOMER='--by uv'` installs by
uv instead of pip.
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
from itertools import takewhile
from pathlib import Path

from devtools.install import require_uv, uv
from tests.readme.walk import ROOT, START, Block, Walk, blocks

INSTALLERS = ("pip", "uv")
FIRST_RUN = "gddl run"


def main() -> int:
    """Exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", type=Path, help="take this installation instead of making one")
    options.add_argument("--by", choices=INSTALLERS, default="pip", help="what installs it")
    options.add_argument("--without-demo", action="store_true", help="leave out `gddl demo`, which CI runs before")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-newcomer-") as temporary:
        folder = Path(temporary, "project")
        folder.mkdir()
        return walk(folder, given.python, given.by, has_demo=not given.without_demo)


def walk(folder: Path, python: Path | None, by: str, *, has_demo: bool) -> int:
    """Take the page's blocks in `folder`.

    Args:
        python: of an environment that has the project; null: it is installed first, as its block says.
        by: one of `INSTALLERS`.
        has_demo: take the block of `gddl demo`, too.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.monotonic()
    path = python.parent if python is not None else folder.parent / "venv" / "bin"
    taken = Walk(folder, path, environ=kept)
    # The demonstration is the page's last step.
    page = takewhile(lambda block: has_demo or not block.text.startswith("gddl demo "), blocks(START.read_text()))
    try:
        for block in page:
            if block.what == "install" and python is None:
                timed(block.text.strip(), partial(install, block, path, by))
            for step in taken.take(block):
                shown(step.text, step.seconds)
                if step.text == FIRST_RUN and sum(one.text == FIRST_RUN for one in taken.steps) == 1:
                    shown("the first table, once all was installed", sum(one.seconds for one in taken.steps))
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    shown("all of the page", time.monotonic() - began)
    return 0


def install(block: Block, path: Path, by: str) -> None:
    """The page's `pip install '.[...]'` of this tree.

    Raises:
        AssertionError: it failed.
    """
    venv.create(path.parent, with_pip=True)
    command = block.text.split()
    assert command[:2] == ["pip", "install"], block.text
    wanted = [word.strip("'").replace(".[", f"{ROOT}[") for word in command[2:]]
    if by == "uv":
        status = require_uv() or uv("pip", "install", "--python", str(path / "python"), *wanted)
    else:
        pip = [str(path / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        status = subprocess.run([*pip, "install", *wanted], check=False).returncode
    assert status == 0, f"{block.text.strip()} by {by} ended with {status}"


def timed(text: str, do: Callable[[], None]) -> None:
    """Do it and print how long it took."""
    began = time.monotonic()
    do()
    shown(text, time.monotonic() - began)


def shown(text: str, seconds: float) -> None:
    """A line for a step."""
    first, *others = text.splitlines()
    print(f"{int(seconds) // 60:3d}m {seconds % 60:04.1f}s  {first}{' …' if others else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
