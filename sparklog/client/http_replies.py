"""Replies to HTTP requests of a client: bounded in size and time, as JSON, without redirects."""

import json
import time
import urllib.request
from http.client import HTTPResponse
from typing import Any, Final

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Where a secret may be sent without encryption."""
_READ_BYTES: Final = 1 << 16


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: it would send the client's secret to another address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def body_of(reply: HTTPResponse, bytes_max: int, deadline_s: float) -> bytes:
    """The body of a reply, until a time of the monotonic clock; raises ValueError if it is too large, and
    TimeoutError.
    """
    parts: list[bytes] = []
    size = 0
    while part := reply.read1(_READ_BYTES):
        size += len(part)
        if size > bytes_max:
            raise ValueError(f"its reply has more than {bytes_max} bytes")
        if time.monotonic() > deadline_s:
            raise TimeoutError("its reply does not end in time")
        parts.append(part)
    return b"".join(parts)


def object_of(body: bytes) -> dict[str, Any]:
    """The object of JSON that a body is; raises ValueError."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("its reply is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("its reply is not an object of JSON")
    return fields
