"""Registration states in the lake: an idle run calls no catalog, and the Airflow side never does."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.registration import RegistrationState, registration_path
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores.storage import Storage, read_document


@dataclass(frozen=True)
class RegistrationStore:
    """Documents of all tables, at `lake/_gddl/catalogs/<catalog>/<schema>/<name>.json`."""

    storage: Storage
    lake: str

    def get(self, spec: TableSpec) -> RegistrationState:
        """The stored state; empty where the row has no catalog, or there is no document, or a damaged one."""
        path = registration_path(self.lake, spec)
        found = None if path is None else read_document(self.storage, path, RegistrationState)
        return found or RegistrationState()

    def put(self, spec: TableSpec, state: RegistrationState) -> None:
        """Store the state; without a catalog in the row there is none to store."""
        path = registration_path(self.lake, spec)
        if path is not None:
            self.storage.write(path, codec.to_json(state).encode())

    def forget(self, spec: TableSpec) -> None:
        path = registration_path(self.lake, spec)
        if path is not None:
            self.storage.delete(path)
