"""How S3 is reached, as the environment tells, for each of the clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.s3 import S3Settings, buckets, profile_of, s3_error, split
from airflow_gddl.contract.spec import Roots
from spark_jobs.spark.s3a import s3a_settings

BOTH = Roots(landing="s3://in/x", lake="s3://out")
LOCAL = Roots(landing="/in", lake="/out")
HERE = "http://127.0.0.1:9000"


def test_amazons_own_endpoint_needs_nothing() -> None:
    settings = S3Settings.of({"AWS_DEFAULT_REGION": "eu-west-1"})
    assert settings.store_config() == {"region": "eu-west-1"}
    assert settings.client_options()["allow_http"] is False
    assert settings.storage_options()["aws_region"] == "eu-west-1"
    assert S3Settings.of({}).region is None


def test_the_endpoint_for_s3_goes_before_the_one_for_all() -> None:
    environ = {"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3.example/"}
    settings = S3Settings.of(environ)
    assert (settings.endpoint, settings.path_style, settings.region) == ("https://s3.example", True, "us-east-1")
    assert settings.store_config()["virtual_hosted_style_request"] is False
    assert S3Settings.of({**environ, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}).path_style is False


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "s3.localhost"])
def test_plain_http_is_allowed_on_this_machine(host: str) -> None:
    assert S3Settings.of({"AWS_ENDPOINT_URL": f"http://{host}:9000"}).allow_http


@pytest.mark.parametrize(
    "url", ["http://minio:9000", "minio:9000", "ftp://x", "https://key:hidden7@h", "https://h?a=b", "http://"]
)
def test_other_endpoints_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(FatalError) as error:
        S3Settings.of({"AWS_ENDPOINT_URL": url})
    assert error.value.code == "S3_ENDPOINT_INVALID"
    assert "hidden7" not in str(error.value)


def test_plain_http_elsewhere_must_be_allowed() -> None:
    assert S3Settings.of({"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"}).allow_http


@pytest.mark.parametrize(("written", "retries"), [("1", 0), ("4", 3), ("0", 0), ("", 8), ("many", 8)])
def test_attempts_are_retries_plus_one_and_eight_by_default(written: str, retries: int) -> None:
    assert S3Settings.of({"AWS_MAX_ATTEMPTS": written}).retries == retries
    assert S3Settings.of({"AWS_MAX_ATTEMPTS": written}).storage_options()["max_retries"] == str(retries)


def test_urls_are_split_into_buckets_and_keys() -> None:
    assert buckets((BOTH.landing, BOTH.lake)) == ("in", "out")
    assert buckets((LOCAL.landing, LOCAL.lake)) == ()
    assert split("s3://b/x/y/") == ("b", "x/y")


def test_local_roots_need_no_spark_settings() -> None:
    assert s3a_settings({"AWS_ENDPOINT_URL": "nonsense"}, (LOCAL.landing, LOCAL.lake)) == {}


def test_spark_settings_equal_other_clients_without_secrets() -> None:
    environ = {"AWS_ENDPOINT_URL": HERE, "AWS_ACCESS_KEY_ID": "hunter22", "AWS_SECRET_ACCESS_KEY": "hunter22"}
    settings = s3a_settings(environ, ("/in", "s3://out"))
    assert settings["spark.hadoop.fs.s3a.endpoint"] == HERE
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert settings["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert settings["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert "hunter22" not in str(settings)


def test_a_profile_serves_only_where_nothing_else_does(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert profile_of(home) is None
    assert profile_of({**home, "AWS_PROFILE": "dev"}) == "dev"
    assert profile_of({**home, "AWS_PROFILE": "dev", "AWS_ACCESS_KEY_ID": "k"}) is None
    assert profile_of({**home, "AWS_WEB_IDENTITY_TOKEN_FILE": "t"}) is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\n")
    assert profile_of(home) == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("400 Bad Request: <Error><Code>ExpiredToken</Code>", "S3_CREDENTIALS_EXPIRED"),
        ("S3Exception: ... (Service: S3, Status Code: 403) SignatureDoesNotMatch", "S3_CREDENTIALS_REFUSED"),
        ("error sending request for url (http://169.254.169.254/latest/api/token)", "S3_CREDENTIALS_MISSING"),
        ("404 Not Found: <Error><Code>NoSuchBucket</Code>", "S3_BUCKET_MISSING"),
        ("301 Moved Permanently: <Code>PermanentRedirect</Code>", "S3_REGION_WRONG"),
        ("HTTP error: error sending request", "S3_UNREACHABLE"),
        ("<Code>AccessDenied</Code>", None),
        ("<Code>NoSuchKey</Code>", None),
        ("503 <Code>SlowDown</Code> of s3://b/ExpiredToken/NoSuchBucket/x", None),
    ],
)  # fmt: skip
def test_bucket_wide_errors_are_recognised_by_their_text(text: str, code: str | None) -> None:
    error = s3_error(text, "s3://b")
    assert (error and error.code) == code
    assert isinstance(error, RetriableError) == (code == "S3_UNREACHABLE")
