"""Wall and CPU seconds of each test, the processes that it starts included: a plugin of pytest.

    PYTHONPATH=benchmarks CPU_BY_TEST=cpu.tsv python -m pytest -p cpu_by_test -n 2 --dist loadgroup tests/spark
    python benchmarks/cpu_by_test.py cpu.tsv

The second command prints the modules that take most CPU, by engine.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from measuring import tree_cpu_seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add a line to the file that `CPU_BY_TEST` names: wall seconds, CPU seconds, test.

    Processes that left the tree of this one are missed.
    """
    cpu, began = tree_cpu_seconds(os.getpid()), time.monotonic()
    done = yield
    with Path(os.environ["CPU_BY_TEST"]).open("a") as out:
        out.write(f"{time.monotonic() - began:.2f}\t{tree_cpu_seconds(os.getpid()) - cpu:.2f}\t{item.nodeid}\n")
    return done


def main() -> None:
    cpu: Counter[str] = Counter()
    for line in Path(sys.argv[1]).read_text().splitlines():
        _, seconds, test = line.split("\t")
        module = test.partition("::")[0]
        engine = next((f" [{name}]" for name in ("spark", "delta_rs") if f"[{name}" in test), "")
        cpu[module + engine] += float(seconds)
    print(f"{sum(cpu.values()):8.0f} CPU s in all")
    for module, seconds in cpu.most_common(30):
        print(f"{seconds:8.0f} {module}")


if __name__ == "__main__":
    main()
