"""One table's simulated landing folder, with additional unreadable files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.devtools.simulate.files import write
from airflow_gddl.stores import open_store


@dataclass
class SimulatedFolder:
    """Folder of one table's files.

    Attributes:
        dry: nothing is written, for files that an earlier process landed.
        written: files written in the current step.
    """

    path: Path
    dry: bool = False
    written: list[Path] = field(default_factory=list)

    @classmethod
    def below(cls, root: Path | str, schema: str, name: str) -> SimulatedFolder:
        """The folder of a table, below a local root or an `s3://` URL."""
        if isinstance(root, str) and is_s3(root):
            return BucketFolder(Path(schema, name), url=join(root, schema, name))
        return cls(Path(root) / schema / name)

    def put(self, name: str, data: bytes) -> None:
        if not self.dry:
            self._write(name, data)
            self.written.append(self.path / name)

    def remove(self, name: str) -> None:
        if not self.dry:
            self._remove(name)

    def take_written(self) -> tuple[Path, ...]:
        """Files written since the last call."""
        taken = tuple(self.written)
        self.written.clear()
        return taken

    def require_empty(self) -> None:
        """Files of another simulation would invalidate the expected content.

        Raises:
            MetadataError: `SIMULATE_LANDING_NOT_EMPTY`.
        """
        if not self.dry and self._holds_files():
            raise MetadataError(
                "SIMULATE_LANDING_NOT_EMPTY",
                "the landing folder holds files",
                where=self.place,
                remedy="remove it or choose another landing root",
            )

    @property
    def place(self) -> str:
        return str(self.path)

    def _write(self, name: str, data: bytes) -> None:
        write(self.path / name, data)

    def _remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def _holds_files(self) -> bool:
        return self.path.exists() and any(self.path.iterdir())


@dataclass
class BucketFolder(SimulatedFolder):
    """One in an object store; `path` is then the table's alone, without a root.

    Attributes:
        url: of the folder.
    """

    url: str = ""

    @property
    def place(self) -> str:
        return self.url

    def _write(self, name: str, data: bytes) -> None:
        open_store().write(join(self.url, name), data)

    def _remove(self, name: str) -> None:
        open_store().delete(join(self.url, name))

    def _holds_files(self) -> bool:
        return any(True for _ in open_store().list(self.url))


def clutter(name: str, data: bytes) -> dict[str, bytes]:
    """Files beside `name` that no reader may take for data: checksums, uploads under way, markers."""
    folder, _, last = f"/{name}".rpartition("/")
    beside = f"{folder}/".lstrip("/")
    return {
        f"{beside}.{last}.crc": b"crc\x00",
        f"{beside}.{last}": data,
        f"{beside}{last}.tmp": data[: len(data) // 2],
        f"{beside}_SUCCESS": b"",
        f"_temporary/0/{last}": data,
    }
