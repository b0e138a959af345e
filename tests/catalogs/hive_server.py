"""Apache Hive's own metastore over Thrift, of Spark's jars, with Derby below it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.s3.gateway import free_port, running

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={0}/metastore;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{0}/warehouse</value></property>
<property><name>datanucleus.connectionPoolingType</name><value>none</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>"""


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """URI of a metastore that keeps what it knows in `root`, until the block ends."""
    if shutil.which("java") is None:
        pytest.skip("no Java")
    root.mkdir(parents=True, exist_ok=True)
    (root / "hive-site.xml").write_text(_SITE.format(root))
    port, log = free_port(), root / "server.log"
    classes = f"{root}:{Path(pyspark.__file__).parent / 'jars'}/*"
    light = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    command = ["java", *light, "-cp", classes, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    with running(command, f"127.0.0.1:{port}", log, cwd=root):
        yield f"thrift://127.0.0.1:{port}"
