"""Names that sinks give their files."""

from __future__ import annotations

import pytest

from spark_jobs.rooms.dialects.debezium.dialect import classify, is_beside


@pytest.mark.parametrize(
    ("name", "file_format", "order"),
    [
        ("partition=0/shop.public.orders+0+0000000042.json", "json", ("42", "0")),
        ("partition=3/shop.public.orders+3+0000000042.json.gz", "json", ("42", "3")),
        ("year=2024/month=01/day=31/hour=12/orders+1+0000000007.snappy.parquet", "parquet", ("7", "1")),
        ("orders-0-12.gz", "json", ("12", "0")),
        ("orders-0-12", "json", ("12", "0")),
        ("2024/01/31/shop-orders-11-00000000000000000012.jsonl", "json", ("12", "11")),
        ("orders/2/00000000000000000099.ndjson", "json", ("99", "")),
        ("crm.shop.orders+2+00000000000000000042_97_1f3a9c2b.json.gz", "json", ("42", "2")),
        ("year=2024/month=01/crm.shop.t-1+0+00000000000000000007_8_00112233.avro", "json", ("7", "0")),
        ("anything at all.parquet", "parquet", ("", "")),
    ],
)
def test_data_files_are_ordered_by_offset_and_partition(name: str, file_format: str, order: tuple[str, str]) -> None:
    found = classify(name)
    assert found is not None
    offset, partition = order
    assert found == ("change", file_format, (offset.zfill(20), partition.zfill(10), name))


@pytest.mark.parametrize(
    "name",
    [
        "partition=0/orders+0+0000000042.keys.json",
        "partition=0/orders+0+0000000042.headers.json.gz",
        "_temporary/orders+0+0000000042.json",
        "partition=0/orders+0+0000000042.json.tmp",
    ],
)
def test_other_files_of_the_sink_cause_no_warning(name: str) -> None:
    assert classify(name) is None
    assert is_beside(name)


@pytest.mark.parametrize("name", ["orders+0+0000000042.orc", "readme.txt", "orders.gz"])
def test_unknown_files_are_reported(name: str) -> None:
    assert classify(name) is None
    assert not is_beside(name)


def test_offsets_order_files_across_folders() -> None:
    names = ["b/t+0+0000000009.json", "a/t+0+0000000100.json", "c/t+0+0000000010.json"]
    found = {name: classify(name) for name in names}
    assert sorted(names, key=lambda name: (found[name] or ("", "", ()))[2]) == [names[0], names[2], names[1]]
