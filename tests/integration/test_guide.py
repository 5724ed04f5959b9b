"""The pages of the guide, each run from top to bottom against its own broker, except those that start Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.integration.guide_pages import PAGES, run_page, starts_spark, topics_of
from tests.integration.page_snippets import PYTHON, ROOT, SHELL, Snippet, read_snippets

# Readers come from its tour with its topics in their broker.
README: Final = ROOT / "README.md"


@pytest.mark.parametrize("page", [page for page in PAGES if not starts_spark(page)], ids=lambda page: page.name)
def test_snippets_of_the_page_run_as_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_index_of_the_guide_has_every_page() -> None:
    index = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"]({page.name})" not in index] == []


def _shared(snippets: Iterable[Snippet]) -> dict[str, set[str]]:
    """The topics that several pages name, with the names of the pages."""
    pages: dict[str, set[str]] = defaultdict(set)
    for each in snippets:
        for topic in topics_of([each]):
            pages[topic].add(each.page.name)
    return {topic: names for topic, names in pages.items() if len(names) > 1}


def test_no_two_pages_name_the_same_topic() -> None:
    """A reader who follows several pages with one broker gets what each of them shows."""
    assert _shared(each for page in (README, *PAGES) for each in read_snippets(page)) == {}


@pytest.mark.parametrize(
    ("language", "code"),
    [
        (SHELL, "ottla topic create clicks --partitions 2"),
        (SHELL, "seq 9 | ottla produce clicks -b live:9092"),
        (PYTHON, 'producer.send("clicks", b"1")'),
        (PYTHON, 'consumer.subscribe(["clicks"])'),
        (PYTHON, 'connector.create_message_streams({"views": 2, "clicks": 1})'),
        (PYTHON, 'ottla.SimpleConsumer("localhost:9092", "clicks", 0)'),
        (PYTHON, 'spark.read.format("ottla").option("subscribe", "clicks")'),
    ],
)
def test_topic_of_two_pages_is_found(language: str, code: str) -> None:
    first = Snippet(Path("first.md"), 1, SHELL, "ottla topic create clicks")
    assert _shared([first, Snippet(Path("second.md"), 1, language, code)]) == {"clicks": {"first.md", "second.md"}}
    assert _shared([first, Snippet(Path("first.md"), 9, language, code)]) == {}
