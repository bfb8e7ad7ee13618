"""Reads the document of an URL for a job: the keys of an identity provider."""

import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 10
"""Of a whole read, and of each wait for the peer."""
BYTES_MAX: Final = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The settings allow URLs one by one, so another address is an error."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class Documents:
    """Reads documents within a total time, the look-up of the name and a slow peer included, which no
    time-out of a socket bounds.

    Invariant: an URL is not read again while an earlier read of it goes on, so late reads are at most one
    thread for each URL.
    """

    def __init__(self, read: Callable[[str], bytes] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._read = read or read_url
        self._timeout_s = timeout_s
        self._late: dict[str, threading.Thread] = {}

    def read(self, url: str) -> bytes:
        """The content of the document, as `read_url`; raises OSError when the time is over too."""
        late = self._late.get(url)
        if late is not None and late.is_alive():
            raise TimeoutError(f"an earlier read of {url} has not ended")
        results: list[bytes | Exception] = []
        thread = threading.Thread(
            target=self._read_into, args=(results, url), name="read a document", daemon=True
        )
        thread.start()
        thread.join(self._timeout_s)
        if not results:
            self._late[url] = thread
            raise TimeoutError(f"not read within {self._timeout_s:g} s")
        self._late.pop(url, None)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    def _read_into(self, results: list[bytes | Exception], url: str) -> None:
        try:
            results.append(self._read(url))
        except Exception as error:
            results.append(error)


def read_url(url: str) -> bytes:
    """The content of file:, https: or http:. Blocks. Raises OSError, also for more than BYTES_MAX."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        with Path(urllib.request.url2pathname(parts.path)).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    elif parts.scheme in ("https", "http"):
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(url, timeout=TIMEOUT_S) as reply:
                content = bytes(reply.read(BYTES_MAX + 1))
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            raise
        except HTTPException as error:
            raise OSError(f"not a reply of HTTP: {error!r}") from error
    else:
        raise OSError(f"an URL of the kind {parts.scheme}: cannot be read")
    if len(content) > BYTES_MAX:
        raise OSError(f"the document has more than {BYTES_MAX} bytes")
    return content
