"""A server that speaks S3's protocol (moto), as a separate process: `with S3Server() as s3: s3.storage`."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Final

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

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    assert server._thread is not None
    server._thread.join()


if __name__ == "__main__":
    main()
