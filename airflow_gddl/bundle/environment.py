"""A Python environment as an archive that a cluster unpacks anywhere: libraries beside a link to the nodes' Python.

Like `python -m venv`, but for another machine and without absolute paths.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from airflow_gddl.bundle.archives import EPOCH, NAME, project, write_tar
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.python_command import module_command

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
            MetadataError: `PYTHON_INVALID`.
        """
        match = _PYTHON.fullmatch(self.python)
        if match is None:
            remedy = "write it with its version, e.g. /usr/bin/python3.11"
            raise MetadataError("PYTHON_INVALID", f"{self.python!r} is not the path of a Python", remedy=remedy)
        return match[1]


def here() -> str:
    """Path of the base Python of the current environment."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def requirements() -> list[str]:
    """Requirements of a task on a cluster beyond Spark itself, from the package's metadata."""
    found = []
    for line in _required():
        match = _FORM.fullmatch(line.strip())
        if match and match[4] in (None, "spark") and match[1] not in _OF_SPARK:
            found.append(f"{match[1]}{match[2] or ''}{match[3].strip()}")
    return sorted(found)


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
        MetadataError: `PYTHON_INVALID`.
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
    platforms = [part for glibc in _GLIBC for part in ("--platform", f"manylinux_{glibc}_{target.arch}")]
    platforms += ["--platform", f"manylinux2014_{target.arch}", "--python-version", target.version]
    command = [*module_command("pip", "install"), "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--only-binary=:all:", "--implementation", "cp", *platforms, "--target", str(site), "--upgrade", *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with names from here
    if done.returncode:
        said = " / ".join(line for line in done.stderr.splitlines() if "ERROR" in line)[:500] or done.stderr[-500:]
        remedy = "configure a package index for pip (PIP_INDEX_URL, PIP_FIND_LINKS), or use --no-environment"
        raise FatalError("ENVIRONMENT_FAILED", f"pip could not fetch the libraries: {said}", remedy=remedy)
