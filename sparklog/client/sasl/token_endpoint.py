"""The shell around OAUTHBEARER: tokens from a callback, a file, or an identity provider over HTTPS.

A token is kept until 80 % of its life is over (Kafka's sasl.login.refresh.window.factor). A thread that needs
a new one waits for the provider.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Final

from sparklog.client.failures import AuthenticationFailed
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError

from .login import Login
from .logins import login_of

_REFRESHED_AT: Final = 0.8
_REPLY_BYTES_MAX: Final = 1 << 20
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


def shell_login(settings: ClientSettings, entropy: Callable[[int], bytes]) -> Login:
    """The login of a client whose security.protocol is a SASL one; raises SettingsError."""
    tokens = Tokens(
        connect_timeout_ms=settings.sasl_login_connect_timeout_ms,
        read_timeout_ms=settings.sasl_login_read_timeout_ms,
    )
    return login_of(settings, entropy, tokens)


class Tokens:
    """Implements `logins.TokenSource`."""

    def __init__(self, *, connect_timeout_ms: int, read_timeout_ms: int) -> None:
        self._timeout_s = max(1, connect_timeout_ms, read_timeout_ms) / 1000

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        """Tokens of a function of the user."""

        def told() -> tuple[str, float | None]:
            answer = callback()
            return (answer, None) if isinstance(answer, str) else (answer[0], answer[1])

        return _Kept(told)

    def of_endpoint(
        self, url: str, client_id: str, client_secret: str, scope: str | None
    ) -> Callable[[], str]:
        """Tokens of a provider, by the client credentials grant (RFC 6749, section 4.4); or those of a file,
        which is read each time. Raises SettingsError.
        """
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "file":
            return lambda: _read_file(urllib.request.url2pathname(parts.path))
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
            raise SettingsError(f"sasl.oauthbearer.token.endpoint.url={url}: an URL of https:// is needed")
        body = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        # The parts are form-encoded before they are joined (RFC 6749, section 2.3.1).
        pair = f"{urllib.parse.quote_plus(client_id)}:{urllib.parse.quote_plus(client_secret)}"
        headers = {
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        data = urllib.parse.urlencode(body).encode()

        def told() -> tuple[str, float | None]:
            request = urllib.request.Request(url, data, headers)  # noqa: S310 - the scheme was checked
            return _granted(request, self._timeout_s)

        return _Kept(told)


class _Kept:
    """A token that is fetched again late in its life."""

    def __init__(self, told: Callable[[], tuple[str, float | None]]) -> None:
        self._told = told
        self._token = ""
        self._until_s = 0.0

    def __call__(self) -> str:
        now_s = time.time()
        if now_s >= self._until_s:
            self._token, ends_s = self._told()
            ends_s = _end_of(self._token) if ends_s is None else ends_s
            self._until_s = 0.0 if ends_s is None else now_s + (ends_s - now_s) * _REFRESHED_AT
        return self._token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the client's secret to another address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _granted(request: urllib.request.Request, timeout_s: float) -> tuple[str, float | None]:
    """The token of a provider's reply, and its end. Raises AuthenticationFailed, without the secret."""
    where = request.full_url
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s) as reply:
            told = json.loads(reply.read(_REPLY_BYTES_MAX))
        token = told["access_token"]
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise AuthenticationFailed(f"{where} refuses a token: HTTP {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise AuthenticationFailed(f"{where} gives no token: {type(error).__name__}: {error}") from None
    if not isinstance(token, str) or not token:
        raise AuthenticationFailed(f"{where} gives no token: its access_token is no text")
    lasts = told.get("expires_in")
    is_number = isinstance(lasts, int | float) and not isinstance(lasts, bool)
    return token, time.time() + lasts if is_number else None


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise AuthenticationFailed(f"the token file {path} cannot be read: {error}") from None


def _end_of(token: str) -> float | None:
    """The expiry that a JWT has, in seconds; None if it cannot be told. Only the broker checks the token."""
    try:
        text = token.split(".")[1]
        expiry = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))["exp"]
        return float(expiry)
    except (ValueError, IndexError, KeyError, TypeError):
        return None
