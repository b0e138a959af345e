"""S3 buckets through obstore: one client a bucket and process."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, cast

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.s3 import SCHEME, S3Settings, split
from airflow_gddl.contract.s3_errors import s3_error
from airflow_gddl.stores.credentials import credentials
from airflow_gddl.stores.port import ListedFile

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, S3Config, S3Store


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DENIED = re.compile(r"\bAccessDenied\b|status code: 40[13]|PermissionDenied|40[13] (Forbidden|Unauthorized)")


class BucketStore:
    """See `Store`.

    Args:
        environ: tells endpoint, region and credentials (`AWS_…`); without credentials the machine's role serves.
    """

    listing_spans_folders = True

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def list(self, folder: str, after: str = "") -> Iterator[ListedFile]:
        import obstore  # noqa: PLC0415 - a local lake needs no client, and DAG files are parsed often

        bucket, key = split(folder)
        offset = f"{key}/{after}" if after else None
        with _translated(folder):
            for page in obstore.list(client(bucket, self._environ), key or None, offset=offset, chunk_size=1000):
                for meta in page:
                    name = meta["path"][len(key) :].lstrip("/")
                    if name > after:
                        tag = (meta["e_tag"] or "").strip('"')
                        yield ListedFile(name, meta["size"], tag, meta["last_modified"].timestamp())

    def read(self, path: str) -> bytes:
        import obstore  # noqa: PLC0415 - imported when needed

        bucket, key = split(path)
        with _translated(path):
            return bytes(obstore.get(client(bucket, self._environ), key).bytes())

    def write(self, path: str, data: bytes) -> None:
        import obstore  # noqa: PLC0415 - imported when needed

        bucket, key = split(path)
        with _translated(path):
            obstore.put(client(bucket, self._environ), key, data, use_multipart=False)

    def create(self, path: str, data: bytes) -> bool:
        import obstore  # noqa: PLC0415 - imported when needed
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - imported when needed

        bucket, key = split(path)
        with _translated(path):
            try:
                obstore.put(client(bucket, self._environ), key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        import obstore  # noqa: PLC0415 - imported when needed

        bucket, key = split(path)
        with _translated(path):
            found = obstore.get(client(bucket, self._environ), key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        import obstore  # noqa: PLC0415 - imported when needed
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - imported when needed

        bucket, key = split(path)
        mode: Literal["create"] | UpdateVersion = "create" if tag is None else {"e_tag": tag}
        with _translated(path):
            try:
                obstore.put(client(bucket, self._environ), key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        import obstore  # noqa: PLC0415 - imported when needed

        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = split(path)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            with _translated(f"{SCHEME}{bucket}"):
                obstore.delete(client(bucket, self._environ), keys)


def client(bucket: str, environ: Mapping[str, str]) -> S3Store:
    """The process's one client of a bucket and these credentials."""
    return _client(bucket, tuple(sorted((name, value) for name, value in environ.items() if _concerns(name))))


def _concerns(name: str) -> bool:
    return name.startswith("AWS_") or name == "HOME"


@functools.lru_cache(maxsize=32)  # a connection that assumes a role gives other credentials each time
def _client(bucket: str, environ: tuple[tuple[str, str], ...]) -> S3Store:
    return make_client(bucket, dict(environ))


def make_client(bucket: str, environ: Mapping[str, str], prefix: str | None = None) -> S3Store:
    """A client of a bucket, or of a folder in it.

    Raises:
        FatalError: `S3_ENDPOINT_INVALID`, `S3_CREDENTIALS_MISSING`; `STORAGE_UNUSABLE`: no bucket has such a name.
    """
    if not _BUCKET.fullmatch(bucket):
        # Not shown: it may hold keys, which some tools take there.
        remedy = "write s3://bucket/prefix; credentials have no place in it"
        raise FatalError("STORAGE_UNUSABLE", "the URL does not name a bucket", remedy=remedy)
    from obstore.store import S3Store  # noqa: PLC0415 - a local lake needs no client, and DAG files are parsed often

    settings = S3Settings.of(environ)
    # The client's own retries may take minutes; whoever looks tries again by itself.
    return S3Store(
        bucket,
        prefix=prefix,
        config=cast("S3Config", settings.store_config()),
        client_options=cast("ClientConfig", settings.client_options()),
        retry_config={"max_retries": min(3, settings.retries), "retry_timeout": timedelta(seconds=20)},
        credential_provider=credentials(environ),
    )


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    from obstore.exceptions import BaseError  # noqa: PLC0415 - imported when needed

    try:
        yield
    except FileNotFoundError as error:
        told = s3_error(str(error), path)
        if told is None:
            raise
        raise told from error
    except (BaseError, OSError) as error:
        raise s3_error(str(error), path) or _refused(error, path) or _unreachable(error, path) from error


def _refused(error: Exception, path: str) -> FatalError | None:
    if not _DENIED.search(str(error)) and not isinstance(error, PermissionError):
        return None
    remedy = "grant the role the right to list and read the folder"
    return FatalError("STORAGE_DENIED", "no permission", where=path, remedy=remedy)


def _unreachable(error: Exception, path: str) -> RetriableError:
    what = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    remedy = "check the network, the bucket's region and the role's right to list and read the folder"
    return RetriableError("LANDING_UNREACHABLE", what, where=path, remedy=remedy)
