"""The wheel, made again of what is installed: modules from where Python imports them, the rest from the metadata.

So it needs neither the source tree nor a build backend nor a network, and is the very code that runs here.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from importlib import metadata
from pathlib import Path

import airflow_gddl
from airflow_gddl.bundle.archives import EPOCH, write_zip
from airflow_gddl.contract.errors import FatalError

NAME = "airflow-gddl"
_PACKAGES = ("airflow_gddl", "spark_jobs")
_WHEEL = "Wheel-Version: 1.0\nGenerator: gddl bundle\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_REMEDY = "install the wheel, or the source tree with `pip install -e .`, and run this again"


def distribution() -> metadata.Distribution:
    """What pip knows of this package.

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
    if f"{folder}/METADATA" not in found:
        raise FatalError("CODE_MISSING", f"{NAME} is installed without its METADATA", remedy=_REMEDY)
    return {**found, f"{folder}/WHEEL": _WHEEL.encode()}


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
