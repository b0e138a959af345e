"""Packages of others, as docs/extending.md shows them, on the path as pip would install them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_gddl.contract.extensions import forget_entry_points
from tests.unit.pages import ROOT


def shown(title: str) -> tuple[str, str]:
    """The module and the entry points of a section of the page, as `pyproject.toml` has them."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    part = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    (module,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    (points,) = re.findall(r"```toml\n(.*?)```", part, re.DOTALL)
    return module, points


@contextmanager
def installed(folder: Path, title: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package in `folder`; returns the file of its entry points."""
    module, points = shown(title)
    ((group, name, package, file, attribute),) = re.findall(
        r'\[project\.entry-points\."(.*)"\]\n(\w+) = "(\w+)\.(\w+):(\w+)"\n', points
    )
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {package}.{file}:{attribute}\n")
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / f"{file}.py").write_text(module)
    monkeypatch.syspath_prepend(str(folder))
    _forget(package)
    try:
        yield info / "entry_points.txt"
    finally:
        _forget(package)


def _forget(package: str) -> None:
    forget_entry_points()
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
