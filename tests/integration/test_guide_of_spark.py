"""The pages of the guide that start Spark, each run from top to bottom against its own broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.guide_pages import PAGES, run_page, starts_spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", [page for page in PAGES if starts_spark(page)], ids=lambda page: page.name)
def test_snippets_of_the_page_run_as_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
