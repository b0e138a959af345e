"""What an index of packages shows has no link that only the repository can follow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/airflow-gddl/airflow-gddl"
LINKS = re.compile(r"\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def described() -> str:
    """The long description, as hatchling puts it into a wheel's metadata."""
    pytest.importorskip("hatchling")
    from hatchling.metadata.core import ProjectMetadata  # noqa: PLC0415 - absent from an environment of users
    from hatchling.plugin.manager import PluginManager  # noqa: PLC0415 - as above

    return str(ProjectMetadata(str(ROOT), PluginManager()).core.readme)


def test_every_link_is_absolute_and_leads_to_what_the_readme_names(described: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    mine, theirs = LINKS.findall(readme), LINKS.findall(described)
    assert len(mine) == len(theirs) > 20
    for target, link in zip(mine, theirs, strict=True):
        assert link.startswith("https://"), link
        place = re.fullmatch(rf"{REPOSITORY}/(blob|tree|raw)/v[\d.]+/([^#]+)(#.+)?", link)
        assert target == link or place, link
        if place:
            assert place[2] + (place[3] or "") == target
            path = ROOT / place[2]
            assert path.is_dir() if place[1] == "tree" else path.is_file(), link
    assert LINKS.sub("", described) == LINKS.sub("", readme), "nothing else differs"


def test_images_are_files_themselves(described: str) -> None:
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", described)
    assert images
    assert [image for image in images if "/raw/" not in image] == []
