"""Hooks of mkdocs: generated pages among the others, and pages written for GitHub made fit for Python-Markdown."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# mkdocs loads this file by its path; the package it is in, and those it describes, are found from here.
sys.path.insert(0, str(ROOT))

from airflow_gddl import __version__  # noqa: E402 - after the path
from airflow_gddl.contract.codes import REGISTER  # noqa: E402 - after the path
from devtools.website import codes, fields, rules  # noqa: E402 - after the path
from devtools.website.github import for_site  # noqa: E402 - after the path

GENERATED = {"fields.md": fields.page, "rules.md": rules.page}
"""Pages that are made of the code."""
COPIED = {"changelog.md": "CHANGELOG.md", "benchmarks.md": "benchmarks/README.md"}
"""Pages that lie elsewhere in the repository."""


RANKS = {"decisions/": 0.0005, "changelog.md": 0.3, "benchmarks.md": 0.5, "tasks/": 3, "recipes/": 2, "on-call.md": 2}
"""How much more than others the search takes a page for what is looked for, by the beginning of its path."""


def on_config(config: MkDocsConfig) -> None:
    """Add the version to the name of the site."""
    config.site_name = f"{config.site_name} {__version__}"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and name in the navigation those that nobody named."""
    for name, make in GENERATED.items():
        files.append(File.generated(config, name, content=make(ROOT)))
    for name, source in COPIED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_moved(text, Path(source).parent)))
    _complete(config, files)
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """See `devtools.website.github` and `devtools.website.codes`."""
    rank = next((rank for start, rank in RANKS.items() if page.file.src_uri.startswith(start)), None)
    if rank is not None:
        page.meta.setdefault("search", {})["boost"] = rank
    uris = {file.src_uri for file in files.documentation_pages()} | {file.src_uri for file in files.media_files()}
    text = for_site(markdown, page.file.src_uri, uris)
    known = REGISTER
    if page.file.src_uri == "codes.md":
        return codes.with_anchors(text)
    return codes.linked(text, known, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """See `devtools.website.codes.breakable`."""
    return codes.breakable(html)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Have the search find each code by its own row; it has written its index before hooks are called."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    content["docs"] += codes.for_search(ROOT)
    index.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _moved(text: str, folder: Path) -> str:
    """Links of a page in `folder` of the repository, as seen from docs/."""

    def move(match: re.Match[str]) -> str:
        target = (ROOT / folder / match[2]).resolve()
        docs = ROOT / "docs"
        inside = target.relative_to(docs) if target.is_relative_to(docs) else Path("..") / target.relative_to(ROOT)
        return f"{match[1]}{inside.as_posix()}{match[3]})"

    return re.sub(r"(\[[^\]]*\]\()(?!https?:|#)([^)#\s]+)((?:#[^)\s]*)?)\)", move, text)


def _complete(config: MkDocsConfig, files: Files) -> None:
    nav = config.nav
    if not isinstance(nav, list):
        return
    named = set(_leaves(nav))
    rest = [
        file.src_uri
        for file in files.documentation_pages(inclusion=InclusionLevel.is_included)
        if file.src_uri not in named
    ]
    decisions = sorted(uri for uri in rest if uri.startswith("decisions/"))
    more = sorted(set(rest) - set(decisions))
    if more:
        nav.append({"More": more})
    # Within the last section that the file names, where they fold away.
    project = next(entry["Project"] for entry in nav if isinstance(entry, dict) and "Project" in entry)
    project.append({"Decisions": decisions})


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [leaf for value in values for leaf in _leaves(value)]
