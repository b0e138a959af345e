"""A part of a landing folder that one listing covers; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """One listing, relative to the landing folder: below `folder` (empty: all), names greater than `start_after`."""

    folder: str = ""
    start_after: str = ""

    def covers(self, relative_path: str) -> bool:
        return relative_path > self.start_after and (not self.folder or relative_path.startswith(f"{self.folder}/"))


EVERYTHING = (Window(),)
