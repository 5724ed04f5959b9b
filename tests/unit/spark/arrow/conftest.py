from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compiled_decoder import FORMS, decoding_with


@pytest.fixture(params=FORMS, autouse=True, scope="module")
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test of the decoder runs with each of its forms."""
    with decoding_with(request.param):
        yield request.param
