"""Pages of the HTTP listeners of nodes, and the samples of /metrics in Prometheus' text format.

A page is read from an address that the user has given, without following redirects. The login of the client's
settings is sent only over https.
"""

import contextlib
import re
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Collection
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog.client.sasl.jaas import parse_jaas
from sparklog.errors import SparklogError
from sparklog_server.operations.inert_text import inert_name

if TYPE_CHECKING:
    import ssl

    from sparklog.client.settings import ClientSettings

TIMEOUT_S: Final = 5.0
PAGE_BYTES_MAX: Final = 32 << 20
_READ_BYTES: Final = 1 << 16
_URL: Final = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})/?")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.e+-]{1,40})(?: [0-9.]+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_ESCAPE: Final = re.compile(r"\\.")
_ESCAPES: Final = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = dict[str, str]


class PageFailed(SparklogError):
    """A page was not read; the message has the address and the reason."""


class Address(NamedTuple):
    """The HTTP listener of a node."""

    is_encrypted: bool
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_encrypted else 'http'}://{host}:{self.port}"


def addresses(texts: Collection[str]) -> tuple[Address, ...]:
    """The addresses of `http://HOST:PORT` texts, of which one may have several, separated by commas. Raises
    ValueError.
    """
    found = []
    for text in (part.strip() for one in texts for part in one.split(",")):
        match = _URL.fullmatch(text)
        if match is None or not 0 < int(match[3]) < 1 << 16:
            raise ValueError(f"{text[:80]!a} is no address such as http://127.0.0.1:9464")
        found.append(Address(match[1] == "https", match[2].strip("[]"), int(match[3])))
    return tuple(dict.fromkeys(found))


class NodePages:
    """Reads pages with the certificates and the user of a client's settings."""

    def __init__(self, settings: "ClientSettings") -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None

    def read(self, address: Address, path: str) -> str:
        """The text of a page. Raises PageFailed."""
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        until_s = time.monotonic() + TIMEOUT_S
        headers = {"Accept": "text/plain"}
        if address.is_encrypted:
            connection: HTTPConnection = HTTPSConnection(
                address.host, address.port, timeout=TIMEOUT_S, context=self._tls()
            )
            login = login_of(self._settings)
            if login is not None:
                headers["Authorization"] = "Basic " + b64encode(":".join(login).encode()).decode()
        else:
            connection = HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
        body = bytearray()
        timer: threading.Timer | None = None
        try:
            connection.connect()
            # The timeout of a socket is for each read: a peer may send a byte now and then.
            timer = threading.Timer(until_s - time.monotonic(), _end, (connection.sock,))
            timer.daemon = True
            timer.start()
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            while part := response.read1(_READ_BYTES):
                body += part
                if len(body) > PAGE_BYTES_MAX:
                    raise PageFailed(f"{address}{path} has more than {PAGE_BYTES_MAX} bytes")
        except (OSError, HTTPException, ValueError) as error:
            if time.monotonic() < until_s:
                reason = inert_name(str(error)) or type(error).__name__
                raise PageFailed(f"{address}{path}: {reason}") from None
        finally:
            if timer is not None:
                timer.cancel()
            connection.close()
        if time.monotonic() >= until_s:
            raise PageFailed(f"{address}{path} did not end within {TIMEOUT_S:g} s")
        text = body.decode("utf-8", "replace")
        if response.status != 200:
            raise PageFailed(f"{address}{path}: HTTP {response.status}: {inert_name(text[:200].strip())}")
        return text

    def _tls(self) -> "ssl.SSLContext":
        if self._context is None:
            from sparklog.tls.contexts import client_context

            self._context = client_context(self._settings.tls)
        return self._context


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def login_of(settings: "ClientSettings") -> tuple[str, str] | None:
    """User and password of a client's settings; None if it has none."""
    if settings.sasl_jaas_config is not None:
        options = parse_jaas(settings.sasl_jaas_config, "sasl.jaas.config").options
        user, password = options.get("username"), options.get("password")
    else:
        user, password = settings.sasl_username, settings.sasl_password
    return None if user is None or password is None else (user, password)


def samples(text: str, names: Collection[str]) -> dict[str, list[tuple[Labels, float]]]:
    """The finite samples of these metrics; a line that is no sample is skipped."""
    found: dict[str, list[tuple[Labels, float]]] = {name: [] for name in names}
    for line in text.splitlines():
        name = line.partition(" ")[0].partition("{")[0]
        if name not in found:
            continue
        match = _SAMPLE.fullmatch(line)
        value = _finite(match[3]) if match is not None else None
        if match is not None and value is not None:
            found[name].append((_labels(match[2] or ""), value))
    return found


def _labels(text: str) -> Labels:
    return {label[1]: _ESCAPE.sub(lambda one: _ESCAPES[one[0]], label[2]) for label in _LABEL.finditer(text)}


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
