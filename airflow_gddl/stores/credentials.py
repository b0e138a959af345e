"""Credentials that obstore does not find by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow_gddl.contract.s3 import of_profile, profile_of

if TYPE_CHECKING:
    from obstore.store import S3Credential

Provider = Callable[[], "S3Credential"]


def credentials(environ: Mapping[str, str]) -> Provider | None:
    """Where obstore gets them from; null: from this process's environment or the machine's role, as it does itself.

    Args:
        environ: need not be this process's own: a connection may have been laid over it.

    Raises:
        FatalError: `S3_CREDENTIALS_MISSING`: a profile is named and can't be read.
    """
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return _given(environ)
    name = profile_of(environ)
    return None if name is None else _of_profile(name)


def _given(environ: Mapping[str, str]) -> Provider:
    found: S3Credential = {
        "access_key_id": environ["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environ["AWS_SECRET_ACCESS_KEY"],
        "token": environ.get("AWS_SESSION_TOKEN") or None,
        "expires_at": None,
    }
    return lambda: found


def _of_profile(name: str) -> Provider | None:
    """
    Args:
        name: empty: the default one.
    """

    def make() -> Provider:
        import boto3  # noqa: PLC0415 - few need it
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - imported when needed

        return Boto3CredentialProvider(boto3.Session(profile_name=name or None))

    return of_profile(name, make)
