"""OAUTHBEARER (RFC 7628) as a broker speaks it: tokens are JWTs that an identity provider signs (KIP-768).

    response ─► token ─┬─► job: the signature by the provider's keys (JWKS) ─► claims against the clock
                       │             ▲
                       └─ its key is missing: waits until the keys are read, in a background job of their own

Keys that are old are read again meanwhile, and serve until then. A provider that does not answer holds one
background thread, and no thread of requests.

Only asymmetric signatures count: a token that names `none` or an HMAC is refused. PyJWT checks
the signature only; the claims are checked here, with the time of the turn.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec

from sparklog.model import Instant, Micros

from .sasl import Authenticated, Challenge, SaslRefused, SaslUnavailable, Waiting, Working

RESPONSE_BYTES_MAX: Final = 256 << 10
"""A longer one, and its token, is refused before it is read."""
_KEYS_MAX: Final = 100
_WAITING_MAX: Final = 100
"""Conversations that wait for one read of keys. Each holds its token."""
_MISSING_KEY_US: Final = 10_000_000
"""Keys are read again for a token with an unknown key at most this often."""
_REFUSAL: Final = b'{"status":"invalid_token"}'
# Without backtracking (`*+`), as in `scram_messages`.
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_RESPONSE: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+)\x01"
)
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

Read = Callable[[str], bytes]
"""Reads a document of an URL within a finite time; raises OSError."""
Keys = tuple[tuple[str | None, tuple[str, ...], Any], ...]
"""Key id, algorithms, and PyJWT's key."""
KeysRead = Callable[[Keys | str, Instant], None]
"""Takes the keys, or why they could not be read, within a turn."""
RunInBackground = Callable[[Callable[[], Keys | str], KeysRead], None]
"""Runs a job that no request waits for."""


class OAuthRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say. Durations in ms, the skew in seconds."""

    jwks_url: str
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    groups_claim: str | None = None
    clock_skew_seconds: int = 30
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_ms_max: int = 10_000


class _Checked(NamedTuple):
    """The result of a job: the claims, or the refusal."""

    claims: Mapping[str, object] | None
    refusal: str = ""


class KeyReads:
    """The reads of keys of a node, one at a time, so that providers that do not answer hold one thread."""

    def __init__(self, read: Read, run: RunInBackground) -> None:
        self._read = read
        self._run = run
        self._due: deque[tuple[str, KeysRead]] = deque()  # the first one is under way

    def begin(self, url: str, then: KeysRead) -> None:
        """Read the keys of a document, after those that are due before."""
        self._due.append((url, then))
        if len(self._due) == 1:
            self._start()

    def _start(self) -> None:
        self._run(partial(_read_keys, self._read, self._due[0][0]), self._ended)

    def _ended(self, result: Keys | str, now: Instant) -> None:
        _, then = self._due.popleft()
        if self._due:
            self._start()
        then(result, now)


class OAuthProvider:
    """The keys of one identity provider. Invariants: at most one read of them is under way; the conversations
    in `_waiting` go on when it ends.
    """

    def __init__(self, rules: OAuthRules, reads: KeyReads, trace: Callable[..., None]) -> None:
        self.rules = rules
        self.trace = trace
        self._reads = reads
        self._keys: Keys | None = None
        self._stale_us = Micros(0)
        self._retry_us = Micros(0)
        self._retry_ms = rules.retry_ms
        self._is_reading = False
        self._waiting: list[Callable[[Instant], None]] = []

    def awaits(self, token: str, now: Instant) -> bool:
        """Whether the key of a token may be among those that are being read. Begins to read them if they are
        old, or lack it. Raises SaslUnavailable for one that cannot wait.
        """
        is_missing = self._keys is None or not _has_key(self._keys, token)
        is_due = now.mono_us >= self._retry_us and (is_missing or now.mono_us >= self._stale_us)
        if is_due and not self._is_reading:
            self._is_reading = True
            self._reads.begin(self.rules.jwks_url, self._were_read)
        if not (is_missing and self._is_reading):
            return False
        if len(self._waiting) >= _WAITING_MAX:
            raise SaslUnavailable("too many clients wait for the keys of the identity provider")
        return True

    def wait(self, go_on: Callable[[Instant], None]) -> None:
        """Call `go_on` when the read that is under way has ended."""
        assert self._is_reading
        self._waiting.append(go_on)

    def check(self, token: str) -> Callable[[], _Checked]:
        """The job that checks the signature of a token. Raises SaslUnavailable while there are no keys."""
        if self._keys is None:
            raise SaslUnavailable("the keys of the identity provider have not been read")
        return partial(_checked, self._keys, token)

    def _were_read(self, result: Keys | str, now: Instant) -> None:
        self._is_reading = False
        if isinstance(result, str):
            self._retry_us = Micros(now.mono_us + self._retry_ms * 1000)
            self._retry_ms = min(2 * self._retry_ms, self.rules.retry_ms_max)
            self.trace("jwks-unreadable", url=self.rules.jwks_url, reason=result)
        else:
            self._keys = result
            self._stale_us = Micros(now.mono_us + self.rules.refresh_ms * 1000)
            self._retry_us = Micros(now.mono_us + _MISSING_KEY_US)
            self._retry_ms = self.rules.retry_ms
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on(now)


class OAuthServer:
    """One conversation."""

    __slots__ = ("_is_refused", "_provider")

    def __init__(self, provider: OAuthProvider) -> None:
        self._provider = provider
        self._is_refused = False

    def respond(self, response: bytes, now: Instant) -> Working | Waiting:
        """Check the token. Raises SaslRefused and SaslUnavailable."""
        if self._is_refused:
            raise SaslRefused("the token is not valid", _REFUSAL.decode())
        token, authorization_id = parse_response(response)
        if self._provider.awaits(token, now):
            return Waiting(self._provider.wait, partial(self._check, token, authorization_id))
        return self._check(token, authorization_id)

    def _check(self, token: str, authorization_id: str) -> Working:
        def then(result: object, now: Instant) -> Challenge | Authenticated:
            assert isinstance(result, _Checked)
            try:
                if result.claims is None:
                    raise SaslRefused(result.refusal)
                accepted = accept(result.claims, self._provider.rules, now.wall_ms)
            except SaslRefused as refusal:
                # The client answers this challenge and then learns of the failure (RFC 7628, section 3.2.3).
                self._provider.trace("token-refused", reason=str(refusal))
                self._is_refused = True
                return Challenge(_REFUSAL)
            if authorization_id not in ("", accepted.user):
                raise SaslRefused("the authorization id is not the user of the token")
            return accepted

        return Working(self._provider.check(token), then)


def parse_response(response: bytes) -> tuple[str, str]:
    """The token and the authorization id of the client's response; raises SaslRefused."""
    if len(response) > RESPONSE_BYTES_MAX:
        raise SaslRefused(f"the response has more than {RESPONSE_BYTES_MAX} bytes")
    try:
        match = _RESPONSE.fullmatch(response.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslRefused("not a response of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise SaslRefused("the response has no bearer token")
    return bearer["token"], match["authzid"] or ""


def accept(claims: Mapping[str, object], rules: OAuthRules, now_ms: int) -> Authenticated:
    """Check the claims of a token whose signature is valid; raises SaslRefused."""
    now_s, skew = now_ms / 1000, rules.clock_skew_seconds
    expires = _time(claims, "exp")
    if expires is None or expires + skew <= now_s:
        raise SaslRefused("the token has no expiry, or has expired")
    issued = _time(claims, "iat")
    if issued is None:
        raise SaslRefused("the token has no time of issue")
    begins = _time(claims, "nbf")
    if begins is not None and begins - skew > now_s:
        raise SaslRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise SaslRefused("the token has another issuer")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not any(one in rules.audiences for one in named if isinstance(one, str)):
        raise SaslRefused("the token has another audience")
    scope = claims.get(rules.scope_claim, [])
    if not isinstance(scope, str | list):
        raise SaslRefused(f"the claim {rules.scope_claim} is neither a text nor a list")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise SaslRefused(f"the token has no text in the claim {rules.subject_claim}")
    groups: tuple[str, ...] = ()
    if rules.groups_claim is not None:
        told = claims.get(rules.groups_claim)
        listed = told.split() if isinstance(told, str) else told if isinstance(told, list) else []
        groups = tuple(f"Group:{one}" for one in listed if isinstance(one, str) and one)
    return Authenticated(subject.strip(), expires_ms=int(expires * 1000), groups=groups)


def parse_keys(document: bytes) -> Keys:
    """The public keys of a JWKS that sign; others are left out. Raises ValueError if none is left."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        told = json.loads(document)["keys"]
        entries = [one for one in told if isinstance(one, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the document is not a JSON Web Key Set") from None
    keys = []
    for entry in entries[:_KEYS_MAX]:
        algorithms = _algorithms_of(entry)
        if not algorithms or entry.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK(entry, algorithms[0]).key
        except (PyJWTError, ValueError, TypeError):
            continue
        keys.append((entry.get("kid"), algorithms, key))
    if not keys:
        raise ValueError("the JSON Web Key Set has no public key for signatures")
    return tuple(keys)


def _read_keys(read: Read, url: str) -> Keys | str:
    """A job: the keys, or why they cannot be read."""
    try:
        return parse_keys(read(url))
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _algorithms_of(entry: Mapping[str, object]) -> tuple[str, ...]:
    kind = entry.get("kty")
    algorithms: tuple[str, ...]
    if kind == "RSA":
        algorithms = _RSA
    elif kind == "EC":
        algorithms = tuple(name for curve, name in _CURVES.items() if curve == entry.get("crv"))
    elif kind == "OKP":
        algorithms = ("EdDSA",)
    else:
        return ()
    named = entry.get("alg")
    return algorithms if named is None else tuple(one for one in algorithms if one == named)


def _checked(keys: Keys, token: str) -> _Checked:
    """Check the signature; runs in a job."""
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    header = _header_of(token)
    fitting = [(algorithms, key) for kid, algorithms, key in keys if header.get("kid") in (None, kid)]
    for algorithms, key in fitting:
        if header.get("alg") not in algorithms:
            continue
        try:
            payload = PyJWS().decode(token, key, algorithms=list(algorithms))
            claims = json.loads(payload)
        except (PyJWTError, ValueError, TypeError, RecursionError):
            continue
        if isinstance(claims, dict):
            return _Checked(cast("Mapping[str, object]", claims))
    return _Checked(None, "the signature is not that of a key of the identity provider")


def _has_key(keys: Keys, token: str) -> bool:
    wanted = _header_of(token).get("kid")
    return wanted is None or any(kid == wanted for kid, _, _ in keys)


def _header_of(token: str) -> Mapping[str, object]:
    text = token.partition(".")[0]
    try:
        header = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        return None
    return float(value)
