"""An identity provider for tests: a token endpoint on loopback, and the keys that verify its tokens, as a file."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID: Final = "ottla-tests"
CLIENT_SECRET: Final = "s3cret/+ of the client"
AUDIENCE: Final = "kafka"
ISSUER: Final = "https://idp.example"
_KEY_ID: Final = "k1"
_LIFETIME_S: Final = 600


class IdentityProvider:
    """Issues tokens for `CLIENT_ID` by the client-credentials grant; `issued_count` counts them."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.issued_count = 0
        provider = self

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if self.headers["Authorization"] != _expected_authorization():
                    self._answer(401, {"error": "invalid_client", "error_description": "no such client"})
                elif form.get("grant_type") != ["client_credentials"]:
                    self._answer(400, {"error": "unsupported_grant_type"})
                else:
                    scope = form.get("scope", [""])[0]
                    token = provider.token(scope=scope)
                    self._answer(200, {"access_token": token, "expires_in": _LIFETIME_S, "token_type": "Bearer"})

            def _answer(self, status: int, content: object) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, *, audience: str = AUDIENCE, scope: str = "", lifetime_s: int = _LIFETIME_S) -> str:
        self.issued_count += 1
        now_s = int(time.time())
        claims = {
            "sub": CLIENT_ID,
            "aud": audience,
            "iss": ISSUER,
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "scope": scope or "kafka",
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": _KEY_ID})

    def write_keys(self, path: Path) -> None:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        path.write_text(json.dumps({"keys": [{**key, "kid": _KEY_ID, "alg": "RS256", "use": "sig"}]}))


def _expected_authorization() -> str:
    from urllib.parse import quote_plus

    pair = f"{quote_plus(CLIENT_ID)}:{quote_plus(CLIENT_SECRET)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
