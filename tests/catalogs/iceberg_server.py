"""Apache Iceberg's own REST catalog (`RESTCatalogServer`, over SQLite), of the jars that Maven Central has of it.

Jackson, Avro, Hadoop's client and what else it needs are Spark's jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.s3.gateway import BIN, free_port, running

_CENTRAL = "https://repo1.maven.org/maven2"
_ICEBERG, _JETTY = "1.11.0", "12.1.14"
_JARS = {
    f"org/apache/iceberg/iceberg-open-api/{_ICEBERG}/iceberg-open-api-{_ICEBERG}-test-fixtures.jar": "b0aa8636d88c2497",
    f"org/apache/iceberg/iceberg-core/{_ICEBERG}/iceberg-core-{_ICEBERG}-tests.jar": "4284719a5f0eb7db",
    f"org/apache/iceberg/iceberg-core/{_ICEBERG}/iceberg-core-{_ICEBERG}.jar": "53b9eb7a8c34fb99",
    f"org/apache/iceberg/iceberg-api/{_ICEBERG}/iceberg-api-{_ICEBERG}.jar": "f00675a12ceb6d83",
    f"org/apache/iceberg/iceberg-common/{_ICEBERG}/iceberg-common-{_ICEBERG}.jar": "b2835d00db7c92bd",
    f"org/apache/iceberg/iceberg-bundled-guava/{_ICEBERG}/iceberg-bundled-guava-{_ICEBERG}.jar": "396d48d93ef5735f",
    "com/github/ben-manes/caffeine/caffeine/2.9.3/caffeine-2.9.3.jar": "1e0a7bbef1dd7916",
    "org/apache/httpcomponents/client5/httpclient5/5.6.1/httpclient5-5.6.1.jar": "1e3d8444c3c27772",
    "org/apache/httpcomponents/core5/httpcore5/5.4/httpcore5-5.4.jar": "cec2981fa7f520ef",
    "org/apache/httpcomponents/core5/httpcore5-h2/5.4/httpcore5-h2-5.4.jar": "2e0f4ace15db2d16",
    "org/xerial/sqlite-jdbc/3.50.3.0/sqlite-jdbc-3.50.3.0.jar": "a3f53a2aa15ae942",
    f"org/eclipse/jetty/ee10/jetty-ee10-servlet/{_JETTY}/jetty-ee10-servlet-{_JETTY}.jar": "cfea6fa831b8bf11",
    f"org/eclipse/jetty/compression/jetty-compression-common/{_JETTY}/jetty-compression-common-{_JETTY}.jar": (
        "121a28a3aad2a036"
    ),
    f"org/eclipse/jetty/compression/jetty-compression-gzip/{_JETTY}/jetty-compression-gzip-{_JETTY}.jar": (
        "d0994b3a821d2946"
    ),
    f"org/eclipse/jetty/compression/jetty-compression-server/{_JETTY}/jetty-compression-server-{_JETTY}.jar": (
        "91c6078fe3aa46b8"
    ),
    f"org/eclipse/jetty/jetty-http/{_JETTY}/jetty-http-{_JETTY}.jar": "a898f3dad99c2505",
    f"org/eclipse/jetty/jetty-io/{_JETTY}/jetty-io-{_JETTY}.jar": "9a41452f362f5bd9",
    f"org/eclipse/jetty/jetty-security/{_JETTY}/jetty-security-{_JETTY}.jar": "62d4a246b978adee",
    f"org/eclipse/jetty/jetty-server/{_JETTY}/jetty-server-{_JETTY}.jar": "62a2c691ecb3b601",
    f"org/eclipse/jetty/jetty-session/{_JETTY}/jetty-session-{_JETTY}.jar": "5b091e6132ba30a5",
    f"org/eclipse/jetty/jetty-util/{_JETTY}/jetty-util-{_JETTY}.jar": "deb2a47bb9659c69",
}
"""Paths on Maven Central, and how the SHA-256 of each begins."""
_OF_SPARK = (
    *("jackson-core-2", "jackson-databind-2", "jackson-annotations-2", "avro-1", "slf4j-api-2", "RoaringBitmap-1"),
    *("hadoop-client-api-3", "hadoop-client-runtime-3", "jakarta.servlet-api-", "log4j-api-2", "log4j-core-2"),
    "log4j-slf4j2-impl-2",
)
_FOLDER = BIN.parent / f"iceberg-rest-{_ICEBERG}"


def find_jars() -> Sequence[Path] | None:
    """The jars, downloaded where they are not there yet; null without Java or the network."""
    if shutil.which("java") is None:
        return None
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading them just now
        try:
            own = [_downloaded(path, digest) for path, digest in _JARS.items()]
        except (urllib.error.URLError, TimeoutError):
            return None
    folder = Path(pyspark.__file__).parent / "jars"
    return [*own, *(next(folder.glob(f"{name}*.jar")) for name in _OF_SPARK)]


def _downloaded(path: str, digest: str) -> Path:
    jar = _FOLDER / path.rpartition("/")[2]
    if not jar.exists():
        with urllib.request.urlopen(f"{_CENTRAL}/{path}", timeout=60) as answer:  # noqa: S310 - https
            content = answer.read()
        assert hashlib.sha256(content).hexdigest().startswith(digest), f"{path} is another file"
        new = jar.with_suffix(".new")
        new.write_bytes(content)
        new.rename(jar)
    return jar


@contextmanager
def serving(jars: Sequence[Path], root: Path, port: int = 0) -> Iterator[str]:
    """URL of a catalog that keeps what it knows in `root`, until the block ends."""
    root.mkdir(parents=True, exist_ok=True)
    port, log = port or free_port(), root / "server.log"
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CATALOG_")},
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": (root / "warehouse").as_uri(),
        "CATALOG_URI": f"jdbc:sqlite:file:{root / 'catalog.db'}",
    }
    light = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    classes = ":".join(map(str, jars))
    command = ["java", *light, "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    with running(command, f"127.0.0.1:{port}", log, env=environ):
        yield f"http://127.0.0.1:{port}"
