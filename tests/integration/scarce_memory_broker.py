"""`python -m tests.integration.scarce_memory_broker DIVISOR serve ...`: a broker with a part of the memory for groups.

A flood of requests fills it in a part of the time.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from ottla.broker.groups import coordinator
from ottla.cli import main
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX

if __name__ == "__main__":
    divisor = int(sys.argv.pop(1))
    with (
        patch.object(coordinator, "MEMBER_BYTES_MAX", MEMBER_BYTES_MAX // divisor),
        patch.object(coordinator, "OFFSET_BYTES_MAX", OFFSET_BYTES_MAX // divisor),
    ):
        main()
