"""TLS handshakes under way: a few steps in each turn of the loop, so that a flood of them leaves time for requests."""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.broker.net.socket_loop import SocketLoop
from ottla.broker.net.tls_channel import TlsChannel
from ottla.observe.events import fields, frequent

log = logging.getLogger(__name__)

# A step signs, which takes 0.1 to 0.3 ms with P-256 and 0.5 ms with RSA-2048.
_STEPS_OF_TURN: Final = 4


class _Reason(NamedTuple):
    problem: str
    hint: str


_NO_TLS: Final = _Reason(
    "the client does not use TLS",
    "set security.protocol=SSL or SASL_SSL in the client, or connect it to a listener without TLS",
)
_DISTRUST: Final = _Reason(
    "the client does not accept this broker's certificate",
    "give the client the CA (ssl.ca.location, ssl.truststore.location), and let it use a host name of the certificate",
)
_VERSION: Final = _Reason("no version of TLS in common", "compare ssl.enabled.protocols of broker and client")
_NO_CERTIFICATE: Final = _Reason(
    "the client has no certificate",
    "ssl.client.auth=required: set the client's ssl.keystore.location or ssl.certificate.location",
)
_REASONS: Final[Mapping[str, _Reason]] = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "UNEXPECTED_MESSAGE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _VERSION,
    "NO_SHARED_CIPHER": _Reason("no cipher in common", "is the client's TLS library older than TLS 1.2?"),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": _DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DISTRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": _DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _DISTRUST,
}


def _reason_of(error: OSError) -> _Reason:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _Reason(
            f"the client's certificate was refused: {error.verify_message}",
            "it must be valid now, and issued by a CA of ssl.truststore.location",
        )
    reason = getattr(error, "reason", None) or ""
    return _REASONS.get(reason) or _Reason(reason or error.strerror or "the peer closed", "")


class TlsHandshake:
    """One handshake.  `close` ends it early, as its time or its place has passed."""

    __slots__ = ("_handshakes", "_is_over", "_is_queued", "_watches", "channel", "peer_name")

    def __init__(self, handshakes: TlsHandshakes, channel: TlsChannel, peer_name: str) -> None:
        self._handshakes: Final = handshakes
        self.channel: Final = channel
        self.peer_name: Final = peer_name
        self._is_over = self._is_queued = False
        # The socket is watched for reading or for writing, or not.
        self._watches = ""

    def start(self) -> None:
        self._watch("r")

    def close(self, reason: str) -> None:
        """Close the socket; safe to call twice."""
        if not self._is_over:
            self._end()
            self.channel.close()
            log.info("tls.handshake_failed", extra=frequent(peer=self.peer_name, error=reason))
            self._handshakes.on_failed(self)

    def step(self) -> None:
        """Continue with what has arrived."""
        self._is_queued = False
        if self._is_over:
            return
        try:
            self.channel.handshake()
        except ssl.SSLWantReadError:
            self._watch("r")
        except ssl.SSLWantWriteError:
            self._watch("w")
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            # As load balancers and health checks do.
            self._end()
            self.channel.close()
            log.debug("tls.handshake_abandoned", extra=fields(peer=self.peer_name))
            self._handshakes.on_failed(self)
        except OSError as error:
            reason = _reason_of(error)
            self._end()
            self.channel.close()
            facts = {"peer": self.peer_name, "error": reason.problem}
            log.warning(
                "tls.handshake_failed", extra=frequent(**facts, **({"hint": reason.hint} if reason.hint else {}))
            )
            self._handshakes.on_failed(self)
        else:
            self._end()
            self._handshakes.on_done(self)

    def _watch(self, direction: str) -> None:
        if self._watches == direction:
            return
        self._unwatch()
        self._watches = direction
        loop, fd = self._handshakes.loop, self.channel.fileno()
        (loop.add_reader if direction == "r" else loop.add_writer)(fd, self._on_ready)

    def _unwatch(self) -> None:
        loop = self._handshakes.loop
        if self._watches == "r":
            loop.remove_reader(self.channel.fileno())
        elif self._watches == "w":
            loop.remove_writer(self.channel.fileno())
        self._watches = ""

    def _on_ready(self) -> None:
        # The socket stays ready until its step is taken: it must not turn the loop meanwhile.
        self._unwatch()
        if not self._is_queued:
            self._is_queued = True
            self._handshakes.enqueue(self)

    def _end(self) -> None:
        self._is_over = True
        self._unwatch()


class TlsHandshakes:
    """Those of one listener."""

    def __init__(
        self,
        loop: SocketLoop,
        on_done: Callable[[TlsHandshake], None],
        on_failed: Callable[[TlsHandshake], None],
    ) -> None:
        """`on_done` takes over the channel; after `on_failed` it is closed."""
        self.loop: Final = loop
        self.on_done: Final = on_done
        self.on_failed: Final = on_failed
        self._ready: deque[TlsHandshake] = deque()

    def enqueue(self, handshake: TlsHandshake) -> None:
        self._ready.append(handshake)
        if len(self._ready) == 1:
            self.loop.call_soon(self._take_steps)

    def _take_steps(self) -> None:
        for _ in range(min(len(self._ready), _STEPS_OF_TURN)):
            self._ready[0].step()
            self._ready.popleft()
        if self._ready:
            self.loop.call_soon(self._take_steps)
