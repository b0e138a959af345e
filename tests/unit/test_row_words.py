"""A row of metadata and a row of data have one word: messages say which (docs/decisions/order-and-repairs.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pages import PAGES, ROOT, SOURCES
from tests.unit.row_words import METADATA_ROW, strings_of


@pytest.mark.parametrize("text", [
    "correct keys in the row", "the row's target was a.b", "its row is invalid", "no row has the table 'a.b'",
    "tables without a row", "stored values do not fit the row as it is now", "correct the row, then replay",
])  # fmt: skip
def test_words_of_metadata_are_found(text: str) -> None:
    assert METADATA_ROW.search(text)
    assert not METADATA_ROW.search(text.replace(" row", " metadata row"))


@pytest.mark.parametrize("text", [
    "dismiss the row", "the row exists", "2 rows in quarantine",
    "it failed in 3 runs in a row", "the replica has no row of this key",
])  # fmt: skip
def test_words_of_data_are_left(text: str) -> None:
    assert not METADATA_ROW.search(text)


def test_messages_say_metadata_row() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {found[0]}"
        for path in SOURCES
        for token in strings_of(path)
        for found in METADATA_ROW.finditer(token.string)
    ]
    assert found == [], "write `metadata row`: a row of data could be meant, too"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_says_at_first_which_rows_it_means(path: Path) -> None:
    """Once a page has said *metadata row*, its *row* with a field is clear."""
    text = path.read_text(encoding="utf-8")
    first = METADATA_ROW.search(text)
    if first is None:
        return
    before = text[: first.end()].lower()
    known = ("metadata row", "row of metadata", "row of the metadata", "rows of metadata", "metadata/tables")
    assert any(words in before for words in known), f"{first[0]!r} before `metadata row`"
