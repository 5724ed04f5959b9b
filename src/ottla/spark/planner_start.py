"""Starts a Python process that Spark keeps beside a streaming query: connected first, and quiet at its end.

    python planner_start.py pyspark.sql.streaming.python_streaming_source_runner

Spark gives such a process 10 s to connect back, which no setting changes; without this it would import PySpark and
pyarrow first, for which a busy machine needs longer.  So this program is run by its path, and imports nothing before.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any


def connect() -> socket.socket:
    """To where Spark says that it waits; the secret is sent, and its answer left for `main`."""
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return connection
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    connection.sendall(struct.pack("!i", len(secret)) + secret)
    return connection


def main(module: str) -> None:
    # As for `python -m`: the directory of this file has names that are other modules' too.
    sys.path.pop(0)
    sys.path.insert(0, os.getcwd())
    sys.argv = sys.argv[1:]
    connection = connect()

    import runpy

    import pyspark.util
    from pyspark.serializers import UTF8Deserializer

    def connected(conn_info: str | int | None, auth_secret: str | None) -> tuple[Any, socket.socket]:
        """In place of PySpark's function that connects."""
        connection.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
        file = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
        if auth_secret is not None and UTF8Deserializer().loads(file) != "ok":  # type: ignore[no-untyped-call]
            raise ConnectionError("Spark refused this process's secret")
        return file, connection

    pyspark.util.local_connect_and_auth = connected
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except (BrokenPipeError, ConnectionResetError):
        # The query was stopped and the other end of the pipe is closed: that is no error.
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
