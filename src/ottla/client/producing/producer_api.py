"""What the producers for threads and for asyncio share: settings, serializing, failures that no delivery reported."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from typing_extensions import Unpack

from ottla.client.producing.delivery import Acknowledged
from ottla.client.producing.interceptors import ProducerInterceptors
from ottla.client.producing.producer_core import ProducerCore
from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.producing.serializing import MessageSerializer
from ottla.client.producing.settings import KeyT, ProducerArguments, ValueT, producer_settings
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.other_clients import check_names, refuse_mapping
from ottla.client.wire.security.settings import ClientSecurity
from ottla.runtime.clock import SystemClock


class ProducerApi(Generic[KeyT, ValueT]):
    """`bootstrap`: "host:port,host:port" or a sequence of such.  Settings: see `ottla.Producer`."""

    def __init__(
        self, bootstrap: str | Sequence[str] | None = None, **settings: Unpack[ProducerArguments[KeyT, ValueT]]
    ) -> None:
        name = type(self).__name__
        if isinstance(bootstrap, Mapping):
            refuse_mapping(name, bootstrap, ProducerArguments.__annotations__)
        check_names(name, settings, ProducerArguments.__annotations__)
        destination, settings["security"] = destination_and_security(bootstrap, settings.get("security"))
        checked = producer_settings(settings)
        chance = random.Random()
        self._serializer = MessageSerializer(checked, SystemClock().now_ms, chance.choice)
        # What the short way of `send` is for.
        self._is_plain = checked.is_plain
        self._interceptors = ProducerInterceptors(checked.interceptors) if checked.interceptors else None
        self._core = ProducerCore(destination, checked, chance.choice)
        self._bootstrap = destination.bootstrap
        # What the short way looks at, each message.
        self._monitor = self._core.monitor
        self._keyless = self._core.accumulator.keyless

    @property
    def bootstrap(self) -> str:
        """The addresses that it was given, or that were chosen for it: "host:port,host:port"."""
        return self._bootstrap

    @property
    def security(self) -> ClientSecurity:
        """The security of its connections, for other clients of the same cluster."""
        return self._core.settings.security

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        """`call` for each batch of messages that is stored from now on; `ottla.audit` counts by it.

        On the producer's thread, which must not be held up, and before the messages' senders get their receipts; with
        transactions, when theirs has committed.
        """
        self._core.on_acknowledged(call)

    def metrics(self) -> ProducerMetrics:
        """What was counted since it was opened: messages, batches, requests, latencies, errors."""
        return self._core.metrics()

    def __repr__(self) -> str:
        end = ", closed" if self._core.is_closed else ""
        return f"<{type(self).__name__} to {self._bootstrap}{end}>"

    def _raise_failures(self) -> None:
        failures = self._core.take_failures()
        if failures is not None:
            raise failures

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # missing after a setting that was refused
        if core is not None and not core.is_closed:
            name = repr(self)  # before its thread, which closes it now, can have done so
            core.orphan()
            # At last: where warnings are errors it raises.
            warnings.warn(f"{name} was not closed", ResourceWarning, stacklevel=1, source=self)
