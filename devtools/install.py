"""`python devtools/install.py REQUIREMENT …`: install into this environment by uv, or by pip where uv fails.

uv takes seconds where pip takes minutes, and reads none of pip's settings: mirrors and certificates that pip is told of
are handed over. Both check the hashes of requirements files. `INSTALLER=pip` in the environment leaves uv out.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip, and the variables that uv reads instead."""
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main(arguments: list[str]) -> int:
    """Exit status of the installer."""
    if os.environ.get("INSTALLER", "uv") == "uv":
        if require_uv() == 0 and uv("pip", "install", "--python", sys.executable, *arguments) == 0:
            # Where a mirror sends no cache headers, each install builds pyspark again, and uv keeps a gigabyte of each.
            uv("cache", "prune")
            return 0
        sys.stderr.write("uv could not install it (see above): pip does, which takes some minutes\n")
    # pip would compile every module on one core; the Makefile compiles those that are needed.
    return _status([*PIP, "--no-compile", *arguments])


def require_uv() -> int:
    """Install uv into this environment, checked by its hash; the exit status of pip."""
    lock = ROOT / "devtools" / "requirements" / "uv.txt"
    with suppress(PackageNotFoundError):
        if f"uv=={version('uv')} " in lock.read_text(encoding="utf-8"):
            return 0
    return _status([*PIP, "--require-hashes", "--requirement", str(lock)])


def uv(*arguments: str) -> int:
    """Exit status of this environment's uv, which is given pip's settings."""
    return _status([sys.executable, "-m", "uv", "--quiet", *arguments], pip_settings())


@functools.cache
def pip_settings() -> dict[str, str]:
    """Variables for uv, of what pip's files and variables say; empty where they say nothing."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip itself
    return translated(listed.stdout)


def translated(listed: str) -> dict[str, str]:
    """
    Args:
        listed: as `pip config list` prints it, e.g. `global.index-url='https://…'`.
    """
    settings = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # pip's own order: the last one counts
        for setting, variable in SETTINGS.items():
            words = str(ast.literal_eval(settings.get(f"{section}.{setting}", "''"))).split()
            if setting in ("cert", "find-links"):
                words = [word if "://" in word else str(Path(word).expanduser()) for word in words]
            if setting == "find-links":  # uv refuses a folder that is not there
                words = [",".join(word for word in words if "://" in word or Path(word).is_dir())]
            if any(words):
                found[variable] = " ".join(words)
    return found


def _status(command: Sequence[str], more: Mapping[str, str] | None = None) -> int:
    """
    Args:
        more: variables beside those of this process, which count where both have one.
    """
    environ = {**(more or {}), **os.environ}
    return subprocess.run(command, check=False, env=environ).returncode  # noqa: S603 - the Makefile's own arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
