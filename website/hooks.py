"""Events of a build by mkdocs: the navigation, and files of the repository that pages link to."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, InclusionLevel

from website.navigation import sections_of
from website.repository_links import repository_path, site_path, targets_of, with_site_links
from website.table_cells import with_plain_bars

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
_BOOST_OUTSIDE: Final = 0.1


def on_config(config: MkDocsConfig) -> None:
    sections = sections_of((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    config.nav = [{"Ottla": "index.md"}, *sections]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds what pages link to, and what these pages link to."""
    pages = [repository_path(PurePosixPath(file.src_uri)) for file in files.documentation_pages()]
    seen = set(pages)
    while pages:
        page = pages.pop()
        for target in targets_of((ROOT / page).read_text(encoding="utf-8"), page):
            path = target / "README.md" if _is_directory(target) else target
            # A link to nothing is reported by mkdocs, with its page.
            if path in seen or path.parts[0] == "docs" or not (ROOT / path).is_file():
                continue
            seen.add(path)
            files.append(
                File.generated(
                    config,
                    str(site_path(path)),
                    abs_src_path=str(ROOT / path),
                    inclusion=InclusionLevel.NOT_IN_NAV,
                )
            )
            if path.suffix == ".md":
                pages.append(path)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    path = repository_path(PurePosixPath(page.file.src_uri))
    if path.parts[0] != "docs":
        # Pages of the tests and benchmarks have many of a reader's words.
        page.meta["search"] = {"boost": _BOOST_OUTSIDE}
    return with_plain_bars(with_site_links(markdown, path, _is_directory))


def _is_directory(path: PurePosixPath) -> bool:
    return (ROOT / path).is_dir()
