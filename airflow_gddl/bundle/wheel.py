"""Rebuilds the wheel from the installed package: modules from their import locations, the rest from the metadata.

This needs no source tree, build backend or network, and contains exactly the code that runs here.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import airflow_gddl
from airflow_gddl.bundle.archives import EPOCH, write_zip
from airflow_gddl.contract.errors import FatalError

NAME = "airflow-gddl"
_PACKAGES = ("airflow_gddl", "spark_jobs")
_WHEEL = "Wheel-Version: 1.0\nGenerator: gddl bundle\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_REMEDY = "install the wheel, or the source tree with `pip install -e .`, and run this again"


def distribution() -> metadata.Distribution:
    """Installed metadata of this package.

    Raises:
        FatalError: `CODE_MISSING`.
    """
    try:
        found = metadata.distribution(NAME)
    except metadata.PackageNotFoundError as error:
        raise FatalError("CODE_MISSING", f"{NAME} is importable but not installed", remedy=_REMEDY) from error
    if found.version != airflow_gddl.__version__:
        what = f"installed as {found.version}, while the code says {airflow_gddl.__version__}"
        raise FatalError("CODE_MISSING", what, where=NAME, remedy=_REMEDY)
    return found


def write_wheel(folder: Path, epoch: int = EPOCH) -> Path:
    """Write the wheel into the folder; equal code gives equal bytes.

    Args:
        epoch: time of every file in it, seconds UTC.

    Raises:
        FatalError: `CODE_MISSING`.
    """
    known = distribution()
    stem = f"airflow_gddl-{known.version}"
    files = {**_modules(), **_information(known, f"{stem}.dist-info")}
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    return write_zip(folder / f"{stem}-py3-none-any.whl", files, epoch=epoch)


def _modules() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in _PACKAGES:
        # Found, not imported: this side never imports the job.
        spec = importlib.util.find_spec(name)
        folder = Path(spec.origin).parent if spec and spec.origin else None
        if folder is None or not folder.is_dir():
            raise FatalError("CODE_MISSING", f"{name} lies in no folder of this Python", remedy=_REMEDY)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        found |= {f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}
    return found


def _information(known: metadata.Distribution, folder: str) -> dict[str, bytes]:
    found = {}
    for path in sorted(known.files or (), key=str):
        inner = str(path).partition(".dist-info/")[2]
        if inner in ("METADATA", "entry_points.txt") or inner.startswith("licenses/"):
            found[f"{folder}/{inner}"] = Path(str(path.locate())).read_bytes()
    text = found.get(f"{folder}/METADATA")
    if text is None:
        raise FatalError("CODE_MISSING", f"{NAME} is installed without its METADATA", remedy=_REMEDY)
    return {**found, f"{folder}/METADATA": _as_required(text.decode()).encode(), f"{folder}/WHEEL": _WHEEL.encode()}


def project() -> dict[str, Any] | None:
    """The `[project]` table of the code's source tree; null when there is none.

    The metadata of an editable install may be outdated, so the source tree takes precedence.
    """
    tree = Path(airflow_gddl.__file__).parents[1] / "pyproject.toml"
    if not tree.is_file():
        return None
    found: dict[str, Any] = tomllib.loads(tree.read_text(encoding="utf-8")).get("project", {})
    return found


def _as_required(text: str) -> str:
    """METADATA with the requirements and extras of the source tree, where there is one."""
    written = project()
    if written is None:
        return text
    head, blank, body = text.partition("\n\n")
    kept = [line for line in head.splitlines() if not line.startswith(("Requires-Dist:", "Provides-Extra:"))]
    return "\n".join([*kept, *_requirement_lines(written)]) + blank + body


def _requirement_lines(written: Mapping[str, Any]) -> Iterator[str]:
    for line in written.get("dependencies", []):
        yield f"Requires-Dist: {line}"
    for extra, lines in sorted(written.get("optional-dependencies", {}).items()):
        name = re.sub(r"[-_.]+", "-", extra).lower()
        yield f"Provides-Extra: {name}"
        for line in lines:
            requirement, _, marker = line.partition(";")
            condition = f"({marker.strip()}) and extra == '{name}'" if marker else f"extra == '{name}'"
            yield f"Requires-Dist: {requirement.strip()}; {condition}"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
