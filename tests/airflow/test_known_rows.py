"""A parse after a change has the outcome of one that knows no row of an earlier one, and checks what changed alone."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_gddl.metadata import files, known_rows
from airflow_gddl.metadata import rows as table_rows
from airflow_gddl.runtime.compiled import keeper
from airflow_gddl.runtime.compiled.cache import KNOWN_ROWS, CompiledSettings
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata

LATER = 1000.0
GOOD = [
    "keys: [id]",
    "keys: [id], size: large",
    "keys: [id], freshness: 2h, owner: team-a, tags: {domain: sales}",
    "keys: [a, b], schedule: '*/15 * * * *'",
    "keys: [id], schedule: '@daily', priority: high",
    "keys: [id], where: qty > 0, derive: {day: date(created)}",
    "keys: [id], depends_on: [shop.t1]",
    "keys: [id], depends_on: [t2]",
    "keys: [id], heartbeat: shop.t0",
    "keys: [id], foreign_key: {parent: {columns: [p], to: shop.t0}}",
    "keys: [id], enabled: false",
    "keys: [id], mask: {email: hmac}, unique: {email: [mail]}",
    "keys: [id], options: {date_partition: YYYYMMDD}",
    "size: medium",  # keys from a file
    "keys: [id], size: own",  # of a tier that the settings may have
]
BAD = ["keys: id, id", "keys: [id], size: none", "keys: [id], schedule: soon", "kees: [id]", "keys: [id], where: qty >"]
BROKEN = [
    "tables: [",
    "tables:\n  - {table: shop.t1, keys: [id], password: hunter2}\n",
    "defaults: {sizes: large}\ntables: []\n",
]
SETTINGS = [
    "",
    "defaults: {priority: low}\n",
    "defaults: {size: large}\nruns: 1\n",
    "sources: {shop: {landing: landing/shop}}\n",
    "sources: {shop: {target: '{source}_{schema}.{table}', landing: landing/shop}}\n",
    "sources: {shop: {owner: team-b}, crm: {target: 'x.{table}', landing: landing/crm}}\n",
    "tiers: {own: {tables_per_job: 3}}\n",
    "tiers: {own: {}, none: {}}\n",
    "tiers: {large: {tables_per_job: 3}}\ndag_prefix: test.\n",
]
KEYS = [
    "",
    "keys: {shop.t1: [id]}\n",
    "keys: {shop.t3: [other]}\n",
    "keys: {'shop:shop.t4': id}\n",
    "keys: {shop.t5: [",
]


@dataclass
class Folder:
    """A metadata folder that is edited at random, and compiled from what is known and from nothing."""

    root: Path
    draw: random.Random
    environ: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=lambda: {"tables/shop.yaml": [], "tables/crm.yaml": []})
    raw: dict[str, str] = field(default_factory=dict)
    now: float = LATER

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    def row(self) -> str:
        table = f"{self.draw.choice(['shop', 'shop', 'crm'])}.t{self.draw.randrange(12)}"
        return f"{{table: {table}, {self.draw.choice(GOOD if self.draw.random() < 0.85 else BAD)}}}"

    def write(self) -> None:
        shutil.rmtree(self.metadata, ignore_errors=True)
        plain = {"gddl.yaml": "landing: landing\nlake: lake\n"} if "gddl.yaml" not in self.raw else {}
        made = {name: "tables:\n" + "".join(f"  - {row}\n" for row in rows) for name, rows in self.rows.items() if rows}
        for name, text in {**plain, **made, **self.raw}.items():
            path = self.metadata / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.metadata / "tables").mkdir(exist_ok=True)

    def edit(self) -> None:
        name = self.draw.choice(sorted(self.rows))
        rows = self.rows[name]
        edits: list[Callable[[], object]] = [
            lambda: rows.insert(self.draw.randint(0, len(rows)), self.row()),
            lambda: rows.append(self.row()),
            lambda: rows.__setitem__(self.draw.randrange(len(rows)), self.row()) if rows else None,
            lambda: rows.pop(self.draw.randrange(len(rows))) if rows else None,
            lambda: self.draw.shuffle(rows),
            lambda: self.rows.__setitem__(f"tables/f{self.draw.randrange(9)}.yaml", self.rows.pop(name)),
            lambda: self.rows.setdefault(f"tables/f{self.draw.randrange(9)}.yaml", [self.row()]),
            lambda: self.raw.__setitem__("tables/raw.yaml", self.draw.choice(BROKEN)),
            lambda: self.raw.pop("tables/raw.yaml", None),
            lambda: self.raw.__setitem__(
                "tables/shop.csv", f"table,keys\nshop.c{self.draw.randrange(3)},id\nshop.t7,a|b\n"
            ),
            lambda: self.raw.__setitem__("keys/k.yaml", self.draw.choice(KEYS)),
            lambda: self.raw.__setitem__("gddl.yaml", f"landing: landing\nlake: lake\n{self.draw.choice(SETTINGS)}"),
            lambda: self.environ.__setitem__("GDDL_DAG_PREFIX", self.draw.choice(["", "a.", "b."])),
            lambda: self.environ.__setitem__("GDDL_LANDING", str(self.root / self.draw.choice(["landing", "other"]))),
        ]
        self.draw.choice(edits)()
        self.write()

    def compiled(self, cache: str) -> CompiledMetadata:
        settings = CompiledSettings(
            metadata=str(self.metadata), cache=self.root / cache, environ=self.environ, clock=lambda: self.now
        )
        return CompiledMetadata.current(settings)

    def outcome(self, cache: str) -> dict[str, Any]:
        """All that is compiled, by file, and the state."""
        compiled = self.compiled(cache)
        folder = compiled.generation
        found = (
            {}
            if folder is None
            else {str(path.relative_to(folder)): json.loads(path.read_bytes()) for path in folder.rglob("*.json")}
        )
        return {**found, "state": replace(compiled.state, newest=0.0)}

    def forgetful(self) -> dict[str, Any]:
        """The outcome with the same generation before, but without a row that is known."""
        shutil.rmtree(self.root / "other", ignore_errors=True)
        if (self.root / "cache").exists():
            shutil.copytree(self.root / "cache", self.root / "other")
        for path in (self.root / "other").rglob(KNOWN_ROWS):
            path.unlink()
        return self.outcome("other")


@pytest.fixture
def assessed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Names of the rows that are checked."""
    names: list[object] = []

    def assess(row: table_rows.Row, *rest: Any) -> Any:
        names.append(row.table)
        return table_rows.assess(row, *rest)

    monkeypatch.setattr(known_rows, "assess", assess)
    return names


