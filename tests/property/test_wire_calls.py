"""Random and corrupted requests through the handlers: each is answered in its version, or refused as `WireError`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.async_requests import AsyncRequests
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader, read_response_header
from ottla.protocol.messages import decode_response, encode_request
from ottla.runtime.event_loop import run
from tests.property.property_settings import examples_max
from tests.property.test_wire_hostile import mutated
from tests.property.wire_strategies import requests, version_id
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.test_async_requests import COLD, CONNECTION, joined

EVERY_COLD_CALL = pytest.mark.parametrize(("api", "version"), COLD, ids=[version_id(*each) for each in COLD])
FEW = settings(max_examples=examples_max(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def small_broker() -> SmallBroker:
    """With the names and the partition that the samples of the strategies may hit."""
    broker = SmallBroker()
    for name in ("0", "a"):
        broker.add_topic(name)
        broker.append(name, 1, 2, 3)
    return broker


async def answer(broker: SmallBroker, api: ApiKey, version: int, body: bytes) -> object:
    frame = joined(await AsyncRequests(broker).answer(RequestHeader(api, version, 7, None, 0), body, CONNECTION))
    _, position = read_response_header(api, version, frame, 4, len(frame))
    return decode_response(api, version, frame[position:])


@EVERY_COLD_CALL
@FEW
@given(data=st.data())
def test_any_request_is_answered(api: ApiKey, version: int, data: st.DataObject) -> None:
    body = encode_request(api, version, data.draw(requests(api, version)))
    run(answer(small_broker(), api, version, body))


@EVERY_COLD_CALL
@FEW
@given(data=st.data())
def test_corrupted_request_is_answered_or_refused(api: ApiKey, version: int, data: st.DataObject) -> None:
    body = data.draw(mutated(encode_request(api, version, data.draw(requests(api, version)))))
    with contextlib.suppress(WireError):
        run(answer(small_broker(), api, version, body))
