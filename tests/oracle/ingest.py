"""What is taken from the files: generations, re-deliveries, accounting (semantics, 2, 4 and 10)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Sequence as Listing
from dataclasses import replace

from tests.oracle.decode import decode_file, with_marks
from tests.oracle.ledger import Ledger
from tests.oracle.model import Arrival, Change, Counts, DeliveredFile, Quarantined, Run, Value, rank
from tests.oracle.sweep import sweep
from tests.oracle.table_schema import Shape, arrival_order, taken

_STATES_ORDER = re.compile(r"(^|/)\d{8}-\d{9}")
"""Names of files that tell the order of their changes."""
_LAST = 1 << 20
"""Above all numbers of files of a run."""


def ingest(table_schema: Shape, runs: Listing[Run]) -> Ledger:
    ledger = Ledger()
    for number, run in enumerate(runs):
        _ingest_run(table_schema, ledger, number, run)
    return ledger


def _ingest_run(table_schema: Shape, ledger: Ledger, number: int, run: Run) -> None:
    """Change files written before a rewritten LOAD file belong to the generation that it ends."""
    before, decoding = (len(ledger.changes), ledger.faults), table_schema.under(run.settings)
    texts = len(ledger.texts)
    _remove(ledger, run)
    opening = [place for place, file in enumerate(run.files) if _reloads(ledger, file, run)]
    early = [file for file in run.files[: min(opening, default=0)] if file.kind == "change"]
    read = _ingest_files(decoding, ledger, number, early, 0)
    if run.files and (opening or ledger.generation == 0):
        _open(ledger)
    late = [file for file in run.files if file not in early] + (_along(ledger, run) if opening else [])
    loads = [file for file in late if file.kind == "load"]
    read += _ingest_files(decoding, ledger, number, loads, len(early))
    sweep(table_schema, ledger)
    read += _ingest_files(decoding, ledger, number, [f for f in late if f.kind == "change"], len(early) + len(loads))
    if len(ledger.texts) > texts:
        read += _replay(decoding, ledger, number)
    appended = len(ledger.changes) - before[0]
    faults = ledger.faults - before[1]
    ledger.counts.append(Counts(read, appended, read - faults - appended, faults))


def _remove(ledger: Ledger, run: Run) -> None:
    ledger.removed |= set(ledger.seen) if "." in run.removed else set(run.removed)
    ledger.removed -= {file.name for file in run.files}


def _reloads(ledger: Ledger, file: DeliveredFile, run: Run) -> bool:
    """A damaged version never opens a generation: it would empty the replica for want of rows."""
    if file.kind != "load" or file.damage:
        return False
    last = ledger.read.get(file.name)
    if last is not None and last[0] != file and last[1] == ledger.generation:
        return True
    return _is_emptied(ledger, run) and (last is None or last[0] != file or not file.rows)


def _is_emptied(ledger: Ledger, run: Run) -> bool:
    """Changes of the generation were read, and of its files none is there but loads that were written again."""
    current = [file for file, generation in ledger.read.values() if generation == ledger.generation]
    new = {file.name: file for file in run.files}
    there = [file for file in current if file.name not in ledger.removed]
    again = [file for file in there if file.kind == "load" and new.get(file.name, file) != file]
    return there == again and any(file.kind == "change" for file in current)


def _open(ledger: Ledger) -> None:
    ledger.generation += 1
    ledger.generation_low_watermarks.append(max((c.sequence for c in ledger.changes), key=rank, default=None))
    times = (c.commit for c in ledger.changes if c.op != "R" and c.commit is not None)
    ledger.generation_times.append(max(times, default=None))


def _along(ledger: Ledger, run: Run) -> list[DeliveredFile]:
    """LOAD files that earlier runs found written again: left out, their rows would vanish with the older load."""
    return [ledger.read[name][0] for name in sorted(ledger.again - ledger.removed - {file.name for file in run.files})]


def _ingest_files(table_schema: Shape, ledger: Ledger, number: int, files: Iterable[DeliveredFile], first: int) -> int:
    """Rows read."""
    read = 0
    ordered = arrival_order(files)
    waiting = [file for file in ordered if _waits(ledger, file)]
    _become_text(table_schema, ledger, waiting)
    table_schema = _evolved(table_schema, ledger, waiting)
    ledger.again.update(file.name for file in ordered if file.kind == "load" and file not in waiting)
    for ordinal, file in enumerate(waiting, start=first):
        ledger.seen[file.name] = file
        # A new version of a file settles what earlier ones left in the quarantine.
        ledger.settled += [fault for fault in ledger.quarantined if fault.file == file.name]
        ledger.quarantined = [fault for fault in ledger.quarantined if fault.file != file.name]
        ledger.misfits = {place: found for place, found in ledger.misfits.items() if place[0] != file.name}
        ledger.again.discard(file.name)
        if file.damage is not None:
            ledger.quarantined.append(Quarantined(file.name, None, file.damage))
            continue
        ledger.read[file.name] = (file, ledger.generation)
        arrival = Arrival(file=file, generation=ledger.generation, run=number, ordinal=ordinal)
        changes, bad = decode_file(table_schema, arrival)
        changes = with_marks(table_schema, arrival, _without_truncates(ledger, changes), bad)
        _append(table_schema, ledger, changes)
        ledger.quarantined.extend(bad)
        ledger.misfits |= {
            (b.file, b.position): arrival for b in bad if b.code == "CAST_FAILED" and b.position is not None
        }
        ledger.faults += len(bad)
        read += len(changes) + len(bad)
    return read


def _evolved(table_schema: Shape, ledger: Ledger, files: Iterable[DeliveredFile]) -> Shape:
    """The shape with the columns that the table has with these files."""
    came = [column for file in files if not file.damage for column in file.columns]
    ledger.columns |= {name.lower() for name in taken(came, table_schema.spec, is_first=not ledger.columns)}
    return table_schema.at(ledger.columns, ledger.texts)


def _become_text(table_schema: Shape, ledger: Ledger, files: Iterable[DeliveredFile]) -> None:
    """Columns of numbers that come as text, where the row makes them text: what was stored is the numbers' text."""
    if table_schema.spec.schema_evolution.type_change != "text":
        return
    columns = {
        column for column in table_schema.numbers - ledger.texts for file in files if _comes_as_text(file, column)
    }
    ledger.texts |= columns
    ledger.changes = [replace(change, row=_as_texts(change.row, columns)) for change in ledger.changes]
    ledger.identities = Counter(_identity(table_schema, change) for change in ledger.changes)


