"""What a poll of one table's landing folder costs on S3, by the files that are known: listings and seconds.

The S3 server is in this process, over HTTP. See README.md beside this file. The last line on standard output is JSON.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from measuring import print_figures

from airflow_gddl.contract.spec import DEFAULT_TIERS, Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.tables_with_work import Question, observe
from airflow_gddl.topology.pipelines import arrange
from tests.harness.s3_server import Bucket, serving

SIZES = (10_000, 100_000, 1_000_000)
EVERY = timedelta(minutes=5)
"""A change file lands."""
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
_DOLLARS_PER_LIST = 0.005 / 1000
"""Of S3 Standard in us-east-1."""


@dataclass
class LargeBucket(Bucket):
    """Lists a million names without sorting them at each request."""

    names: list[str] = field(default_factory=list)
    lists: int = 0

    def listing(self, query: dict[str, list[str]]) -> str:
        self.lists += 1
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        first = max(bisect.bisect_left(self.names, prefix), bisect.bisect_right(self.names, after))
        page = [name for name in self.names[first : first + self.page] if name.startswith(prefix)]
        more = len(page) == self.page
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-31T10:20:30.000Z</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>{len(self.objects.get(key, b' '))}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{items}</ListBucketResult>"


def at_server(url: str) -> None:
    """Look for `s3://` there, in this process and its children."""
    settings = {"ALLOW_HTTP": "true", "REGION": "eu-west-1", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    os.environ |= {f"AWS_{name}": value for name, value in settings.items()}
    os.environ["AWS_ENDPOINT_URL"] = url


@contextmanager
def on_s3(bucket: LargeBucket) -> Iterator[LargeBucket]:
    """Serve `s3://bucket` until the block ends."""
    with serving(bucket) as url:
        at_server(url)
        yield bucket


def measured(bucket: LargeBucket, count: int, lake: str) -> dict[str, object]:
    """A first poll, which lists everything, and one of the next scheduled run."""
    bucket.names = [f"land/s/a/{NOW - EVERY * n:%Y%m%d-%H%M%S}000.parquet" for n in reversed(range(count))]
    spec = TableSpec(table="s.a", keys=("id",), source="s")
    (pipeline,) = arrange([spec], DEFAULT_TIERS).pipelines
    roots = Roots(landing="s3://bucket/land", lake=lake)
    document = PipelineDocument(pipeline=pipeline, roots=roots, runner="local", specs=(spec,), tiers=DEFAULT_TIERS)
    found: dict[str, object] = {"files": count}
    marks = []
    for name, moment in (("full", NOW), ("next", NOW + timedelta(hours=1))):
        began, lists = time.perf_counter(), bucket.lists
        work = observe(document, Question(run="scheduled__1", now=moment.isoformat()))
        marks.append({**work.initial, **work.increments}["s.a"])
        listings = bucket.lists - lists
        found[name] = {"listings": listings, "seconds": round(time.perf_counter() - began, 2)}
        found[f"{name}_dollars_5000_tables_hourly"] = round(5000 * 24 * listings * _DOLLARS_PER_LIST, 2)
    if marks[0] != marks[1]:
        raise SystemExit(f"a poll behind the watermark sees other files than a full one: {marks}")
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="1: up to a million files")
    scale = options.parse_args().scale
    results = []
    with on_s3(LargeBucket()) as bucket:
        for size in SIZES:
            with tempfile.TemporaryDirectory() as lake:
                results.append(measured(bucket, int(size * scale), lake))
                sys.stderr.write(f"{json.dumps(results[-1])}\n")
    print_figures(results, "files", "listings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
