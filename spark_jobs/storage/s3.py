"""One bucket through obstore: names in, bytes out, and a reader that seeks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from airflow_gddl.contract.s3 import S3Settings, of_profile, profile_of

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config, S3Credential

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
READ_AHEAD = 1024 * 1024


@dataclass(frozen=True)
class Bucket:
    """An S3 bucket.

    Attributes:
        options: what `deltalake` takes to reach it; may hold keys.
    """

    store: S3Store
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def named(cls, name: str, environ: Mapping[str, str]) -> Bucket:
        """Credentials, region and endpoint as the environment tells them, or a profile of its, or the machine's role.

        Args:
            environ: without keys in it, the clients look in this process's own, and ask the machine for a role.

        Raises:
            FatalError: `S3_ENDPOINT_INVALID`, `S3_CREDENTIALS_MISSING`.
        """
        settings = S3Settings.of(environ)
        keys = {name.removeprefix("AWS_").lower(): environ[name] for name in _KEYS if environ.get(name)}
        store = S3Store(
            name,
            config=cast("S3Config", {**settings.store_config(), **keys}),
            client_options=cast("ClientConfig", settings.client_options()),
            retry_config={
                "max_retries": settings.retries,
                "retry_timeout": timedelta(seconds=settings.retry_seconds),
            },
            credential_provider=_profile(environ),
        )
        # deltalake looks for profiles and roles by itself; with an endpoint of our own only when it is told to.
        found = {f"aws_{name}": key for name, key in keys.items()} or {"AWS_FORCE_CREDENTIAL_LOAD": "true"}
        return cls(store, {**settings.storage_options(), **found})

    def list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """Objects below the folder `prefix` (empty: all) in name order, 1000 a request."""
        offset = f"{prefix}/{start_after}" if prefix and start_after else start_after
        for chunk in obstore.list(self.store, prefix or None, offset=offset or None, chunk_size=1000):
            # obstore drops a slash at the end of the offset: a little too much comes back.
            yield from (meta for meta in chunk if meta["path"] > offset)

    def head(self, key: str) -> ObjectMeta | None:
        try:
            return obstore.head(self.store, key)
        except FileNotFoundError:
            return None

    def exists(self, prefix: str) -> bool:
        return any(True for _ in self.list(prefix, ""))

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders right below the folder `prefix` (empty: all); one request."""
        for path in obstore.list_with_delimiter(self.store, f"{prefix}/" if prefix else None)["common_prefixes"]:
            yield path.rstrip("/").rpartition("/")[2]

    def read(self, key: str) -> bytes:
        return bytes(obstore.get(self.store, key).bytes())

    def stream(self, key: str) -> Iterator[bytes]:
        for part in obstore.get(self.store, key).stream():
            yield bytes(part)

    def write(self, key: str, data: bytes) -> None:
        obstore.put(self.store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self.store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self.store, key)
        except FileNotFoundError:  # S3 itself never says so, some of its likes do
            return

    def open(self, key: str) -> io.RawIOBase:
        """Each read is a request: to be buffered by `READ_AHEAD`."""
        return _Ranges(self.store, key, obstore.head(self.store, key)["size"])


def _profile(environ: Mapping[str, str]) -> Callable[[], S3Credential] | None:
    """A source of the credentials of a profile, which obstore alone does not read; null where it finds them itself."""
    name = profile_of(environ)
    if name is None:
        return None

    def make() -> Callable[[], S3Credential]:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - needs boto3, which few need

        return Boto3CredentialProvider()

    return of_profile(name, make)


class _Ranges(io.RawIOBase):
    """Reads by ranged requests; the buffer above it joins small ones."""

    def __init__(self, store: S3Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size, self._position = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readall(self) -> bytes:
        # That of RawIOBase would make a request for each 8 KiB.
        rest = bytearray(max(0, self._size - self._position))
        return bytes(rest[: self.readinto(memoryview(rest))])

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # callers pass a memoryview; the stub's Buffer has no len before 3.12
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = obstore.get_range(self._store, self._key, start=self._position, end=end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
