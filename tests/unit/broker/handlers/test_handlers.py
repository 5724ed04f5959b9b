"""What holds for all handlers."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.broker.handlers import CALLBACK_HANDLERS, HANDLERS
from ottla.protocol.api import API_VERSIONS, ApiKey

HOT = {ApiKey.PRODUCE, ApiKey.FETCH}


def test_every_api_has_a_handler() -> None:
    assert HANDLERS.keys() | CALLBACK_HANDLERS.keys() | HOT == API_VERSIONS.keys()


@pytest.mark.parametrize("api", API_VERSIONS)
def test_head_of_each_module_names_its_key_and_versions(api: ApiKey) -> None:
    module = import_module(f"ottla.broker.handlers.{api.name.lower()}")
    lowest, highest = API_VERSIONS[api]
    head = (module.__doc__ or "").splitlines()[0]
    assert f"(key {api.value}), v{lowest}-v{highest}." in head
