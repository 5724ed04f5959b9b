"""The loggers of clients, by what they report on; docs/clients.md has their events.

Messages are sentences, since a program that uses a client has its own formatter; `observe.events.named` adds the name
and the facts of each event.  No record and no secret is logged.
"""

from __future__ import annotations

import logging
from typing import Final

CONNECTIONS: Final = logging.getLogger("ottla.client.connections")
METADATA: Final = logging.getLogger("ottla.client.metadata")
PRODUCER: Final = logging.getLogger("ottla.client.producer")
CONSUMER: Final = logging.getLogger("ottla.client.consumer")
GROUP: Final = logging.getLogger("ottla.client.group")
