"""The pages of the guide, each run from top to bottom against its own broker, except those that start Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.guide_pages import PAGES, run_page, starts_spark
from tests.integration.page_snippets import ROOT


@pytest.mark.parametrize("page", [page for page in PAGES if not starts_spark(page)], ids=lambda page: page.name)
def test_snippets_of_the_page_run_as_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_index_of_the_guide_has_every_page() -> None:
    index = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"]({page.name})" not in index] == []
