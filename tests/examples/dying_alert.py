"""The abuse alert, which is killed when it has sent alerts before their batch is committed: MODULE ARGUMENTS."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from unittest.mock import patch

from pyspark.sql import DataFrame

from examples.abuse_alert import __main__ as abuse_alert
from examples.abuse_alert.alert_topic import alert_writer, read_alerts


def dying_alert_writer(bootstrap: str, topic: str) -> Callable[[DataFrame, int], None]:
    write = alert_writer(bootstrap, topic)

    def write_and_die(alerts: DataFrame, batch_id: int) -> None:
        write(alerts, batch_id)
        if read_alerts(bootstrap, topic):
            os.kill(os.getpid(), signal.SIGKILL)

    return write_and_die


if __name__ == "__main__":
    with patch.object(abuse_alert, "alert_writer", dying_alert_writer):
        abuse_alert.program(sys.argv[1:])
