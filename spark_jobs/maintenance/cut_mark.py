"""A mark next to the ledger that changes were cut, for comparisons with the change table."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Superseded changes applied before `before` may be absent; `at` is the time of the last cut. ISO 8601 UTC."""

    before: str
    at: str


@dataclass(frozen=True)
class CutMark:
    """The mark of the table whose state folder is `root`."""

    storage: Storage
    root: str

    @property
    def _path(self) -> str:
        return join(self.root, "cut.json")

    def note(self, cut: Cut) -> None:
        """Record a cut; a longer retention later does not restore changes."""
        known = self.read()
        before = cut.before if known is None else max(cut.before, known.before)
        self.storage.write(self._path, codec.to_json(Cut(before=before, at=cut.at)).encode())

    def read(self) -> Cut | None:
        """None when nothing was cut."""
        try:
            return codec.from_json(Cut, self.storage.read(self._path).decode())
        except FileNotFoundError:
            return None
