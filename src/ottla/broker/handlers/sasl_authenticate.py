"""SaslAuthenticate (key 36), v0-v2.

Serves listeners without SASL: ILLEGAL_SASL_STATE.  Those with SASL serve their logins before any handler
(`broker/security/sasl_session.py`).
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def handle(request: SaslAuthenticateRequest, context: BrokerContext, call: Call) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "the listener has no SASL")
