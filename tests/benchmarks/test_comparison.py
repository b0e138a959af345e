"""The figures of docs/comparison.md are those of the files that the benchmark writes, and say of what they are."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import comparison
from benchmarks.comparison import BLOCKS, FIGURES, PAGE, PARTS, ROOT, page, records, stamp

COMMIT = re.compile(r"[0-9a-f]{40}")
NEW = {"commit": "0123456789abcdef" * 2 + "01234567", "date": "2026-11-27", "machine": "2 cores", "load_average": 0.2}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_the_page_is_what_the_files_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, records()) == text, "run: python benchmarks/comparison.py --page"


def test_every_file_is_of_a_part_and_names_commit_machine_and_date() -> None:
    found = records()
    assert sorted(path.stem for path in FIGURES.iterdir()) == sorted(found)
    text = PAGE.read_text(encoding="utf-8")
    for name, record in found.items():
        assert record["commit"] is None or COMMIT.fullmatch(record["commit"]), name
        dt.date.fromisoformat(record["date"])
        assert record["machine"], name
        assert f"- `{record['command']}`: " in text, name
        assert f"{stamp(record)}." in text, name
        assert ("older figures" in stamp(record)) == (record["commit"] is None), name


def test_a_commit_on_record_is_one_of_this_repository() -> None:
    if _git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no repository, or one without its history")
    for name, record in records().items():
        if record["commit"] is not None:
            assert _git("cat-file", "-t", record["commit"]) == "commit", name


def test_a_new_figure_takes_the_place_of_an_old_one_with_its_notes() -> None:
    before = PAGE.read_text(encoding="utf-8")
    old = records()["large-merge"]
    figures = {**old["figures"], "changes_per_second": 99_999.0}
    after = page(before, {**records(), "large-merge": {**old, **NEW, "notes": [], "figures": figures}})
    assert "99,999 changes/s" in after
    assert f"- `{old['command']}`: 2026-11-27, commit `01234567`, 2 cores." in after
    for note in old["notes"]:  # others may have the same
        assert after.count(note) == before.count(note) - 1
    assert page(after, records()) == before


@pytest.mark.parametrize("name", sorted(PARTS))
def test_the_page_shows_each_part_of_what_its_benchmark_prints(name: str, tmp_path: Path) -> None:
    """Every part has a record, or what its program prints at the smallest size stands for it."""
    found = {} if (record := records().get(name)) is None else {name: record}
    shown = "\n".join(line for block in BLOCKS.values() for line in block(found or {name: {**NEW, **printed(name)}}))
    assert PARTS[name].program in shown
    assert len(re.findall(r"\d", shown)) > 5


def printed(name: str) -> dict[str, object]:
    figures = {"initial-load": {"rows": 20_000_000, "kills": 10, "updates": 5, "rows_per_second": 9}}[name]
    return {"command": f"python benchmarks/{PARTS[name].program}", "notes": [], "figures": figures}


def test_figures_without_a_commit_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        comparison, "git", lambda *arguments: " M spark_jobs/main.py" if arguments[0] == "status" else ""
    )
    with pytest.raises(SystemExit, match=r"commit first.*\n M spark_jobs/main.py"):
        comparison.measure("large-merge", (), small=False)


def test_no_path_of_the_machine_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"results": [{"status": "failed: no /tmp/gddl-peers-1/a.jar", "versions": ["a 1.0"]}]})
    done = subprocess.CompletedProcess([], 0, stdout=f"text\n{line}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    record = comparison.measure("peers-plain", (), small=True)
    assert record["figures"]["results"][0] == {"status": "failed: no …", "versions": ["a 1.0"]}


def test_an_unknown_part_is_refused() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "comparison.py"), "peers"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such part: peers; there are peers-plain, peers-hard" in done.stderr


def test_the_page_of_costs_has_the_figures_of_comparison() -> None:
    """All of one run: both places of this project, and jobs by hand, the tuned ones among them."""
    found = {one["tool"]: one for one in records()["peers-plain"]["figures"]["results"]}
    tools = ("many_tasks", "one_task_vectors", "one_task", "deltalake", "merge_tuned", "merge_plain")
    cpu = {tool: found[tool]["cpu_seconds"] for tool in tools}
    one = found["many_tasks"]
    assert one["batches"] == 3
    said = (
        f"{one['changes']:,} changes into {one['rows']:,} rows, in three batches: {cpu['many_tasks']} with "
        f"`tasks: many`, {cpu['one_task_vectors']} with `tasks: one` ({cpu['one_task']} without deletion vectors); by "
        f"hand, {cpu['deltalake']} with `DeltaTable.merge`, {cpu['merge_tuned']} with a tuned MERGE, "
        f"{cpu['merge_plain']} with a plain one"
    )
    assert said in (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")


def test_the_readme_has_what_merge_costs() -> None:
    figures = records()["commit-merge"]["figures"]
    direct, merge = (figures[f"table_{name}_cpu_seconds"] for name in ("direct", "merge"))
    times = f"takes {figures['table_ratio']:.0f} times the CPU for small tables"
    assert f"{times}, {merge:.1f} s a batch instead of {direct:.1f} s" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