def _comes_as_text(file: DeliveredFile, column: str) -> bool:
    """A column of nulls alone is one of text, too."""
    first = next((row[column] for row in file.rows if row.get(column) is not None), "")
    return not file.damage and column in file.columns and isinstance(first, str)


def _as_texts(row: Mapping[str, Value], columns: Iterable[str]) -> Mapping[str, Value]:
    return {name: str(value) if name in columns and value is not None else value for name, value in row.items()}


def _replay(table_schema: Shape, ledger: Ledger, number: int) -> int:
    """Rows that were quarantined for a value come again, after all files of the run; how many they are."""
    found, ledger.misfits = ledger.misfits, {}
    table_schema = _evolved(table_schema, ledger, [arrival.file for arrival in found.values()])
    ledger.quarantined = [fault for fault in ledger.quarantined if (fault.file, fault.position) not in found]
    for ordinal, name in enumerate(dict.fromkeys(file for file, _ in found), start=_LAST):
        rows = {position: arrival for (file, position), arrival in found.items() if file == name}
        again = replace(next(iter(rows.values())), run=number, ordinal=ordinal)
        changes, bad = decode_file(table_schema, again, rows)
        _append(table_schema, ledger, [_replayed(table_schema, change, rows) for change in changes])
        ledger.quarantined += bad
    return len(found)


def _replayed(table_schema: Shape, change: Change, rows: Mapping[int, Arrival]) -> Change:
    """It stands where its file has it."""
    number = change.position % (1 << 40)
    read = (rows[number].run, (rows[number].ordinal << 40) + number)
    shares = table_schema.shares_places and bool(table_schema.keys) and change.op != "R"
    return replace(change, read=read, marked=shares)


def _waits(ledger: Ledger, file: DeliveredFile) -> bool:
    """New content; or a LOAD file written again as it was, whose rows the newer full load would else lack."""
    if ledger.seen.get(file.name) != file:
        return True
    last = ledger.read.get(file.name)
    return file.kind == "load" and last is not None and last[1] < ledger.generation


