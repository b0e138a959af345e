"""Something that happens again and again beside a test, in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Repeated(ABC):
    """`with Repeated(...)`: `once` is called until the block ends."""

    @abstractmethod
    def once(self) -> None: ...

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            self.once()
