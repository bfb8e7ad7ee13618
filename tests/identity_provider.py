"""An identity provider on loopback: its keys, and tokens for a client's secret or assertion."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(65537, 2048)
AUDIENCE = "https://idp/token"
BASIC = "Basic Y2xpZW50OmEvYg=="  # client:a/b
BASIC_ENCODED = "Basic Y2xpZW50OmElMkZi"  # client:a%2Fb
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def a_token(key: rsa.RSAPrivateKey = KEY, lasts_s: int = 3600, subject: str = "alice") -> str:
    now = int(time.time())
    claims = {"sub": subject, "iss": "idp", "aud": "kafka", "iat": now, "exp": now + lasts_s}
    return jwt.encode(claims, key, "RS256", headers={"kid": "one"})


class Provider(ThreadingHTTPServer):
    """`asked` has the forms of requests for tokens, `fixed` the answers that take the place of those below.

    | path | answer |
    |---|---|
    | /keys | the public keys |
    | /token | a token for the secret a/b of `client`, or for an assertion that `trusted` verifies |
    """

    daemon_threads = True

    def __init__(self, trusted: Any = None, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, str]] = []
        self.assertions: list[dict[str, Any]] = []
        self.fixed: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.trusted = trusted
        self.scheme = "http" if context is None else "https"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.keys = {
            "keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "one"}]
        }

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that ends a connection is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self._answer(200, self.server.keys)

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.server.asked.append(form)
        if self.path in self.server.fixed:
            self._send(*self.server.fixed[self.path])
        elif self._is_proved(form):
            self._answer(200, {"access_token": a_token(), "expires_in": 3600})
        else:
            self._answer(401, {"error": "invalid_client", "error_description": f"not accepted: {form}"})

    def _is_proved(self, form: dict[str, str]) -> bool:
        assertion = form.get("assertion" if form["grant_type"] == JWT_BEARER else "client_assertion")
        if assertion is None:
            return self.headers["Authorization"] in (BASIC, BASIC_ENCODED)
        try:
            claims = jwt.decode(assertion, self.server.trusted, ["RS256", "ES256"], audience=AUDIENCE)
        except jwt.PyJWTError:
            return False
        self.server.assertions.append(jwt.get_unverified_header(assertion) | claims)
        return True

    def _answer(self, code: int, told: Any) -> None:
        self._send(code, {"Content-Type": "application/json"}, json.dumps(told).encode())

    def _send(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@contextmanager
def provider(trusted: Any = None, context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    with Provider(trusted, context) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()
