from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ConfigError
from ottla.model.properties import Property, parse_properties, property_line


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        ("num.partitions=4", "num.partitions", "4"),
        ("  num.partitions = 4 ", "num.partitions", "4 "),
        ("num.partitions: 4", "num.partitions", "4"),
        ("num.partitions 4", "num.partitions", "4"),
        ("num.partitions", "num.partitions", ""),
        ("listeners=PLAINTEXT://:9092", "listeners", "PLAINTEXT://:9092"),
        ("a\\ b\\=c=d", "a b=c", "d"),
        ("path=C\\:\\\\data\\tx", "path", "C:\\data\tx"),
        ("name=gr\\u00fc\\u00dfe", "name", "grüße"),
        ("list=a,\\\n    b,\\\n    c", "list", "a,b,c"),
        ("a=even\\\\", "a", "even\\"),
        ("a=last\\", "a", "last"),
    ],
)
def test_line_is_name_and_text(content: str, name: str, text: str) -> None:
    assert [found[:2] for found in parse_properties(content)] == [(name, text)]


def test_comments_and_blank_lines_are_passed_over_and_lines_counted() -> None:
    content = "# comment\n\n! another\r\na=1\n  # indented\nb=2,\\\n# no comment: it continues\nc=3\n"
    assert list(parse_properties(content)) == [
        Property("a", "1", 4),
        Property("b", "2,# no comment: it continues", 6),
        Property("c", "3", 8),
    ]


def test_equal_names_are_all_given() -> None:
    assert [found.text for found in parse_properties("a=1\na=2")] == ["1", "2"]


@pytest.mark.parametrize("content", ["a=\\u12", "a=\\u12zz", "\\u=1", "a=\\u+123"])
def test_broken_escape_is_refused_with_its_line(content: str) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        list(parse_properties(content))


@given(st.text(alphabet="ab=:#!\\ \t\n\ru0"))
def test_any_text_is_read_or_refused(content: str) -> None:
    try:
        found = list(parse_properties(content))
    except ConfigError:
        return
    assert all(1 <= item.line_number <= len(content.splitlines()) for item in found)


@given(st.text())
def test_a_written_line_is_read_as_the_same_text(text: str) -> None:
    assert list(parse_properties(property_line("name", text))) == [Property("name", text, 1)]


@given(st.text(alphabet="ab=:#!\\ \t\n\r\f\x0b\x85\u2028u0"))
def test_signs_that_the_format_uses_are_written_as_text(text: str) -> None:
    lines = property_line("first", text) + property_line("second", "2")
    assert list(parse_properties(lines)) == [Property("first", text, 1), Property("second", "2", 2)]
