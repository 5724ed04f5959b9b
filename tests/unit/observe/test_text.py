from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.observe.text import VALUE_LENGTH_MAX, safe_line, safe_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, "7"),
        (-1.5, "-1.5"),
        (None, "none"),
        (True, "true"),
        ("orders-3", "orders-3"),
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        (b"\xff\x00ok", '"\\\\xff\\x00ok"'),
        ("grüße", '"grüße"'),
    ],
)
def test_value_is_bare_when_plain_and_quoted_otherwise(value: object, shown: str) -> None:
    assert safe_value(value) == shown


@pytest.mark.parametrize(
    "hostile",
    [
        "x\n2026-01-01T00:00:00.000Z INFO broker.ready",
        "x\r\nfake",
        "\x1b[2J\x1b]0;title\x07",
        "\u202egnirts",
        "\u2028line",
        "\x85next",
        "\ud800",
    ],
)
def test_value_never_breaks_its_line_or_reaches_the_terminal(hostile: str) -> None:
    shown = safe_value(hostile)
    assert shown.isprintable()
    assert shown.startswith('"')
    assert len(shown.splitlines()) == 1


def test_value_is_cut_and_says_how_much_is_missing() -> None:
    assert safe_value("a" * 1000) == "a" * VALUE_LENGTH_MAX + "...+744"


@given(st.text())
def test_any_text_becomes_one_printable_bounded_field(text: str) -> None:
    shown = safe_value(text)
    assert shown.isprintable()
    assert len(shown) <= VALUE_LENGTH_MAX * 10 + 20
    if " " in shown or "=" in shown:
        assert shown.startswith('"')


@given(st.text())
def test_any_line_becomes_printable(text: str) -> None:
    assert safe_line(text).isprintable()
