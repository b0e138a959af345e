"""Where the files land and where the tables live, made absolute."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem

_S3 = re.compile(r"s3://[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?(/[^?#]*)?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Where Databricks mounts object storage as a file system: decision 145.
_MOUNTS = ("/Volumes/", "/dbfs/")


def absolute(root: str, base: str) -> str:
    """An absolute local path or an `s3://bucket/prefix`, without a slash at its end.

    Args:
        root: a local path, a `file://` URL or an `s3://` URL; relative ones are relative to `base`.
        base: the metadata folder: an absolute path or an `s3://` URL.

    Raises:
        ValueError: for anything else; its text says why and never holds the root.
    """
    if not root.strip() or root != root.strip() or not root.isprintable():
        raise ValueError("it is empty, or has blanks or control characters around it")
    if root.startswith("s3://"):
        return _s3(root)
    if root.startswith("file:"):
        return _file(root)
    if _SCHEME.match(root):
        raise ValueError("it is neither a local path nor s3:// (s3a:// and s3n:// are written s3://)")
    if root.startswith("~"):
        raise ValueError("~ is not replaced, since it differs between machines")
    if base.startswith("s3://") and not root.startswith("/"):
        return _below_url(base, root)
    return _normal(posixpath.join(base, root))


def check_remote(runner: str, own: Mapping[str, Any], roots: Mapping[FieldPath, str]) -> Iterator[SpecProblem]:
    """`RUNNER_NEEDS_S3` for each root that jobs on a platform can't use.

    Args:
        runner: one whose jobs run on a platform.
        own: its settings; with `local_roots: true` it takes folders, but none that Databricks mounts.
        roots: by the field that names them.
    """
    for path, root in roots.items():
        name = ".".join(map(str, path))
        if runner == "databricks" and f"{root}/".startswith(_MOUNTS):
            what = "a mounted volume is no root: no atomic creation of files there, and Airflow does not see it"
            remedy = f"set {name} to the s3:// URL of an external location, docs/platforms/databricks.md"
            yield SpecProblem("RUNNER_NEEDS_S3", path, root, what, remedy)
        elif not is_s3(root) and not own.get("local_roots"):
            what = f"runner {runner} needs it in an object store"
            yield SpecProblem("RUNNER_NEEDS_S3", path, root, what, f"set {name} to s3://bucket/prefix")


def _below_url(base: str, root: str) -> str:
    bucket, _, prefix = base.removeprefix("s3://").partition("/")
    path = posixpath.normpath(posixpath.join(prefix, root))
    if path.startswith(".."):
        raise ValueError("it climbs out of the bucket that holds the metadata")
    return f"s3://{bucket}" if path == "." else f"s3://{bucket}/{path}"


def _s3(root: str) -> str:
    if not _S3.fullmatch(root):
        raise ValueError("it is not s3://bucket or s3://bucket/prefix")
    if any(part in {".", ".."} for part in root.split("/")):
        raise ValueError("an object store knows no . and .. folders")
    return root.rstrip("/")


def _file(root: str) -> str:
    url = urlsplit(root)
    if url.netloc not in {"", "localhost"} or not url.path.startswith("/") or url.query or url.fragment:
        raise ValueError("a file URL must be file:///absolute/path")
    return _normal(unquote(url.path))


def _normal(path: str) -> str:
    # POSIX keeps two leading slashes apart from one; no system this runs on does.
    return "/" + posixpath.normpath(path).lstrip("/")
