"""Reads the document of an URL for a job: the keys of an identity provider."""

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 10
BYTES_MAX: Final = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The settings allow URLs one by one, so another address is an error."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


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
