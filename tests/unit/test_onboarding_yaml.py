"""Edits of YAML texts at single values: what is not meant stays, byte by byte."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.metadata import files
from airflow_gddl.tools.onboarding.yaml_text import comment, flow

NAMES = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(value=VALUES)
def test_every_value_is_read_as_it_was_written(value: object) -> None:
    assert files.read_yaml(f"v: {flow(value)}") == {"v": value}


@given(words=st.text(max_size=40))
def test_a_comment_is_one_line_that_every_reader_takes(words: str) -> None:
    assert files.read_yaml(f"v: 1  # {comment(words)}\nw: 2\n") == {"v": 1, "w": 2}


@given(
    word=st.sampled_from(["yes", "No", "on", "y", "null", "~", "1", "1e3", "0x1f", "12:30", "2024-01-01", "true", ".5"])
)
def test_words_are_text_to_other_readers_too(word: str) -> None:
    assert yaml.safe_load(f"v: {flow(word)}") == {"v": word}
