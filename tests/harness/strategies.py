"""Hypothesis strategies for change histories: few keys, few values, many collisions.

A history is drawn as a list of changes, dealt into files, and the files into runs. `TYPES` gives the Arrow type of
every column that can appear, so that any engine's tests can write the files with `tests.harness.landing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hypothesis import strategies as st

from airflow_gddl.contract.spec import DeleteMode, TableSpec, TieBreak
from airflow_gddl.contract.table_spec import Expectation, SchemaEvolution
from airflow_gddl.metadata.expression_text import with_expressions
from tests.oracle import DeliveredFile, Run, Value

TYPES: Mapping[str, str] = {
    "Op": "string",
    "transact_seq": "string",
    "AR_H_COMMIT_TIMESTAMP": "timestamp[us]",
    "step": "int32",
    "id": "string",
    "part": "int32",
    "v": "string",
    "n": "int64",
    "w": "string",
    "carried": "string",
    "forced": "bool",
    "BI_id": "string",
    "BI_part": "int32",
    "BI_v": "string",
    "BI_n": "int32",
    "BI_w": "string",
}
NUMBERED = {**TYPES, "transact_seq": "int64"}
"""The types where `Traits.numbered` is set."""
DECLARED = {"n": "string", "BI_n": "string"}
"""Those that are other ones where `Traits.declared` is set."""

KEYS = ("a", "A", "a ", "\u00e9", "e\u0301")
"""Equal to a sloppy comparison, and different here: case, trailing space, Unicode form."""
TEXTS = (None, "", "x", "X", "x ", "NULL", "\u00fc\U0001f600")
HOURS = (None, *(datetime(2024, 1, 1, hour, tzinfo=UTC).replace(tzinfo=None) for hour in range(5)))
FIRST = 10**19
"""Sequences start beyond 64 bits, where text and number part ways."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What may happen in a history; everything else about it is drawn.

    Attributes:
        numbered: sequences are whole numbers instead of 35 digits of text.
        steps: sequences have a second column, `step`.
        copies: a change may come again, in the same or another file.
        ties: different changes of a key may share a sequence.
        reloads: LOAD files may be rewritten, some or all of them, up to `most_reloads` times.
        loads_only: there are no changes.
        corrections: a change file may be rewritten with other values.
        variants: the column `w` comes in some files only.
        renames: updates may change the key and carry before images of it.
        images: they have those of all columns too, whose types may be narrower than their columns'. An erased key takes
            them along, so that the rest of a row that moved from it is lost to a later fold.
        declared: the column `n` comes as text, and is a number by `options.types`.
        rescues: the column `n` begins as numbers and comes as text, too, which is rescued where it is none.
        bad_rows: some rows belong in the quarantine.
        removals: files vanish some time after they were ingested, as lifecycle rules remove them.
        conditions: rows have a filter, unless changes may carry a part of them, and an expectation.
        truncates: some changes are truncates, which are applied.
        clock: changes and rows of loads may say a commit time, whatever their order is: clocks go back.
    """

    numbered: bool = False
    steps: bool = False
    composite: bool = False
    keyless: bool = False
    copies: bool = True
    ties: bool = True
    reloads: bool = True
    most_reloads: int = 1
    loads_only: bool = False
    corrections: bool = True
    variants: bool = True
    partial: bool = False
    forced: bool = False
    renames: bool = False
    images: bool = False
    declared: bool = False
    rescues: bool = False
    bad_rows: bool = False
    removals: bool = False
    conditions: bool = False
    truncates: bool = False
    clock: bool = False
    min_changes: int = 1
    max_changes: int = 14
    max_files: int = 5
    max_runs: int = 4
    tie_breaks: tuple[TieBreak, ...] = ("delete_wins", "last_arrival")
    deletes: tuple[DeleteMode, ...] = ("hard", "soft")


ORDER_FREE = Traits(
    reloads=False, corrections=False, ties=False, partial=True, renames=True, images=True, tie_breaks=("delete_wins",)
)
"""Histories whose outcome does not depend on the order of arrival."""
ORDER_FREE_TIES = Traits(reloads=False, corrections=False, copies=False, renames=True, tie_breaks=("delete_wins",))
"""The same with ties. Without copies: of a re-delivery the first file counts, and file names break ties."""
EVERYTHING = Traits(clock=True, partial=True, forced=True, renames=True, images=True, declared=True, bad_rows=True)


def dense(traits: Traits) -> Traits:
    """More changes in fewer runs, for engines to which a run costs the same however little it holds."""
    return replace(traits, min_changes=6, max_changes=18, max_files=4, max_runs=3)


@dataclass(frozen=True)
class Case:
    """A table and what happens to it."""

    spec: TableSpec
    runs: tuple[Run, ...]
    types: Mapping[str, str] = field(default_factory=lambda: TYPES)


@dataclass(frozen=True)
class _Item:
    """A row before it has a file; `wide` rows carry the column `w`, `load` rows go to LOAD files."""

    row: Mapping[str, Value]
    wide: bool
    load: bool


def sequence_value(number: int, *, numbered: bool) -> str | int:
    return number if numbered else f"{FIRST + number:035d}"


@st.composite
def specs(draw: st.DrawFn, traits: Traits) -> TableSpec:
    """A metadata row that fits the traits; soft deletes and history are drawn for tables with keys."""
    keys = () if traits.keyless else ("id", "part") if traits.composite else ("id",)
    spec = TableSpec(
        table="s.t",
        keys=keys,
        truncate="apply" if traits.truncates else "hold",
        sequence_by=("transact_seq", "step") if traits.steps else (),
        delete=draw(st.sampled_from(traits.deletes)),
        history=bool(keys) and draw(st.booleans()),
        track_history_except=draw(st.sampled_from([(), ("n",)])),
        tie_break=draw(st.sampled_from(traits.tie_breaks)),
        before_image_prefix="BI_" if traits.renames else None,
        ignore_null_updates=traits.partial and draw(st.booleans()),
        columns_to_update="carried" if traits.partial else None,
        force_update="forced" if traits.forced else None,
        options={"types": {"n": "bigint"}} if traits.declared else {},
        schema_evolution=SchemaEvolution(
            dropped_column=draw(st.sampled_from(["keep", "null"])), type_change="rescue" if traits.rescues else "widen"
        ),
        sweep_after=draw(st.sampled_from(["0s", "1h"])),
        sweep_limit=draw(st.sampled_from([TableSpec.sweep_limit, 1.0])),
    )
    return draw(_with_conditions(spec)) if traits.conditions else spec


@st.composite
def _with_conditions(draw: st.DrawFn, spec: TableSpec) -> TableSpec:
    partial = spec.columns_to_update is not None or spec.ignore_null_updates
    where = None if partial else draw(st.sampled_from([None, "v <> 'x'", "v is null or not (v = 'X' or n < 1)"]))
    rule = draw(st.sampled_from(["n > 0 or n is null", "v <> ''", "n < 2 or v = 'X'"]))
    on = draw(st.sampled_from(["warn", "quarantine"]))
    return with_expressions(replace(spec, where=where, expect={"good": Expectation(rule=rule, on=on)}))


@st.composite
def cases(draw: st.DrawFn, traits: Traits) -> Case:
    """A whole history."""
    spec = draw(specs(traits))
    items = draw(st.lists(_items(traits), min_size=traits.min_changes, max_size=traits.max_changes))
    items = _distinct(items, traits)
    if traits.copies and not traits.keyless:
        items += draw(st.lists(st.sampled_from(items), max_size=4))
    files = draw(_dealt(items, traits))
    runs = draw(_into_runs(files, traits))
    runs = draw(_with_removals(runs, keyless=traits.keyless)) if traits.removals else runs
    types = NUMBERED if traits.numbered else TYPES
    if traits.rescues:  # the type of a file's column is that of its values
        first = {"id": "a", **({"part": 1} if traits.composite else {}), "v": "x", "n": 0}
        runs = (Run((file_of("LOAD00000001.parquet", True, [first]),)), *runs)
        types = {name: kind for name, kind in types.items() if name != "n"}
    return Case(spec, runs, {**types, **DECLARED} if traits.declared else types)


@st.composite
def _items(draw: st.DrawFn, traits: Traits) -> _Item:
    load = traits.loads_only or draw(st.sampled_from([True, False, False]))
    wide = traits.variants and draw(st.booleans())
    op = draw(st.sampled_from(_ops(traits, load=load)))
    row: dict[str, Value] = {"Op": op, "transact_seq": None if load else draw(_sequences(traits))}
    if traits.steps:
        row["step"] = None if load else draw(st.integers(0, 2))
    if traits.clock:
        row["AR_H_COMMIT_TIMESTAMP"] = draw(st.sampled_from(HOURS))
    row |= {"id": draw(st.sampled_from(KEYS[:4] if traits.composite else KEYS))}
    if traits.composite:
        row["part"] = draw(st.integers(1, 2))
    row |= {"v": draw(st.sampled_from(TEXTS)), "n": draw(_numbers(traits))}
    if wide:
        row["w"] = draw(st.sampled_from(TEXTS))
    if not load:
        row |= draw(_extras(traits, op))
    if op == "T":
        row |= {"id": None, "v": None}
    if traits.bad_rows and not load:
        misfits = [{"n": "many"}, *([{"BI_n": "1.0"}] if traits.images else [])] if traits.declared else []
        row |= draw(st.sampled_from([{}] * 9 + [{"Op": "X"}, {"id": None}, {"transact_seq": None}, *misfits]))
    return _Item(row, wide, load)


def _ops(traits: Traits, *, load: bool) -> Sequence[str | None]:
    if load:
        return ["I", "R", None, ""]
    if traits.truncates:
        return ["T", *(["I"] * 6 if traits.keyless else ["I", "I", "U", "U", "U", "D"])]
    if traits.keyless:
        return ["I"] * 9 + (["U", "D"] if traits.bad_rows else [])
    return ["I", "U", "U", "U", "D"]


def _sequences(traits: Traits) -> st.SearchStrategy[str | int]:
    return st.integers(1, 6 if traits.ties else 30).map(lambda n: sequence_value(n, numbered=traits.numbered))


def _numbers(traits: Traits) -> st.SearchStrategy[int | str | None]:
    if traits.rescues:
        return st.sampled_from([None, "1", "many", "few"])
    return st.sampled_from([None, "0", "1", " 01"] if traits.declared else [None, 0, 1])


@st.composite
def _extras(draw: st.DrawFn, traits: Traits, op: str | None) -> dict[str, Value]:
    row: dict[str, Value] = {}
    if traits.partial:
        row["carried"] = draw(st.sampled_from([None, None, "v", "n", "v, n", "w"])) if op == "U" else None
    if traits.forced:
        row["forced"] = draw(st.sampled_from([None, False, False, True]))
    if traits.renames and not traits.keyless:
        row["BI_id"] = draw(st.sampled_from([None, None, *KEYS[:3]])) if op == "U" else None
        if traits.composite:
            row["BI_part"] = draw(st.sampled_from([None, 1, 2])) if op == "U" else None
        if traits.images:
            images = {"BI_v": st.sampled_from(TEXTS), "BI_n": _numbers(traits), "BI_w": st.sampled_from([None, "y"])}
            row |= {name: draw(image) if op == "U" else None for name, image in images.items()}
    return row


def _distinct(items: Sequence[_Item], traits: Traits) -> list[_Item]:
    """Without ties one row for each key and sequence; with them no two that are the same re-delivery."""
    if traits.keyless:
        return list(items)
    found: dict[tuple[Value, ...], _Item] = {}
    for item in items:
        row = item.row
        identity: tuple[Value, ...] = (row["id"], row.get("part"), row["transact_seq"], row.get("step"), item.load)
        if traits.ties:
            content = frozenset((k, v) for k, v in item.row.items() if v is not None and not (item.load and k == "Op"))
            identity = (*identity, content)
        found.setdefault(identity, item)
    return list(found.values())


@st.composite
def _dealt(draw: st.DrawFn, items: list[_Item], traits: Traits) -> list[DeliveredFile]:
    """Rows into files: LOAD rows to LOAD files, rows with and without `w` apart, otherwise anyhow."""
    executor: dict[tuple[bool, bool, int], list[Mapping[str, Value]]] = {}
    for item in draw(st.permutations(items)):
        hand = draw(st.integers(1, 2 if item.load else traits.max_files))
        executor.setdefault((item.load, item.wide, hand), []).append(item.row)
    files = [
        file_of(_name(load=load, number=2 * hand + wide), load, rows, _columns(traits, wide=wide))
        for (load, wide, hand), rows in executor.items()
    ]
    return draw(st.permutations(sorted(files, key=lambda f: f.name)))


def _name(*, load: bool, number: int) -> str:
    """LOAD counters are hexadecimal: 8 and up make A follow 9."""
    return f"LOAD{number + 6:08X}.parquet" if load else f"20240101-000000{number:03d}.parquet"


def file_of(
    name: str, load: bool, rows: Sequence[Mapping[str, Value]], columns: tuple[str, ...] | None = None
) -> DeliveredFile:
    """A file of these rows; its columns are `columns`, else those of its rows in the order they come."""
    names = columns or tuple(dict.fromkeys(column for row in rows for column in row))
    return DeliveredFile(name=name, kind="load" if load else "change", columns=names, rows=tuple(rows))


def _columns(traits: Traits, *, wide: bool) -> tuple[str, ...]:
    columns = ["Op", "transact_seq", *(["step"] if traits.steps else [])]
    columns += ["AR_H_COMMIT_TIMESTAMP"] if traits.clock else []
    columns += ["id", *(["part"] if traits.composite else []), "v", "n", *(["w"] if wide else [])]
    columns += ["carried"] if traits.partial else []
    columns += ["forced"] if traits.forced else []
    if traits.renames and not traits.keyless:
        columns += ["BI_id", *(["BI_part"] if traits.composite else [])]
        # DMS writes before images of the columns that it writes.
        columns += ["BI_v", "BI_n", *(["BI_w"] if wide else [])] if traits.images else []
    return tuple(columns)


@st.composite
def _into_runs(draw: st.DrawFn, files: list[DeliveredFile], traits: Traits) -> tuple[Run, ...]:
    count = draw(st.integers(1, traits.max_runs))
    dealt: list[list[DeliveredFile]] = [[] for _ in range(count)]
    for file in files:
        dealt[draw(st.integers(0, count - 1))].append(file)
    if traits.copies and files:
        again = draw(st.sampled_from(files))
        dealt[-1] = [f for f in dealt[-1] if f.name != again.name] + [again]
    runs = [Run(tuple(found)) for found in dealt if found]
    changes = [file for file in files if file.kind == "change"]
    if traits.corrections and changes and not traits.keyless:
        runs.append(Run((draw(_rewritten(draw(st.sampled_from(changes)))),)))
    loads = [file for file in files if file.kind == "load"]
    for _ in range(draw(st.integers(1, traits.most_reloads)) if traits.reloads and loads else 0):
        again = draw(st.lists(st.sampled_from(loads), min_size=1, unique_by=lambda file: file.name))
        first = 1 + max(n for n, run in enumerate(runs) if any(file.kind == "load" for file in run.files))
        runs.insert(draw(st.integers(first, len(runs))), Run(tuple(draw(_rewritten(load)) for load in again)))
    return tuple(runs)


@st.composite
def _with_removals(draw: st.DrawFn, runs: Sequence[Run], *, keyless: bool) -> tuple[Run, ...]:
    """Files of earlier runs vanish before a run; a later one may bring them again.

    Without keys load files stay: where all of them are gone a new one is refused (`GENERATIONS_UNKNOWN`).
    """
    found: list[Run] = []
    there: list[str] = []
    for run in runs:
        gone = draw(st.lists(st.sampled_from(there), unique=True)) if there and draw(st.booleans()) else []
        names = [file.name for file in run.files]
        gone = [name for name in gone if name not in names and not (keyless and name.startswith("LOAD"))]
        found.append(replace(run, removed=tuple(gone)))
        there = [name for name in dict.fromkeys((*there, *names)) if name not in gone]
    return tuple(found)


@st.composite
def _rewritten(draw: st.DrawFn, file: DeliveredFile) -> DeliveredFile:
    """Some of its rows, with new values."""
    rows = [{**row, "v": draw(st.sampled_from(TEXTS))} for row in file.rows if draw(st.booleans())]
    return file_of(file.name, file.kind == "load", rows, file.columns)
