"""Environments as users make them: what the pages tell them to install, in versions of the lock, and nothing else.

An environment takes a second: uv links files that `make test` has fetched for its own environment.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from devtools.install import pip_settings

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "devtools" / "requirements" / "dev.txt"
_NAMED = re.compile(r"(?:airflow-gddl|(?<![\w/])\.)\[([a-z][a-z0-9,-]*)\]")
_INSTALLED = re.compile(r"""pip install ((?:'[^'\n]*'|[^`'"\n#;,])+)""")
_OPTIONS_WITH_VALUE = ("--constraint", "--index-url", "-c", "--target", "--platform", "--python-version")


@dataclass(frozen=True, order=True)
class Combination:
    """What one line of a page installs.

    Attributes:
        extras: of this project, sorted.
        beside: other packages of the same command.
    """

    extras: tuple[str, ...]
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([f"[{','.join(self.extras)}]", *self.beside])


def pages(root: Path) -> list[Path]:
    """What tells users to install something: documents, and modules whose messages do."""
    documents = [
        root / "README.md",
        root / "CONTRIBUTING.md",
        root / ".github/RELEASING.md",
        *sorted((root / "docs").rglob("*.md")),
    ]
    modules = [path for package in ("airflow_gddl", "spark_jobs") for path in sorted((root / package).rglob("*.py"))]
    return [*documents, *modules]


def combinations(text: str) -> Iterator[Combination]:
    """Combinations that a page names, in prose or in a command."""
    commands = [match[1] for match in _INSTALLED.finditer(text)]
    for command in commands:
        words = _requirements(command)
        extras = [extra for word in words if (named := _NAMED.match(word)) for extra in named[1].split(",")]
        if extras:
            yield Combination(tuple(sorted(extras)), tuple(word for word in words if not _NAMED.match(word)))
    for named in _NAMED.finditer(_INSTALLED.sub("", text)):
        yield Combination(tuple(sorted(named[1].split(","))))


def _requirements(command: str) -> list[str]:
    """Words of `pip install` that are no options and not their values."""
    words = shlex.split(command)
    values = {number + 1 for number, word in enumerate(words) if word in _OPTIONS_WITH_VALUE}
    return [word for number, word in enumerate(words) if not word.startswith("-") and number not in values]


def wheel(folder: Path) -> Path:
    """This tree's wheel, in the folder."""
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(ROOT))
    return next(folder.glob("airflow_gddl-*.whl"))


@dataclass(frozen=True)
class Environment:
    """An environment and the variables of its processes.

    All environments have one path, one after the other, so that modules are compiled once for all of them.
    """

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "environment" / "bin" / "python"

    def install(self, project: Path, combination: Combination) -> None:
        """Make it anew, with the wheel `project`."""
        shutil.rmtree(self.root / "environment", ignore_errors=True)
        _uv("venv", "--python", sys.executable, str(self.root / "environment"))
        extras = ",".join(combination.extras)
        wanted = [f"airflow-gddl[{extras}] @ {project.as_uri()}", *combination.beside]
        install = ("pip", "install", "--python", str(self.python), "--constraint", str(LOCK), *wanted)
        if _uv("--offline", *install, check=False):
            _uv(*install)  # uv's cache is not that of this machine's `make test`

    def run(
        self, *arguments: str | Path, cwd: Path, timeout: float = 300, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A process of the environment's Python, which knows nothing of this checkout; `more`: variables."""
        kept = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "SSL_CERT_FILE")
        environ = {name: os.environ[name] for name in kept if name in os.environ}
        environ |= {
            "PATH": os.pathsep.join([str(self.python.parent), os.environ["PATH"]]),
            "PYTHONPYCACHEPREFIX": str(self.root / "compiled"),
            "AIRFLOW_HOME": str(cwd / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "GDDL_SETTLE": "0s",
            "COLUMNS": "80",
        }
        environ |= more or {}
        command = [self.python, *arguments]
        return subprocess.run(
            command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=timeout
        )


def _uv(*arguments: str, check: bool = True) -> int:
    """Exit status of uv.

    Raises:
        AssertionError: it failed, and `check` is true.
    """
    if importlib.util.find_spec("uv") is None:
        raise AssertionError("the environment of the tests lacks uv: run `make test`, which installs it")
    environ = {**pip_settings(), **os.environ}
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"uv {shlex.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.returncode
