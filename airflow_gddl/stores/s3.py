"""Objects in S3 through obstore, by their URLs.

Imported when the first `s3://` path is opened: DAG files are parsed often, and a local lake needs no client.
"""

from __future__ import annotations

import functools
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import S3Store

from airflow_gddl.contract.codes import S3_CREDENTIALS_MISSING, S3_UNREACHABLE, STORAGE_UNUSABLE
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.packages import needed_by, package_missing
from airflow_gddl.contract.s3 import PROFILE_REMEDY, S3Settings, is_on, profile_of, split
from airflow_gddl.contract.source_access import EXTERNAL_ID, ROLE
from airflow_gddl.stores.readers import LAST_BYTES, READ_AHEAD, StoredObject, StoreReader

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_QUICK_RETRIES, _QUICK_SECONDS = 3, 20
_EARLY = timedelta(minutes=5)
_PASSING = ("Throttling", "RequestLimitExceeded", "ServiceUnavailable", "InternalFailure", "IDPCommunicationError")


def client(bucket: str, environ: Mapping[str, str], *, quick: bool = False) -> S3Store:
    """The process's one client of a bucket and these settings and credentials.

    Args:
        environ: may differ from this process's: a connection may be overlaid.
        quick: gives up within 20 s, for callers that poll again by themselves.

    Raises:
        FatalError: `S3_ENDPOINT_INVALID`, `S3_CREDENTIALS_MISSING`; `STORAGE_UNUSABLE`: not a valid bucket name.
    """
    concerned = ((name, value) for name, value in environ.items() if name.startswith("AWS_") or name == "HOME")
    return _client(bucket, tuple(sorted(concerned)), quick)


def options(environ: Mapping[str, str]) -> dict[str, str]:
    """What `deltalake` takes as `storage_options`; may hold keys."""
    keys = {f"aws_{name.removeprefix('AWS_').lower()}": environ[name] for name in _KEYS if environ.get(name)}
    # deltalake finds profiles and roles by itself, but with a custom endpoint only if this is set.
    return {**S3Settings.of(environ).storage_options(), **(keys or {"AWS_FORCE_CREDENTIAL_LOAD": "true"})}


@functools.lru_cache(maxsize=32)  # a connection that assumes a role gives other credentials each time
def _client(bucket: str, variables: tuple[tuple[str, str], ...], quick: bool) -> S3Store:
    if not _BUCKET.fullmatch(bucket):
        # Not shown: it may hold keys, which some tools take there.
        remedy = "write s3://bucket/prefix; credentials have no place in it"
        raise FatalError(STORAGE_UNUSABLE, "the URL does not name a bucket", remedy=remedy)
    environ = dict(variables)
    settings = S3Settings.of(environ)
    retries = min(_QUICK_RETRIES, settings.retries) if quick else settings.retries
    is_unsigned = is_on(environ, "AWS_SKIP_SIGNATURE")
    return S3Store(
        bucket,
        config=cast("S3Config", settings.store_config() | ({"skip_signature": True} if is_unsigned else {})),
        client_options=cast("ClientConfig", settings.client_options()),
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=_QUICK_SECONDS if quick else settings.retry_seconds),
        },
        credential_provider=None if is_unsigned else _credentials(environ),
    )


