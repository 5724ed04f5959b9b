"""Certificates of a test, in files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trustme

HOST: Final = "broker.example"


class TlsFiles:
    """A CA, a broker's PEM file by it, and others on request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = self.write("ca.pem", self.authority.cert_pem.bytes())
        self.keystore = self.write("broker.pem", self.issue())

    def issue(self, not_after: datetime | None = None, name: str = HOST) -> bytes:
        """A new key and its certificate."""
        return self.authority.issue_cert(
            name, common_name=name, not_after=not_after
        ).private_key_and_cert_chain_pem.bytes()

    def expired(self) -> bytes:
        return self.authority.issue_cert(
            HOST, not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=datetime(2021, 1, 1, tzinfo=UTC)
        ).private_key_and_cert_chain_pem.bytes()

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)