@pytest.mark.parametrize("seed", range(12))
def test_a_parse_after_any_edits_equals_one_that_knows_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, assessed: list[object]
) -> None:
    folder, known = Folder(tmp_path, random.Random(seed)), 0  # noqa: S311 - no secret
    folder.rows = {name: [folder.row() for _ in range(8)] for name in folder.rows}
    for number in range(30):
        for _ in range(folder.draw.choice([1, 1, 1, 3])):
            folder.edit()
        if number % 10 == 9:  # a new version of the package
            for module in (known_rows, keeper):
                monkeypatch.setattr(module, "__version__", f"9.9.{number}")
        folder.now += 100
        expected, checked = folder.forgetful(), len(assessed)
        assessed.clear()
        found = folder.outcome("cache")
        if KNOWN_ROWS not in expected:  # removed, and nothing was compiled, since the settings are invalid
            found.pop(KNOWN_ROWS, None)
        assert found == expected, number
        known += checked - len(assessed)
        assessed.clear()
        folder.compiled("cache").keep_placement()
    assert known > 100  # the rows that were not checked again


def small(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path, random.Random(0))  # noqa: S311 - no secret
    folder.rows = {f"tables/{s}.yaml": [f"{{table: {s}.t{n}, keys: [id]}}" for n in range(20)] for s in ("shop", "crm")}
    folder.write()
    folder.outcome("cache")
    return folder


