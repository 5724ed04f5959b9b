from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from website.repository_links import repository_path, site_path, targets_of, with_site_links

GUIDE = PurePosixPath("docs/guide/producing.md")
PAGE = PurePosixPath("docs/groups.md")
OUTSIDE = PurePosixPath("bench/README.md")


def linked(target: str, page: PurePosixPath) -> str:
    return with_site_links(f"See [it]({target}).", page, lambda path: path == PurePosixPath("examples"))


def test_link_within_the_docs_stays_as_it_is() -> None:
    assert linked("../security.md#clients", GUIDE) == "See [it](../security.md#clients)."
    assert linked("https://example.org/a.md", GUIDE) == "See [it](https://example.org/a.md)."
    assert linked("#below", GUIDE) == "See [it](#below)."


def test_page_from_elsewhere_is_below_a_folder_of_the_site() -> None:
    assert linked("../bench/README.md#aims", PAGE) == "See [it](repository/bench/README.md#aims)."
    assert linked("../../README.md", GUIDE) == "See [it](../repository/README.md)."


def test_link_to_a_directory_leads_to_its_readme() -> None:
    assert linked("../examples", PAGE) == "See [it](repository/examples/README.md)."


def test_source_is_a_text_that_a_browser_shows() -> None:
    assert linked("../src/ottla/aio.py", PAGE) == "See [it](repository/src/ottla/aio.py.txt)."


def test_links_of_a_page_from_elsewhere_lead_back() -> None:
    assert linked("../docs/guide/loads.md", OUTSIDE) == "See [it](../../guide/loads.md)."
    assert linked("../tests/README.md", OUTSIDE) == "See [it](../tests/README.md)."
    assert linked("study.py", OUTSIDE) == "See [it](study.py.txt)."


def test_targets_are_files_of_the_repository() -> None:
    text = "[a](groups.md) [b](../src/a.py#x) [c](https://x.example/y) [d](#e)"
    assert targets_of(text, PAGE) == {PurePosixPath("docs/groups.md"), PurePosixPath("src/a.py")}


@pytest.mark.parametrize("path", [GUIDE, PAGE, OUTSIDE])
def test_page_of_the_site_is_found_in_the_repository(path: PurePosixPath) -> None:
    assert repository_path(site_path(path)) == path
