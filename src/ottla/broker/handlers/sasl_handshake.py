"""SaslHandshake (key 17), v0-v1.

Serves listeners without SASL: ILLEGAL_SASL_STATE.  Those with SASL serve their logins before any handler
(`broker/security/sasl_session.py`).
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(request: SaslHandshakeRequest, context: BrokerContext, call: Call) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
