"""The faults of `test_faults` where every step of a table is a task of Spark.

python -m tests.s3.faults_on_spark puts|expiry
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from spark_jobs.tables.places import TaskBounds
from tests.conftest import SPARK, LocalPort
from tests.s3.conftest import Place, Server
from tests.s3.faulty import between
from tests.s3.gateway import find_server, serving
from tests.s3.test_faults import play_expiry, play_puts


def reach(place: Place) -> None:
    os.environ.update(place.environ)


def main(what: str) -> None:
    program = find_server()
    assert program is not None
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = stack.enter_context(serving(program, root))
        way = stack.enter_context(between(gateway.endpoint))
        server = Server(gateway, root / "buckets")
        os.environ |= {**gateway.environ, "AWS_ENDPOINT_URL": way.endpoint}  # before the JVM starts
        port = LocalPort("many", TaskBounds(files=-1, load=-1, key_range=200))  # however few bytes: in tasks
        stack.callback(SPARK.stop)
        if what == "puts":
            codes = play_puts(server, way, reach, random.Random(28), runs=25, port=port)  # noqa: S311 - repeatable
            assert codes["succeeded"] > 10, codes
        else:
            play_expiry(server, way, reach, range(0, 60, 3), port=port)
    print("passed")


if __name__ == "__main__":
    main(sys.argv[1])
