"""Lengths of time."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.durations import seconds, wait_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s", 1), ("45s", 45), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("9999999s", 9_999_999)],
)
def test_durations_are_read_as_seconds(text: str, expected: int) -> None:
    assert seconds(text) == expected


def test_a_wait_may_be_none() -> None:
    assert (wait_seconds("0s"), wait_seconds("3s")) == (0, 3)
    with pytest.raises(ValueError, match="is not a duration such as"):
        wait_seconds("0m")


@pytest.mark.parametrize(
    "text", ["", "0s", "01h", "5", "m", "5 m", "5M", "-5m", "1.5h", "1h30m", "5m\n", "٣m", "10000000s"]
)
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        seconds(text)
