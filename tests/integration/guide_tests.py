"""The tests that the guide shows, as a file of tests."""

from __future__ import annotations

import pytest

from tests.integration.page_snippets import PYTHON, ROOT, read_snippets


def written_from_the_guide(pytester: pytest.Pytester) -> int:
    """Write the tests into the directory of `pytester`; return how many there are."""
    page = ROOT / "docs" / "guide" / "testing.md"
    code = "\n".join(snippet.code for snippet in read_snippets(page) if snippet.language == PYTHON)
    pytester.makepyfile(test_guide=code)
    return code.count("\ndef test_")
