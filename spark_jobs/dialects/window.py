"""A part of a landing folder that one listing covers; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """One listing, relative to the landing folder: below `folder` (empty: all), names greater than `start_after`.

    Attributes:
        end_before: names from this one on are left out; empty: none is.
    """

    folder: str = ""
    start_after: str = ""
    end_before: str = ""

    @property
    def after(self) -> str | None:
        """`start_after` relative to `folder`; empty: all of the folder comes after it; null: none of it does."""
        below = f"{self.folder}/" if self.folder else ""
        if self.start_after < below:
            return ""
        return self.start_after[len(below) :] if self.start_after.startswith(below) else None

    def covers(self, relative_path: str) -> bool:
        if relative_path <= self.start_after or (self.end_before and relative_path >= self.end_before):
            return False
        return not self.folder or relative_path.startswith(f"{self.folder}/")


EVERYTHING = (Window(),)
