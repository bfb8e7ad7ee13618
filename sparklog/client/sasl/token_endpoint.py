"""The shell around OAUTHBEARER: tokens from a callback, a file, or an identity provider over HTTPS.

A token is kept until 80 % of its life is over (Kafka's sasl.login.refresh.window.factor). A thread that needs
a new one waits for the provider; while that has none, the old one serves until it ends.
"""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import urlsafe_b64decode
from collections.abc import Callable
from http.client import HTTPException
from math import isfinite
from typing import Final

from sparklog.client.failures import AuthenticationFailed
from sparklog.client.http_replies import LOCAL_HOSTS, NoRedirect, body_of, object_of
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.tls.contexts import client_context
from sparklog.tls.keys import TlsKeys

from .assertions import assertions, read_text
from .grants import AssertionKeys, Grant, TokenRequest
from .login import Login
from .logins import login_of

_REFRESHED_AT: Final = 0.8
_REPLY_BYTES_MAX: Final = 1 << 20
_ERROR_BYTES_MAX: Final = 1 << 14
_ERROR_CHARACTERS_MAX: Final = 200
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token (RFC 6750, section 2.1)."""
_UNPRINTABLE: Final = re.compile(r"[^ -~]")


def shell_login(settings: ClientSettings, entropy: Callable[[int], bytes]) -> Login:
    """The login of a client whose security.protocol is a SASL one; raises SettingsError."""
    tokens = Tokens(
        connect_timeout_ms=settings.sasl_login_connect_timeout_ms,
        read_timeout_ms=settings.sasl_login_read_timeout_ms,
    )
    return login_of(settings, entropy, tokens)


class Tokens:
    """Implements `logins.TokenSource`."""

    def __init__(
        self, *, connect_timeout_ms: int, read_timeout_ms: int, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives seconds since 1970."""
        self._clock = clock
        self._timeout_s = max(1, connect_timeout_ms, read_timeout_ms) / 1000

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        """Tokens of a function of the user."""

        def fetch() -> tuple[str, float | None]:
            answer = callback()
            return (answer, None) if isinstance(answer, str) else (answer[0], answer[1])

        return _Kept(fetch, self._clock)

    def of_file(self, url: str) -> Callable[[], str]:
        """Tokens of a file, which is read each time."""
        path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
        where = f"the token file {path}"
        return lambda: _checked(read_text(path, where).strip(), where)

    def assertions(self, keys: AssertionKeys) -> Callable[[], str]:
        """Assertions, made when a token is requested."""
        return assertions(keys)

    def of_endpoint(self, url: str, grant: Grant, tls: TlsKeys) -> Callable[[], str]:
        """Tokens of a provider. Raises SettingsError."""
        parts = urllib.parse.urlsplit(url)
        is_encrypted = parts.scheme == "https"
        if not is_encrypted and not (parts.scheme == "http" and parts.hostname in LOCAL_HOSTS):
            raise SettingsError(f"sasl.oauthbearer.token.endpoint.url={url}: an URL of https:// is needed")
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if is_encrypted:
            handlers.append(urllib.request.HTTPSHandler(context=client_context(tls)))
        opener = urllib.request.build_opener(*handlers)
        return _Kept(lambda: _granted(opener, url, grant.request(), self._timeout_s), self._clock)


class _Kept:
    """A token that is fetched again late in its life."""

    def __init__(self, fetch: Callable[[], tuple[str, float | None]], clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._token = ""
        self._until_s = 0.0
        self._ends_s = 0.0

    def __call__(self) -> str:
        now_s = self._clock()
        if now_s >= self._until_s:
            try:
                token, ends_s = self._fetch()
            except AuthenticationFailed:
                if now_s >= self._ends_s:
                    raise
                return self._token
            self._token = _checked(token, "the provider of tokens")
            known = [end for end in (ends_s, _end_of(token)) if end is not None]
            ends_s = min(known, default=None)
            self._ends_s = 0.0 if ends_s is None else ends_s
            self._until_s = 0.0 if ends_s is None else now_s + (ends_s - now_s) * _REFRESHED_AT
        return self._token


def _granted(
    opener: urllib.request.OpenerDirector, url: str, asked: TokenRequest, timeout_s: float
) -> tuple[str, float | None]:
    """The token of a provider's reply, and its end. Raises AuthenticationFailed, without a secret."""
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    if asked.authorization is not None:
        headers["Authorization"] = asked.authorization
    data = urllib.parse.urlencode(asked.form).encode()
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - the scheme was checked
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            fields = object_of(body_of(reply, _REPLY_BYTES_MAX, time.monotonic() + timeout_s))
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            reason = _refusal(error, asked)
        raise AuthenticationFailed(f"{url} refuses a token: HTTP {error.code}{reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = str(error.reason if isinstance(error, urllib.error.URLError) else error)
        raise AuthenticationFailed(f"{url} gives no token: {_shown(reason, asked)}") from None
    token = fields.get("access_token")
    if not isinstance(token, str) or not token:
        raise AuthenticationFailed(f"{url} gives no token: its reply has no access_token")
    lasts_s = _finite(fields.get("expires_in"))
    return token, None if lasts_s is None else time.time() + lasts_s


def _refusal(error: urllib.error.HTTPError, asked: TokenRequest) -> str:
    """What a provider tells with a failure: `error` and `error_description` (RFC 6749, section 5.2)."""
    if 300 <= error.code < 400:
        return ", a redirect, which is not followed"
    try:
        fields = object_of(error.read(_ERROR_BYTES_MAX))
    except (OSError, HTTPException, ValueError):
        return f" {_shown(error.reason, asked)}"
    words = [fields[name] for name in ("error", "error_description") if isinstance(fields.get(name), str)]
    return f" {_shown(' - '.join(words) or error.reason, asked)}"


def _shown(text: str, asked: TokenRequest) -> str:
    """A text of the provider, without what it must not repeat."""
    for secret in asked.secrets:
        text = text.replace(secret, "[hidden]")
    return _UNPRINTABLE.sub("?", text)[:_ERROR_CHARACTERS_MAX]


def _checked(token: str, where: str) -> str:
    """A token that can be sent; raises AuthenticationFailed."""
    if _TOKEN.fullmatch(token) is None:
        raise AuthenticationFailed(f"{where} gives a text that has other characters than a token")
    return token


def _end_of(token: str) -> float | None:
    """The expiry that a JWT has, in seconds; None if it cannot be told. Only the broker checks the token."""
    try:
        text = token.split(".")[1]
        return _finite(json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))["exp"])
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return None


def _finite(value: object) -> float | None:
    """A number of JSON; None for a text, for infinity, and for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