def _append(table_schema: Shape, ledger: Ledger, changes: list[Change]) -> None:
    """Of equal changes the n-th in a file is a re-delivery of the n-th that came in other files.

    What a file that was written again has of a key at one sequence is none unless that, as a whole, came last; nor what
    any file has where commit times order, nor what comes at a place of which rows were quarantined.
    """
    before, here = Counter(ledger.identities), Counter[Hashable]()
    new = []
    for change in changes:
        identity = _identity(table_schema, change)
        own = _own(table_schema, ledger, change) if change.read else 0
        new.append(identity is None or here[identity] + own >= before[identity])
        here[identity] += 1
    incomplete = {(c.key, c.sequence) for c in (*ledger.changes, *changes) if c.marked}
    new = [is_new or (c.key, c.sequence) in incomplete for is_new, c in zip(new, changes, strict=True)]
    back = _returning(table_schema, ledger, changes, new)
    taken = [place for place, is_new in enumerate(new) if is_new or place in back]
    for change in (changes[place] for place in taken):
        ledger.changes.append(change)
        ledger.identities[_identity(table_schema, change)] += 1


def _own(table_schema: Shape, ledger: Ledger, change: Change) -> int:
    """Equal changes that came with the file in which a replayed one was quarantined."""
    file, identity = (change.source_file, change.reading[0]), _identity(table_schema, change)
    same = (c for c in ledger.changes if (c.source_file, c.reading[0]) == file)
    return sum(_identity(table_schema, c) == identity for c in same)


def _returning(table_schema: Shape, ledger: Ledger, changes: list[Change], new: list[bool]) -> set[int]:
    """Places of known changes of a file that was written again which come after a different one of their key."""
    found: set[int] = set()
    for mine in {(c.key, c.sequence) for c in changes if c.op != "R" and table_schema.keys}:
        known = [c for c in ledger.changes if (c.key, c.sequence) == mine and c.op != "R"]
        own = [place for place, c in enumerate(changes) if (c.key, c.sequence) == mine]
        file = changes[own[0]].source_file
        if not all(_STATES_ORDER.search(name) for name in (file, *(c.source_file for c in known))):
            continue
        known = sorted((c for c in known if c.source_file <= file), key=lambda c: (c.source_file, *c.reading))
        chain = [_identity(table_schema, c) for c in known]
        identities = [_identity(table_schema, changes[place]) for place in own]
        last, mine_last = _in_a_row(chain), _in_a_row(identities)
        may_return = table_schema.shares_places or file in {c.source_file for c in known}
        came_last = last[-len(mine_last) :] == mine_last and not any(new[place] for place in own)
        if not may_return or came_last:
            continue
        for place, identity in zip(own, identities, strict=True):
            if not new[place] and identity in chain and chain[-1] != identity:
                found.add(place)
            if new[place] or place in found:
                chain.append(identity)
    return found


def _in_a_row(identities: list[Hashable | None]) -> list[Hashable | None]:
    """Without those that equal the one before them."""
    return [one for place, one in enumerate(identities) if place == 0 or one != identities[place - 1]]


def _without_truncates(ledger: Ledger, changes: list[Change]) -> list[Change]:
    """Truncates are no changes of a key; of deliveries of one the first counts."""
    for change in changes:
        if change.op == "T":
            ledger.truncates.setdefault((change.generation, change.sequence), change)
    return [change for change in changes if change.op != "T"]


def _identity(table_schema: Shape, change: Change) -> Hashable | None:
    """Null: the row is always one of its own."""
    generation = change.generation if change.op == "R" else None
    if not table_schema.keys and change.op == "R":
        return None
    return (
        change.key,
        change.sequence,
        change.op,
        generation,
        content({**change.row, **{f"rescued {c}": value for c, value in change.rescued.items()}}),
    )


def content(row: Mapping[str, Value]) -> Hashable:
    """A missing column equals null."""
    return frozenset((name, _frozen(value)) for name, value in row.items() if value is not None)


def _frozen(value: Value) -> Hashable:
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(_frozen(part) for part in value)
    frozen: Hashable = value
    return frozen
