"""One table's landing folder, and what is put there beside the good files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.simulate.files import write


@dataclass
class LandingFolder:
    """Where one table's files go.

    Attributes:
        dry: nothing is written, for files that an earlier process landed.
        written: what the present step wrote.
    """

    path: Path
    dry: bool = False
    written: list[Path] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        if not self.dry:
            write(self.path / name, data)
            self.written.append(self.path / name)

    def remove(self, name: str) -> None:
        if not self.dry:
            (self.path / name).unlink(missing_ok=True)

    def take_written(self) -> tuple[Path, ...]:
        """What was written since the last call."""
        taken = tuple(self.written)
        self.written.clear()
        return taken

    def require_empty(self) -> None:
        """Another simulation's files would make the truth untrue.

        Raises:
            MetadataError: `SIMULATE_LANDING_NOT_EMPTY`.
        """
        if not self.dry and self.path.exists() and any(self.path.iterdir()):
            raise MetadataError(
                "SIMULATE_LANDING_NOT_EMPTY",
                "the landing folder holds files",
                where=str(self.path),
                remedy="remove it or choose another landing root",
            )


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
