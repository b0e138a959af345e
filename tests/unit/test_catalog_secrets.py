"""Secrets are refused wherever they stand, and never repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.problems import find, looks_secret, named_secret
from airflow_gddl.metadata.settings import SettingsError
from tests.unit.metadata_folder import loaded, only_problem, row_file, write

GOOD = "{table: shop.good, keys: [id]}"
KEY_ID = "AKIA" + "QWERTYUIOP123456"

SECRETS = [
    ({"password": "hunter22"}, "password", "hunter22"),
    ({"tags": {"db_passwd": "hunter22"}}, "tags.db_passwd", "hunter22"),
    ({"tags": {"a": KEY_ID}}, "tags.a", KEY_ID),
    ({"owner": f"me {KEY_ID} you"}, "owner", KEY_ID),
    ({"owner": "postgres://scott:tiger7@host/db"}, "owner", "tiger7"),
    ({"owner": "Server=x;Password=hunter22;"}, "owner", "hunter22"),
    ({"owner": "-----BEGIN RSA PRIVATE KEY-----"}, "owner", "BEGIN RSA"),
    ({"options": {"auth": {"client_secret": "hunter22"}}}, "options.auth.client_secret", "hunter22"),
    ({"options": {"access.key": 4711007}}, "options.access.key", "4711007"),
    ({"table_properties": {"fs.s3a.secret.key": "hunter22"}}, "table_properties.fs.s3a.secret.key", "hunter22"),
    ({"description": "export AWS_SECRET_ACCESS_KEY=hunter22"}, "description", "hunter22"),
    ({"depends_on": [f"s.{KEY_ID}"]}, "depends_on[0]", KEY_ID),
    ({"tags": {KEY_ID: "x"}}, "tags.(hidden)", KEY_ID),
]


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize(("fields", "field", "secret"), SECRETS, ids=[field for _, field, _ in SECRETS])
def test_a_row_with_a_secret_is_refused_without_repeating_it(
    tmp_path: Path, ending: str, fields: dict[str, object], field: str, secret: str
) -> None:
    row = {"table": "s.a", "keys": ["id"], "nonsense": fields, **fields}
    text = json.dumps({"source": "shop", "tables": [row, {"table": "shop.good", "keys": ["id"]}]})
    catalog = loaded(tmp_path, {f"tables/a.{ending}": text})
    assert [spec.table for spec in catalog.tables] == ["shop.good"]
    assert {(problem.code, problem.value) for problem in catalog.problems} == {("SECRET_LIKE", "(hidden)")}
    assert field in [problem.field for problem in catalog.problems]
    assert secret not in repr(catalog)
    assert secret not in "".join(map(str, catalog.problems))


def test_a_table_name_that_is_a_secret_is_not_shown(tmp_path: Path) -> None:
    problem = only_problem(loaded(tmp_path, {"tables/a.yaml": row_file("{table: 'pg://u:tiger7@h/x', keys: [id]}")}))
    assert (problem.code, problem.table, problem.field) == ("SECRET_LIKE", "(hidden)", "table")
    assert "tiger7" not in repr(problem)


@pytest.mark.parametrize(
    "files",
    [
        {"tables/a.yaml": "defaults: {tags: {token: hunter22}}\n" + row_file(GOOD)},
        {"tables/a.yaml": "password: hunter22\n" + row_file(GOOD)},
        {"tables/a.csv": 'table,keys,tags\ns.a,id,"{""token"": ""hunter22""}"\n'},
        {"tables/a.csv": "table,keys,owner\ns.a,id,password=hunter22\n"},
        {"keys/a.yaml": "keys: {s.a: ['pwd=hunter22']}\n"},
        {"keys/a.yaml": "password: hunter22\n"},
    ],
)
def test_secrets_beside_the_rows_are_not_repeated_either(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    catalog = loaded(tmp_path, files)
    assert "SECRET_LIKE" in {p.code for p in catalog.problems} or "(hidden)" in {p.value for p in catalog.problems}
    assert catalog.tables == ()
    assert "hunter22" not in repr(catalog)


@pytest.mark.parametrize(
    ("extra", "environ"),
    [
        ("runners: {databricks: {token: hunter22}}", {}),
        ("tiers: {small: {executor_config: {emr: {secret: hunter22}}}}", {}),
        ("password: hunter22", {}),
        ("tiers: {small: {executor_config: {emr: {conf: '-Dfs.s3a.secret.key=hunter22'}}}}", {}),
        ("defaults: {owner: 'pg://u:hunter22@h'}", {}),
        ("runners: {databricks: {tiers: {small: {environment: {GDDL_MASK_KEY: hunter22hunter22}}}}}", {}),
        ("runners: {databricks: {tiers: {small: {environment: {AIRFLOW_CONN_CRM_FILES: hunter22}}}}}", {}),
        ("runners: {databricks: {tiers: {small: {environment: {GDDL_SOURCE_CRM: hunter22}}}}}", {}),
        (
            'runners: {databricks: {tiers: {small: {environment: {ERP: \'{"login": "k", "password": "hunter22"}\'}}}}}',
            {},
        ),
        ("", {"GDDL_RUNNERS__DATABRICKS__TOKEN": "hunter22"}),
        ("", {"GDDL_LANDING": "s3://key:hunter22@bucket"}),
        ("", {"GDDL_LAKE": "s3://key:hunter22/with+slash@bucket/lake"}),
        ("", {"GDDL_LANDING": "s3a://hunter22@bucket"}),
    ],
)
def test_settings_with_secrets_stop_everything_without_repeating_them(
    tmp_path: Path, extra: str, environ: dict[str, str]
) -> None:
    folder = write(tmp_path, {"gddl.yaml": f"landing: a\nlake: b\n{extra}\n"})
    with pytest.raises(SettingsError, match="looks like a secret") as error:
        load(folder, environ)
    assert "hunter22" not in str(error.value) + repr(error.value.problems)


def test_names_of_columns_and_references_to_secrets_are_no_secrets(tmp_path: Path) -> None:
    row = "{table: auth.password_tokens, keys: [token], mask: {password: hash}, exclude_columns: [secret], "
    row += "options: {types: {password: string}}, tags: {token_env: X, secret_arn: 'arn:aws:x', api_key: ''}}"
    settings = "landing: a\nlake: b\nrunners: {x: {token: '{{ conn.db.token }}', use_token: true, password: null}}\n"
    catalog = loaded(tmp_path, {"gddl.yaml": settings, "tables/a.yaml": row_file(row)})
    assert catalog.problems == ()
    assert catalog.tables[0].mask == {"password": "hash"}


def test_what_looks_like_a_secret() -> None:
    for text in ('{"password": "x"}', '"aws_secret_access_key":"x"'):
        assert looks_secret(text), text
    for text in ('{"password": "{{secrets/a/b}}"}', '"password": null', '{"password_env": "X"}'):
        assert not looks_secret(text), text
    for name in ("GDDL_MASK_KEY", "AIRFLOW_CONN_CRM", "airflow_conn_crm_file", "GDDL_SOURCE_SHOP"):
        assert named_secret(name), name
    for name in ("GDDL_MASK_KEY_FILE", "GDDL_SOURCE_CONNECTIONS", "AIRFLOW_HOME"):
        assert not named_secret(name), name
    for text in (KEY_ID, "https://u:p@h", "x dapi" + "0" * 32, "ghp_" + "a" * 30, "token = abc"):
        assert looks_secret(text), text
    for text in ("AKIA", "s3://bucket/a@b", "https://host:80/x@y", "a:b@c", "passwords", "token", "password=${PW}"):
        assert not looks_secret(text), text
    for text in (
        "aws_secret_access_key=wJalr",
        "-Dfs.s3a.secret.key=abc -Da=b",
        "PGPASSWORD=x",
        "AccountKey=ab12==;EndpointSuffix=x",
        "SharedAccessKey=abc",
        "--conf fs.azure.account.key.acc.blob.core.windows.net=abc",
        f"Authorization: Bearer {'a' * 24}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJ{'a' * 12}.x",
    ):
        assert looks_secret(text), text
    for text in (
        "token_count = 3",
        "tokens = 5",
        "basic facts of orders",
        "password: see the vault",
        "a.token.file=/x",
    ):
        assert not looks_secret(text), text
    assert list(find({"a": [{"pwd": 1}]})) == [("a", 0, "pwd")]
