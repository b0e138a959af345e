"""docs/permissions.md: each role does its work with the policy of the page, and not without any of its actions."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain, Rebuild, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.contract.table_spec import LandingRetention
from airflow_gddl.runtime.landing.polling import poll
from airflow_gddl.stores import Storage, open_store
from airflow_gddl.tools.onboarding.landing import Landing, measured_key
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job
from tests.s3.gateway import find_server
from tests.s3.restricted import LAKE, LANDING, Policy, RestrictedServer, policies_of_page, restricted
from tests.unit.pages import ROOT

POLICIES = policies_of_page()
NUMBERS = itertools.count()
Account = Mapping[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestrictedServer]:
    program = find_server()
    if program is None:
        pytest.skip("no S3 server: neither versitygw nor Go to build it with")
    with restricted(program, tmp_path_factory.mktemp("iam")) as running:
        yield running


def role(server: RestrictedServer, *names: str, without: str = "") -> Account:
    """An account with the policies of roles; `without`: and without an action."""
    policies = [without_action(POLICIES[name], without) for name in names]
    return server.account(f"{'-'.join(names)}-{next(NUMBERS)}", policies)


def without_action(policy: Policy, action: str) -> Policy:
    kept = [{**one, "Action": [a for a in actions_of(one) if a != action]} for one in policy["Statement"]]
    return {**policy, "Statement": [one for one in kept if one["Action"]]}


def actions_of(statement: Mapping[str, Any]) -> list[str]:
    actions = statement["Action"]
    return [actions] if isinstance(actions, str) else list(actions)


def spec(name: str, **fields: Any) -> TableSpec:
    return TableSpec(table=f"shop.{name}", keys=("id",), sequence_by=("seq",), history=True, settle="0s", **fields)


ROOTS = Roots(landing=f"s3://{LANDING}/dms", lake=f"s3://{LAKE}/gddl")


def land(server: RestrictedServer, name: str, file: str, rows: Mapping[str, list[Any]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    obstore.put(server.gateway.store(LANDING), f"dms/shop/{name}/{file}.parquet", sink.getvalue())


def deliver(server: RestrictedServer, name: str) -> None:
    land(server, name, "LOAD00000001", {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    rows: dict[str, list[Any]] = {"Op": ["U", "D", "X"], "seq": [1, 2, 3], "id": [1, 2, 3], "v": ["new", None, "y"]}
    land(server, name, "20240101-000000001", rows)


def job(account: Account, table: TableSpec, options: JobOptions | None = None) -> JobResult:
    tiers = {size: replace(tier, tasks="one") for size, tier in DEFAULT_TIERS.items()}
    asked = JobSpec(run_id=f"run-{next(NUMBERS)}", roots=ROOTS, tables=(table,), tiers=tiers)
    asked = replace(asked, options=options or JobOptions())
    (outcome,) = run_job(asked, Runtime(storage=Storage(environ=account), spark=NoSpark()), lambda _: None)
    return outcome.result


def done(account: Account, table: TableSpec, options: JobOptions | None = None) -> JobResult:
    result = job(account, table, options)
    assert result.error is None, result.error
    return result


def every_step(account: Account, table: TableSpec) -> None:
    """What jobs do to a table, in the order in which it may come."""
    assert done(account, table).main.inserted
    assert "'verdict': 'equal'" in str(done(account, table, JobOptions(action=Verify())).details)
    done(account, table, JobOptions(action=Rebuild()))
    done(account, table, JobOptions(action=Maintain()))


def test_page_has_the_policies_of_all_roles() -> None:
    assert set(POLICIES) == {"airflow", "job", "landing", "page", "reader"}
    assert all(
        resource.startswith((f"arn:aws:s3:::{LANDING}", f"arn:aws:s3:::{LAKE}"))
        for policy in POLICIES.values()
        for one in policy["Statement"]
        for resource in ([one["Resource"]] if isinstance(one["Resource"], str) else one["Resource"])
    )


def test_job_does_all_its_steps(server: RestrictedServer) -> None:
    deliver(server, "job")
    every_step(role(server, "job"), spec("job"))


@pytest.mark.parametrize("action", ["s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_job_needs_each_of_its_actions(action: str, server: RestrictedServer) -> None:
    name = action.removeprefix("s3:").lower()
    deliver(server, name)
    account = role(server, "job", without=action)
    errors = [job(account, spec(name), options).error for options in (None, JobOptions(action=Maintain()))]
    assert "STORAGE_DENIED" in {error.code for error in errors if error is not None}


@pytest.mark.parametrize("old", [1, 3])
def test_job_without_the_policy_of_landing_files_removes_none(old: int, server: RestrictedServer) -> None:
    """One file is deleted by another request than several."""
    name = f"retained{old}"
    table = spec(name, landing_retention=LandingRetention(after="1d"))
    for number in range(old + 1):
        if number == old:
            time.sleep(1.1)  # the server keeps seconds, and of the newest files all stay
        rows: dict[str, list[Any]] = {"Op": ["I"], "seq": [number], "id": [number], "v": ["x"]}
        land(server, name, f"2024010{number + 1}-000000001", rows)
    done(role(server, "job"), table)
    refused = maintained(role(server, "job"), table)
    assert refused.error is not None
    assert refused.error.code == "STORAGE_DENIED"
    assert len(landed(server, name)) == old + 1
    allowed = maintained(role(server, "job", "landing"), table)
    assert allowed.error is None, allowed.error
    assert len(landed(server, name)) == 1, "the newest stays"


def maintained(account: Account, table: TableSpec) -> JobResult:
    """Maintenance a week later."""
    runtime = Runtime(
        storage=Storage(environ=account), spark=NoSpark(), clock=lambda: datetime.now(UTC) + timedelta(days=7)
    )
    tiers = {size: replace(tier, tasks="one") for size, tier in DEFAULT_TIERS.items()}
    asked = JobSpec(
        run_id=f"run-{next(NUMBERS)}", roots=ROOTS, tables=(table,), tiers=tiers, options=JobOptions(action=Maintain())
    )
    (outcome,) = run_job(asked, runtime, lambda _: None)
    return outcome.result


def landed(server: RestrictedServer, name: str) -> list[str]:
    return [item["path"] for page in obstore.list(server.gateway.store(LANDING), f"dms/shop/{name}/") for item in page]


def test_airflow_polls_and_keeps_its_documents(server: RestrictedServer) -> None:
    deliver(server, "polled")
    account = role(server, "airflow")
    found = poll(open_store(account), ROOTS.landing, ["shop.polled"])
    assert found
    storage = Storage(environ=account)
    path = f"{ROOTS.lake}/_gddl/airflow/p.json"
    storage.write(path, b"{}")
    assert storage.read(path) == b"{}"
    storage.delete(path)
    for path in (f"{ROOTS.lake}/shop/polled/x", f"{ROOTS.landing}/shop/polled/x"):
        with pytest.raises(Exception, match="STORAGE_DENIED"):
            storage.write(path, b"{}")
    with pytest.raises(Exception, match="STORAGE_DENIED"):
        storage.read(f"{ROOTS.landing}/shop/polled/LOAD00000001.parquet")


def test_airflow_measures_keys_of_new_tables_with_one_right_more(server: RestrictedServer) -> None:
    """`new_tables` of a source, the page's exception."""
    deliver(server, "fresh")
    assert "needs `s3:GetObject` on `company-landing/dms/*`, too" in (ROOT / "docs" / "permissions.md").read_text()
    reads = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{LANDING}/dms/*"}
    more = {**POLICIES["airflow"], "Statement": [*POLICIES["airflow"]["Statement"], reads]}
    landing = Landing(ROOTS.landing, server.account(f"new-tables-{next(NUMBERS)}", [more]))
    (folder,) = landing.folders(frozenset(["shop.fresh"]))
    found = measured_key(landing, folder)
    assert found is not None
    assert found.columns == ("id",)
    denied = Landing(ROOTS.landing, role(server, "airflow"))
    (unread,) = denied.folders(frozenset(["shop.fresh"]))
    assert measured_key(denied, unread) is None, "the table is proposed without a key"


def options_of(account: Account) -> dict[str, str]:
    return {**account, "AWS_ALLOW_HTTP": "true"}


def test_reader_sees_replica_and_history_alone(server: RestrictedServer) -> None:
    deliver(server, "read")
    done(role(server, "job"), spec("read"))
    options = options_of(role(server, "reader"))

    def rows(table: str) -> int:
        found = DeltaTable(f"{ROOTS.lake}/shop/{table}", storage_options=options)
        return int(pa.table(found.scan()).num_rows)

    assert rows("read") == 2
    assert rows("read__history") > 2
    for hidden in ("read__errors", "read__changes"):
        with pytest.raises(Exception, match=r"(?i)denied|403|forbidden"):
            rows(hidden)
    with pytest.raises(Exception, match="STORAGE_DENIED"):
        Storage(environ=role(server, "reader")).read(f"{ROOTS.lake}/_gddl/ledger/shop/read/commits/1.json")


def test_page_reads_what_runs_left_and_writes_nothing(server: RestrictedServer) -> None:
    deliver(server, "shown")
    done(role(server, "job"), spec("shown"))
    account = role(server, "page")
    storage = Storage(environ=account)
    assert storage.read(_newest_run(storage, "shown"))
    with pytest.raises(Exception, match="STORAGE_DENIED"):
        storage.write(f"{ROOTS.lake}/_gddl/state/x.json", b"{}")
    with pytest.raises(Exception, match=r"(?i)denied|403|forbidden"):
        DeltaTable(f"{ROOTS.lake}/shop/shown", storage_options=options_of(account))


def _newest_run(storage: Storage, name: str) -> str:
    return max(item.path for item in storage.list(f"{ROOTS.lake}/_gddl/ledger/shop/{name}"))
