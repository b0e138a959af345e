"""S3 buckets through obstore: one client a bucket and process."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores.port import Found

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, S3Store

_SCHEME = "s3://"


class BucketStore:
    """See `Store`. Credentials, region and endpoint come from the environment (`AWS_…`) or the machine's role."""

    listing_spans_folders = True

    def list(self, folder: str, after: str = "") -> Iterator[Found]:
        import obstore  # noqa: PLC0415 - a local lake needs no client, and DAG files are parsed often

        bucket, key = _parts(folder)
        offset = f"{key}/{after}" if after else None
        with _translated(folder):
            for page in obstore.list(client(bucket), key or None, offset=offset, chunk_size=1000):
                for meta in page:
                    name = meta["path"][len(key) :].lstrip("/")
                    if name > after:
                        tag = (meta["e_tag"] or "").strip('"')
                        yield Found(name, meta["size"], tag, meta["last_modified"].timestamp())

    def read(self, path: str) -> bytes:
        import obstore  # noqa: PLC0415 - as above

        bucket, key = _parts(path)
        with _translated(path):
            return bytes(obstore.get(client(bucket), key).bytes())

    def write(self, path: str, data: bytes) -> None:
        import obstore  # noqa: PLC0415 - as above

        bucket, key = _parts(path)
        with _translated(path):
            obstore.put(client(bucket), key, data, use_multipart=False)

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        import obstore  # noqa: PLC0415 - as above

        bucket, key = _parts(path)
        with _translated(path):
            found = obstore.get(client(bucket), key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        import obstore  # noqa: PLC0415 - as above
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - as above

        bucket, key = _parts(path)
        mode: Literal["create"] | UpdateVersion = "create" if tag is None else {"e_tag": tag}
        with _translated(path):
            try:
                obstore.put(client(bucket), key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        import obstore  # noqa: PLC0415 - as above

        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _parts(path)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            with _translated(f"{_SCHEME}{bucket}"):
                obstore.delete(client(bucket), keys)


@functools.cache
def client(bucket: str) -> S3Store:
    """The process's one client of a bucket."""
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    # The client's own retries may take minutes; whoever looks tries again by itself.
    return S3Store(
        bucket,
        client_options=client_options(),
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=60)},
    )


def client_options() -> ClientConfig:
    """Time limits, and what of the environment giving any options would make void (`AWS_ALLOW_HTTP`)."""
    options: ClientConfig = {"timeout": "30s", "connect_timeout": "5s"}
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1"):
        options["allow_http"] = True
    return options


def _parts(path: str) -> tuple[str, str]:
    bucket, _, key = path.removeprefix(_SCHEME).partition("/")
    return bucket, key.strip("/")


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    from obstore.exceptions import BaseError  # noqa: PLC0415 - as above

    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        remedy = "check the network, the bucket's region and the role's right to list and read the folder"
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise RetriableError("LANDING_UNREACHABLE", what, where=path, remedy=remedy) from error