def _credentials(environ: Mapping[str, str]) -> Callable[[], S3Credential] | None:
    """Credentials that obstore does not find by itself; None: it looks in this process's environment, then for a role.

    Keys are never mixed with those of the process's environment, which a connection may overlay.
    """
    if environ.get(ROLE):
        return _of_role(environ)
    if not (environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY")):
        name = profile_of(environ)
        return None if name is None else _of_profile(name)
    credential: S3Credential = {
        "access_key_id": environ["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environ["AWS_SECRET_ACCESS_KEY"],
        "token": environ.get("AWS_SESSION_TOKEN") or None,
        "expires_at": None,
    }
    return lambda: credential


def _of_role(environ: Mapping[str, str]) -> Callable[[], S3Credential]:
    """Credentials of a role, assumed with those of the environment now and again before they expire.

    Raises:
        FatalError: `S3_CREDENTIALS_MISSING`: it can't be assumed; `PACKAGE_MISSING`.
        RetriableError: `S3_UNREACHABLE`: STS does not answer.
    """
    role = environ[ROLE]
    with needed_by(f"assuming the role {role}", install="airflow-gddl[s3]"):
        import boto3  # noqa: PLC0415 - few need it
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above
        from obstore.auth.boto3 import StsCredentialProvider  # noqa: PLC0415 - needs boto3
    keys = {name.lower(): environ[name] for name in _KEYS if environ.get(name)}
    role_options: dict[str, Any] = {"ExternalId": environ[EXTERNAL_ID]} if environ.get(EXTERNAL_ID) else {}
    try:
        profile = None if keys else environ.get("AWS_PROFILE") or None
        session = boto3.Session(**keys, profile_name=profile, region_name=S3Settings.of(environ).region or "us-east-1")
        assumed = StsCredentialProvider(session, RoleArn=role, RoleSessionName="airflow-gddl", **role_options)
        first = [_renewed_early(assumed())]
    except (BotoCoreError, ClientError) as error:
        code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
        what = f"the role {role} can't be assumed: {error}"
        if code in _PASSING or type(error).__name__ in ("EndpointConnectionError", "ConnectTimeoutError"):
            raise RetriableError(S3_UNREACHABLE, what, remedy="try again") from error
        remedy = "check its ARN, its trust policy and external_id, and the credentials of where this runs"
        raise FatalError(S3_CREDENTIALS_MISSING, what, remedy=remedy) from error
    return lambda: first.pop() if first else _renewed_early(assumed())


def _renewed_early(credential: S3Credential) -> S3Credential:
    """obstore asks again only when they have expired, and takes no UTC but Python's own."""
    expires = credential["expires_at"]
    return {**credential, "expires_at": None if expires is None else expires.astimezone(UTC) - _EARLY}


def _of_profile(name: str) -> Callable[[], S3Credential] | None:
    """Credentials of a profile of the configuration files, which obstore itself does not read.

    Args:
        name: empty: the default one.

    Returns:
        null where an unnamed profile file exists but boto3 is not installed: the machine's role may apply.

    Raises:
        FatalError: `S3_CREDENTIALS_MISSING`, `PACKAGE_MISSING`.
    """
    try:
        import boto3  # noqa: PLC0415 - few need it
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - needs boto3

        return Boto3CredentialProvider(boto3.Session(profile_name=name or None))
    except ModuleNotFoundError as error:
        if not name:
            return None
        missing = package_missing(f"the profile {name!r} of AWS_PROFILE", "boto3")
        raise FatalError(missing.code, missing.what, where=missing.where, remedy=PROFILE_REMEDY) from error
    except Exception as error:
        what = f"the profile {name or 'default'!r} gives no credentials: {error}"
        raise FatalError(S3_CREDENTIALS_MISSING, what, remedy="check the profile") from error


if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion


class Buckets:
    """The S3 part of `Storage`; a missing object is a FileNotFoundError."""

    def __init__(self, environ: Mapping[str, str], *, quick: bool) -> None:
        self._environ, self._quick = environ, quick
        self._clients: dict[str, S3Store] = {}

    def _at(self, url: str) -> tuple[S3Store, str]:
        bucket, key = split(url)
        if bucket not in self._clients:
            self._clients[bucket] = client(bucket, self._environ, quick=self._quick)
        return self._clients[bucket], key

    def list(self, folder: str, after: str, _within: str | None) -> Iterator[StoredObject]:
        """1000 objects a request."""
        store, key = self._at(folder)
        prefix = f"{key}/" if key else ""
        offset = f"{prefix}{after}" if after else None
        for chunk in obstore.list(store, key or None, offset=offset, chunk_size=1000):
            for meta in chunk:
                name = meta["path"][len(prefix) :]
                # obstore drops a trailing slash of the offset and returns a few more objects.
                if name > after:
                    yield _stored(folder, name, meta)

    def stat(self, url: str, _within: str | None) -> StoredObject:
        store, key = self._at(url)
        folder, _, name = url.rpartition("/")
        return _stored(folder, name, obstore.head(store, key))

    def exists(self, folder: str) -> bool:
        return any(True for _ in self.list(folder, "", None))

    def folders(self, folder: str) -> Iterator[str]:
        """One request."""
        store, key = self._at(folder)
        for path in obstore.list_with_delimiter(store, f"{key}/" if key else None)["common_prefixes"]:
            yield path.rstrip("/").rpartition("/")[2]

    def read(self, url: str) -> tuple[bytes, str]:
        response = obstore.get(*self._at(url))
        return bytes(response.bytes()), response.meta["e_tag"] or ""

    def stream(self, url: str) -> Iterator[bytes]:
        for part in obstore.get(*self._at(url)).stream():
            yield bytes(part)

    def open(self, url: str) -> BinaryIO:
        """One request, which reads all of a small object."""
        store, key = self._at(url)
        try:
            response = obstore.get(store, key, options={"range": (0, READ_AHEAD)})
            size, start = response.meta["size"], bytes(response.bytes())
        except GenericError as error:
            if "range" not in str(error).lower():
                raise
            size, start = obstore.head(store, key)["size"], b""  # an empty object has no such range
        return StoreReader(url, _Ranges(store, key, size, start), READ_AHEAD)

    def write(self, url: str, data: bytes) -> None:
        self._put(url, data, "overwrite")

    def copy(self, url: str, target: str) -> None:
        store, key = self._at(url)
        obstore.copy(store, key, split(target)[1])

    def create(self, url: str, data: bytes) -> bool:
        return self._put(url, data, "create")

    def swap(self, url: str, data: bytes, tag: str | None) -> bool:
        return self._put(url, data, "create" if tag is None else {"e_tag": tag})

    def _put(self, url: str, data: bytes, mode: Literal["create", "overwrite"] | UpdateVersion) -> bool:
        try:
            obstore.put(*self._at(url), data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def delete(self, urls: Sequence[str]) -> None:
        """Deletes 1000 objects of a bucket with each request."""
        for _, group in itertools.groupby(sorted(urls), lambda url: split(url)[0]):
            same = list(group)
            store, key = self._at(same[0])
            obstore.delete(store, key if len(same) == 1 else [split(url)[1] for url in same])


def _stored(folder: str, name: str, meta: ObjectMeta) -> StoredObject:
    return StoredObject(folder, name, meta["size"], (meta["e_tag"] or "").strip('"'), meta["last_modified"].timestamp())


class _Ranges(io.RawIOBase):
    """Reads by ranged requests; the buffer above it joins small ones.

    The last bytes that were read of its end need no other request.

    Args:
        start: the object's first bytes, which need no request.
    """

    def __init__(self, store: S3Store, key: str, size: int, start: bytes) -> None:
        super().__init__()
        self._store, self._key, self._size, self._position = store, key, size, 0
        self._start, self._end = start, (size, b"")

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
        # RawIOBase's implementation would send a request for each 8 KiB.
        rest = bytearray(max(0, self._size - self._position))
        done = 0
        while done < len(rest) and (count := self.readinto(memoryview(rest)[done:])):
            done += count
        return bytes(rest[:done])

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # callers pass a memoryview; the stub's Buffer has no len before 3.12
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data: Any = self._start[self._position : end]
        if not data and self._position >= self._end[0]:
            data = self._end[1][self._position - self._end[0] : end - self._end[0]]
        if not data:
            data = obstore.get_range(self._store, self._key, start=self._position, end=end)
            if end == self._size and end - self._position <= LAST_BYTES:
                self._end = (self._position, bytes(data))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
