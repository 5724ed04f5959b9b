from __future__ import annotations

from website.navigation import pages_of, sections_of

INDEX = """\
# Ottla

* [Not in a section](before.md)

## I test

Some text with a [link](elsewhere.md).

* [Testing](guide/testing.md): a broker
* [Outside](https://example.org/page.md)

## Without pages

Text.

## I operate

* [Operating](operating.md): starts
* [Metrics](metrics.md)
"""


def test_each_heading_with_a_list_of_pages_is_a_section() -> None:
    assert sections_of(INDEX) == [
        {"I test": [{"Testing": "guide/testing.md"}]},
        {"I operate": [{"Operating": "operating.md"}, {"Metrics": "metrics.md"}]},
    ]


def test_pages_are_in_their_order() -> None:
    assert pages_of(sections_of(INDEX)) == ["guide/testing.md", "operating.md", "metrics.md"]