def test_of_a_changed_row_no_other_row_is_checked_and_no_other_file_parsed(
    tmp_path: Path, assessed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small(tmp_path)
    assert len(assessed) == 40
    parsed: list[str] = []
    read = files.read_document
    monkeypatch.setattr(files, "read_document", lambda place, name: (parsed.append(name), read(place, name))[1])
    assessed.clear()
    folder.rows["tables/crm.yaml"][7] = "{table: crm.t7, keys: [other]}"
    folder.write()
    folder.now += 100
    document = folder.compiled("cache").pipeline("gddl_pack.crm.small.1")
    assert document is not None
    assert document.spec_of("crm.t7").keys == ("other",)
    assert (assessed, [name for name in parsed if name.startswith("tables/")]) == (["crm.t7"], ["tables/crm.yaml"])


def test_a_known_row_s_place_is_named_in_the_problem_of_a_new_one(tmp_path: Path, assessed: list[object]) -> None:
    folder = small(tmp_path)
    assessed.clear()
    folder.rows["tables/z.yaml"] = ["{table: shop.T3, source: shop, keys: [id]}"]
    folder.write()
    folder.now += 100
    (problem,) = folder.compiled("cache").problems()
    assert "this table has a row already, at tables/shop.yaml:5 (case does not count)" in problem
    assert assessed == ["shop.T3"]


def test_a_change_of_what_all_rows_are_made_of_checks_them_all(
    tmp_path: Path, assessed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small(tmp_path)
    for settings in ("defaults: {owner: team-a}\n", "sources: {shop: {owner: team-b}}\n", "tiers: {own: {}}\n"):
        assessed.clear()
        folder.raw["gddl.yaml"] = f"landing: landing\nlake: lake\n{settings}"
        folder.write()
        folder.now += 100
        folder.outcome("cache")
        assert len(assessed) == 40, settings
    for name, value in (
        ("__version__", "9.9.9"),
        ("CONTRACT_VERSION", 99),
        ("_version", lambda package: f"{package} 9"),
    ):
        monkeypatch.setattr(known_rows, name, value)
        assessed.clear()
        folder.raw["gddl.yaml"] += "\n"
        folder.write()
        folder.now += 100
        folder.outcome("cache")
        assert len(assessed) == 40, name
    assessed.clear()
    folder.raw["gddl.yaml"] += "dag_prefix: x.\n"
    folder.write()
    folder.now += 100
    folder.outcome("cache")
    assert assessed == []  # rows are not made of it


@pytest.mark.parametrize(
    "text", ["", "[]", '{"context": 1}', '{"context": "CONTEXT", "files": {"tables/shop.yaml": 1}}']
)
def test_damaged_known_rows_are_none(tmp_path: Path, assessed: list[object], text: str) -> None:
    folder = small(tmp_path)
    generation = folder.compiled("cache").generation
    assert generation is not None
    context = json.loads((generation / KNOWN_ROWS).read_bytes())["context"]
    (generation / KNOWN_ROWS).write_text(text.replace("CONTEXT", context))
    assessed.clear()
    folder.rows["tables/crm.yaml"].pop()
    folder.write()
    folder.now += 100
    assert folder.compiled("cache").problems() == ()
    assert len(assessed) == 39


def test_rows_of_another_package_s_dialect_are_checked_again(
    tmp_path: Path, assessed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_rows, "DIALECTS", SimpleNamespace(built_in={}))
    folder = small(tmp_path)
    assessed.clear()
    folder.rows["tables/crm.yaml"].pop()
    folder.write()
    folder.now += 100
    folder.outcome("cache")
    assert len(assessed) == 39


def test_a_row_whose_tier_is_removed_becomes_invalid(tmp_path: Path) -> None:
    folder = small(tmp_path)
    folder.raw["gddl.yaml"] = "landing: landing\nlake: lake\ntiers: {own: {}}\n"
    folder.rows["tables/crm.yaml"][7] = "{table: crm.t7, keys: [id], size: own}"
    folder.write()
    folder.now += 100
    assert folder.compiled("cache").problems() == ()
    folder.raw["gddl.yaml"] = "landing: landing\nlake: lake\n"
    folder.write()
    folder.now += 100
    (problem,) = folder.compiled("cache").problems()
    assert "[SIZE_UNKNOWN] crm.t7 size" in problem
