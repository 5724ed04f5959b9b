"""A server of S3's protocol and of Glue's (moto), as a separate process: `with S3Server() as s3: s3.storage`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from pyarrow import fs

BUCKET: Final = "lake"


class S3Server:
    """One bucket, `lake`.  Everything is deleted when the server ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.s3_server"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint.startswith("http://"), "the S3 server does not start"
        self.storage = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }
        # As pyiceberg names them: of a catalog in Glue, and of files in S3.
        self.glue: Final = {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "s3.endpoint": self.endpoint,
            "client.access-key-id": "any",
            "client.secret-access-key": "any",
            "client.region": "us-east-1",
        }
        self.files = fs.S3FileSystem(
            access_key="any",
            secret_key="any",
            region="us-east-1",
            scheme="http",
            endpoint_override=self.endpoint.removeprefix("http://"),
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)

    def __enter__(self) -> S3Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    from moto.server import ThreadedMotoServer

    refuse_stale_versions()
    put_one_by_one()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    assert server._thread is not None
    server._thread.join()


def refuse_stale_versions() -> None:
    """Glue refuses an update whose `VersionId` is not the table's newest; moto would take it."""
    from moto.core.exceptions import JsonRESTError
    from moto.glue.responses import GlueResponse

    update, lock = GlueResponse.update_table, threading.Lock()

    def checked(response: Any) -> Any:
        wanted = response.parameters.get("VersionId")
        with lock:
            name = response.parameters["TableInput"]["Name"]
            table = response.glue_backend.get_table(response.parameters["DatabaseName"], name)
            if wanted is not None and wanted != table.as_dict()["VersionId"]:
                raise JsonRESTError("ConcurrentModificationException", f"{name} has another version")
            return update(response)

    GlueResponse.update_table = checked


def put_one_by_one() -> None:
    """S3 stores an object "if none matches" once; moto looks, and stores in a second step of the request's thread."""
    from moto.s3.responses import S3Response

    lock = threading.Lock()
    for name in ("put_object", "_key_response_post"):
        setattr(S3Response, name, _locked(getattr(S3Response, name), lock))


def _locked(call: Callable[..., Any], lock: threading.Lock) -> Callable[..., Any]:
    def locked(*arguments: Any, **named: Any) -> Any:
        with lock:
            return call(*arguments, **named)

    return locked


if __name__ == "__main__":
    main()
