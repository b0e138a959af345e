"""Plays a variant of the scenarios once, however many tests ask what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Seen, Variant, arranged, fit, play
from tests.scenarios.staging import Ground, LocalGround


class Stage:
    """Plays a variant when it is first asked for, and only the scenarios that were selected.

    Attributes:
        scenarios: those to play.
        ground: makes the place to play them in.
    """

    def __init__(
        self,
        engine: LocalPort,
        request: pytest.FixtureRequest,
        scenarios: Sequence[Scenario],
        ground: Callable[[Path], Ground] = LocalGround,
    ) -> None:
        params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
        chosen = [each.get("scenario") for each in params if each.get("engine") == engine.name]
        selected = {s.name for s in chosen if isinstance(s, Scenario)}
        self._engine = engine
        self._folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._scenarios = [s for s in scenarios if s.name in selected]
        self._ground = ground
        self._played: dict[Variant, dict[str, list[Seen]]] = {}

    def seen(self, variant: Variant, scenario: Scenario) -> list[Seen]:
        if variant not in self._played:
            chosen = [arranged(s, variant) for s in fit(self._scenarios, variant)]
            self._played[variant] = play(self._engine, chosen, self._ground(self._folders.mktemp(variant)))
        return self._played[variant][scenario.name]
