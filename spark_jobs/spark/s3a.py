"""Settings of Spark's file system S3A, equal to those of the other clients of S3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_gddl.contract.s3 import S3Settings, buckets

_FIXED = {
    "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    # Environment, profile, web identity, container, machine, in this order; S3A's own list has no profiles.
    "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    # The defaults of client and file system multiply to minutes.
    "fs.s3a.attempts.maximum": "3",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.retry.throttle.limit": "10",
    "fs.s3a.connection.establish.timeout": "5s",
}
_LOG_STORE = "io.delta.storage.S3SingleDriverLogStore"


def s3a_settings(environ: Mapping[str, str], places: Iterable[str]) -> dict[str, str]:
    """Spark settings (`spark.…`) for jobs on these roots; empty when all are local.

    No credentials: S3A reads those of the process it runs in, such as `AWS_ACCESS_KEY_ID`.

    Raises:
        FatalError: `S3_ENDPOINT_INVALID`.
    """
    if not buckets(places):
        return {}
    settings = S3Settings.of(environ)
    hadoop = {**_FIXED, "fs.s3a.connection.timeout": f"{settings.seconds}s"}
    hadoop["fs.s3a.retry.limit"] = str(min(5, settings.retries))
    if settings.region is not None:
        hadoop["fs.s3a.endpoint.region"] = settings.region
    if settings.endpoint is not None:
        hadoop["fs.s3a.endpoint"] = settings.endpoint
        hadoop["fs.s3a.path.style.access"] = str(settings.path_style).lower()
        hadoop["fs.s3a.connection.ssl.enabled"] = str(not settings.allow_http).lower()
    return {
        **{f"spark.hadoop.{name}": value for name, value in hadoop.items()},
        **{f"spark.delta.logStore.{scheme}.impl": _LOG_STORE for scheme in ("s3", "s3a")},
    }
