"""Actions of a job, and what each is asked for: frozen, standard library only.

An action is named in a job's specification. The module of its name in `spark_jobs.rooms.actions` carries it out.
`Run` is the default; a specification of one has no field for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_gddl.contract.codec import ALWAYS, TAG

Key = Mapping[str, str]
"""Key column to its value as text; an empty name means the only key column."""
WindowLength = Literal["hour", "day"]


def _named(name: str) -> Any:
    """The field that says which action a document holds."""
    return field(default=name, metadata={ALWAYS: True, TAG: True})


class Asked:
    """What every action says of itself; these are the defaults."""

    name: str

    @property
    def does(self) -> str:
        """What results and records call it: its name, or what its mode does."""
        return self.name

    def unsharded(self) -> str:
        """What of it is not built for tables of several sources, for a message; empty: all of it is."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Sourced(Asked):
    """What actions that may name a connection to the source have in common."""

    source_connection: str = ""
    """Connection of the source; empty: the row's `verify_connection`."""

    def unsharded(self) -> str:
        return "a comparison with the source" if self.source_connection else ""


@dataclass(frozen=True, kw_only=True)
class Run(Asked):
    """Load what has landed since the last run."""

    name: Literal["run"] = _named("run")


@dataclass(frozen=True, kw_only=True)
class Rebuild(Asked):
    """Make replica and history again from the change table, then load what has landed."""

    name: Literal["rebuild"] = _named("rebuild")


@dataclass(frozen=True, kw_only=True)
class Reload(Asked):
    """Load the tables again from the files that are there, and from nothing else."""

    name: Literal["reload"] = _named("reload")
    confirmed: bool = False
    """Whether columns, rows or changes of the tables may go."""
    landed_since: str = ""
    """Read only files that were last modified from this moment on; ISO 8601. Empty: no bound."""
    landed_until: str = ""
    """Read only files that were last modified before this moment; ISO 8601. Empty: no bound."""

    def unsharded(self) -> str:
        return "a reload"


Load = Run | Rebuild | Reload
"""What a plan can be made for."""


@dataclass(frozen=True, kw_only=True)
class Plan(Asked):
    """Say which batches an action would load, without loading them."""

    name: Literal["plan"] = _named("plan")
    of: Load = field(default_factory=Run)

    def unsharded(self) -> str:
        return self.of.unsharded()


@dataclass(frozen=True, kw_only=True)
class LoadFromSource(Sourced):
    """Read a table from its source into landing files, as a first load."""

    name: Literal["initial_load"] = _named("initial_load")
    again: bool = False
    """Whether a table that is loaded is loaded once more."""


@dataclass(frozen=True, kw_only=True)
class ResyncRows(Sourced):
    """Read some rows from the source again. `keys` or `differences` chooses them."""

    name: Literal["resync_rows"] = _named("resync_rows")
    keys: tuple[Key, ...] = ()
    differences: bool = False
    """Choose the keys that the last comparisons with the source found different."""

    def unsharded(self) -> str:
        return "a resync" if self.differences else ""


@dataclass(frozen=True, kw_only=True)
class Verify(Sourced):
    """Compare the replica with its changes, with the source, or with another table."""

    name: Literal["verify"] = _named("verify")
    against: str = ""
    """Another Delta table to compare with: `schema.name` in the lake, or a path; empty: none."""
    settle_seconds: float | None = None
    """How long a change may take from the source to the replica; None: the row's freshness, or an hour."""
    since_seconds: float | None = None
    """Compare only rows that were changed in these last seconds, by windows of time; None: all rows."""
    window: WindowLength = "hour"
    """Length of these windows."""
    window_column: str = ""
    """The rows' column with the time of their last change; empty: by its name, as `updated_at`."""
    limit: int = 100
    """Keys that are named, at most."""


@dataclass(frozen=True, kw_only=True)
class Explain(Asked):
    """Show the history of one key."""

    name: Literal["explain"] = _named("explain")
    key: Key = field(default_factory=dict)
    limit: int = 100
    """Changes that are read, at most."""
    before_erasure: bool = False
    """Whether to refuse what an erasure of the key would refuse."""


