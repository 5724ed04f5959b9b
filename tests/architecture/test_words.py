"""Comments, docstrings, messages and pages use plain technical English: no words that a reader has to decode.

docs/STYLE.md has the list with what to write instead.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT, files_below

# A pattern, and what a colleague would write.
WORDS: Final = {
    r"told|tells?|telling": "report, return, send, notify",
    r"nobody|somebody|anybody": "no client, another process: name the actor",
    r"whoever|whatever|whichever": "name the actor or the thing",
    r"anew": "again, a new one; recreate",
    r"(?:go|goes|went|going) on": "continue",
    r"by (?:itself|themselves)": "automatically; standalone; alone",
    r"(?:is|are|was|were) to be": "must be, will be",
    r"takes? no more": "refuses, is read-only",
    r"(?:lie|lies|lay) (?:in|on|at|there|below|above|beyond|behind|beside)": "is",
}
# A flag such as `--tells-audit` is a name.
_PATTERN: Final = re.compile(rf"\b(?:{'|'.join(WORDS)})\b(?!-)", re.IGNORECASE)

# Where such a word is right: quoted from elsewhere, or the list itself.
ALLOWED: Final = {
    "docs/STYLE.md": "the list",
    "tests/architecture/test_words.py": "the list",
}


def _text_of_python(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # A string without a space is a name.
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def found_in(path: Path, text: str) -> list[str]:
    if _PATTERN.search(text) is None:
        return []
    lines = _text_of_python(text) if path.suffix == ".py" else enumerate(text.splitlines(), start=1)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for number, line in lines
        for match in _PATTERN.finditer(line)
    ]


def texts() -> Iterator[Path]:
    """Every page and source whose words are under test."""
    yield ROOT / "README.md"
    for folder in ("src", "docs", "examples", "bench", "tests", "releasing", "website"):
        yield from files_below(ROOT / folder, ".py", ".md")


def test_texts_use_plain_words() -> None:
    offences = [
        offence
        for path in texts()
        if str(path.relative_to(ROOT)) not in ALLOWED
        for offence in found_in(path, path.read_text(encoding="utf-8"))
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("text", ["it is told", "Nobody reads it", "made anew", "it goes on", "starts by itself"])
def test_rule_of_words_finds_a_word(text: str) -> None:
    assert found_in(ROOT / "README.md", f"One line.\n{text}\n")
    assert found_in(ROOT / "src/module.py", f"x = 1\ny = 2  # {text}\n")
    assert found_in(ROOT / "src/module.py", f'x = """{text}"""\n')


def test_rule_of_words_reads_no_identifiers() -> None:
    assert not found_in(ROOT / "src/module.py", "told = nobody(tells, anew, 'nobody')\n")
