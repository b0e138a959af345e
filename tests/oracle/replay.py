"""The one function the tests call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Listing

from airflow_gddl.contract.spec import TableSpec
from tests.oracle.fold import events_by_key
from tests.oracle.history import history
from tests.oracle.ingest import ingest
from tests.oracle.late import late_ignored
from tests.oracle.ledger import Ledger
from tests.oracle.model import Change, Key, Outcome, Run, Sequence, rank
from tests.oracle.replica import replica
from tests.oracle.table_schema import Shape


def replay(spec: TableSpec, runs: Listing[Run]) -> Outcome:
    """What the tables of one table hold after these runs.

    Raises:
        NotModelledError: for policies that refuse or rescue, which scenarios state themselves.
    """
    table_schema = Shape.of(spec, runs)
    ledger = ingest(table_schema, runs)
    table_schema = table_schema.with_columns(ledger.columns)
    truncates = ledger.truncates.values()
    deciding = _deciding(truncates)
    events = events_by_key(ledger.changes, deciding)
    versions = events if len(deciding) == len(truncates) else events_by_key(ledger.changes, truncates)
    return Outcome(
        columns=table_schema.replica,
        replica=tuple(replica(table_schema, ledger, events)),
        changes=tuple(ledger.changes),
        history=tuple(history(table_schema, ledger, versions)),
        settled=tuple(ledger.settled),
        quarantined=tuple(sorted(ledger.quarantined, key=lambda q: (q.file, q.position or 0))),
        ties=_ties(table_schema, ledger),
        counts=tuple(ledger.counts),
        late=late_ignored(events if table_schema.keys else {}, len(runs)),
        held=ledger.held,
    )


def _deciding(truncates: Iterable[Change]) -> list[Change]:
    """Those before which no later one had come: others delete no row that isn't deleted."""
    found = sorted(truncates, key=lambda one: (one.run, one.generation, rank(one.sequence)))
    places = [(one.generation, rank(one.sequence)) for one in found]
    return [one for at, one in enumerate(found) if all(places[at] > known for known in places[:at])]


def _ties(table_schema: Shape, ledger: Ledger) -> frozenset[tuple[Key, Sequence]]:
    """Full-load rows of several files, within a generation: names of change files tell which is later."""
    if not table_schema.keys:
        return frozenset()
    files = defaultdict(set)
    for change in ledger.changes:
        if change.op == "R":
            files[(change.key, change.sequence, change.generation)].add(change.source_file)
    return frozenset((key, sequence) for (key, sequence, _), names in files.items() if len(names) > 1)