@dataclass(frozen=True, kw_only=True)
class ShowTable(Asked):
    """Show what a table holds, without values that the row hides in `rows`."""

    name: Literal["show"] = _named("show")
    part: Literal["schema", "quarantine", "rows"] = "schema"
    code: str = ""
    """Only rows in quarantine with this code; empty: all."""
    limit: int = 20
    """Rows that are returned, at most."""


@dataclass(frozen=True, kw_only=True)
class Erase(Asked):
    """Remove one key from all tables, for good."""

    name: Literal["erase"] = _named("erase")
    key: Key = field(default_factory=dict)
    asked_by: str = ""
    """User who asks, for the record."""


@dataclass(frozen=True, kw_only=True)
class HandleErrors(Asked):
    """List rows in quarantine, load them again (`replay`), or give them up (`dismiss`)."""

    name: Literal["handle_errors"] = _named("handle_errors")
    mode: Literal["list", "replay", "dismiss"] = "list"
    codes: tuple[str, ...] = ()
    """Only rows with these codes; empty: all, but none are given up."""
    limit: int = 100
    """Rows that are listed, at most."""
    source_files: tuple[str, ...] = ()
    """Give up only rows of these files, as the list names them; empty: of all."""
    asked_by: str = ""
    """User who gives rows up, for the record."""
    reason: str = ""
    """Why nothing better is expected, for the record."""

    @property
    def does(self) -> str:
        return f"errors_{self.mode}"


@dataclass(frozen=True, kw_only=True)
class Release(Asked):
    """Carry out a removal of rows that is held back."""

    name: Literal["release"] = _named("release")
    held: Literal["sweep", "truncate"]
    """`sweep`: of rows that the newest full load or snapshot lacks; `truncate`: of rows before truncates."""


@dataclass(frozen=True, kw_only=True)
class Maintain(Asked):
    """Compact files and remove old ones."""

    name: Literal["maintain"] = _named("maintain")
    dry_run: bool = False
    """Whether to report the pending work without doing it."""


@dataclass(frozen=True, kw_only=True)
class CompareCatalogs(Asked):
    """Compare what catalogs show with the tables, or make them show the tables (`sync`)."""

    name: Literal["compare_catalogs"] = _named("compare_catalogs")
    mode: Literal["diff", "sync"] = "diff"

    @property
    def does(self) -> str:
        return f"catalog_{self.mode}"


@dataclass(frozen=True, kw_only=True)
class Adopt(Sourced):
    """Take over a table that another job keeps, or give it back (`release`).

    With a connection, prove first that the table equals the source.
    """

    name: Literal["adopt"] = _named("adopt")
    mode: Literal["take", "release"] = "take"
    confirmed: bool = False
    """Whether what only we keep of a table that is given back may go."""
    files_until: str = ""
    """Files that were last modified by then are in the table; ISO 8601 with a zone."""
    dry_run: bool = False
    """Whether to report the pending work without doing it."""


@dataclass(frozen=True, kw_only=True)
class Eject(Asked):
    """Say what a job that goes on without airflow-gddl has to know."""

    name: Literal["eject"] = _named("eject")


@dataclass(frozen=True, kw_only=True)
class ConsistentCut(Asked):
    """Say up to which moment a table is complete, or make it as of the moment of a cut."""

    name: Literal["consistent_cut"] = _named("consistent_cut")
    at: str = ""
    """The moment that is asked for; empty: the table is made."""
    cut: str = ""
    """Name of the cut in the lake's documents that the table is made for; empty: nothing is made."""


Trying = Adopt | Maintain
"""Actions that may only report what they would do."""
Keyed = Erase | Explain | ResyncRows
"""Actions whose specification may hold keys of rows, which can be personal."""
Action = (
    Run | Rebuild | Reload | Plan | LoadFromSource | ResyncRows | Verify | Explain | ShowTable | Erase
    | HandleErrors | Release | Maintain | CompareCatalogs | Adopt | Eject | ConsistentCut
)  # fmt: skip
ACTIONS: Mapping[str, type[Action]] = {kind.name: kind for kind in get_args(Action)}
"""The actions by name."""
REWRITES = ("erase", "maintain")
"""Actions that load nothing, and write new versions of the tables."""
IN_DRIVER = ("plan", "explain", "show", "errors_list", "errors_dismiss", "eject")
"""What reads so little that Spark's start would dominate, or doesn't use it."""
