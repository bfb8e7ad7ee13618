"""OAUTHBEARER (RFC 7628) as a broker speaks it: tokens are JWTs that an identity provider signs (KIP-768).

    response ─► token ─► job: the signature by the provider's keys (JWKS) ─► claims against the clock ─► user
                          └─ the keys are missing, old, or lack this one: the job reads them first

Only asymmetric signatures count: neither `none` nor an HMAC, whatever the token says of itself. PyJWT checks
the signature only; the claims are checked here, with the time of the turn.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from sparklog.model import Instant, Micros

from .sasl import Authenticated, Challenge, SaslRefused, SaslUnavailable, Working

TOKEN_BYTES_MAX: Final = 256 << 10
_KEYS_MAX: Final = 100
_READS_MAX: Final = 4
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
"""Reads a document of an URL; raises OSError."""
Keys = tuple[tuple[str | None, tuple[str, ...], Any], ...]
"""Key id, algorithms, and PyJWT's key."""


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
    """The result of a job: the claims, or the refusal; `keys` if they were read, `error` if that failed."""

    claims: Mapping[str, object] | None
    refusal: str = ""
    keys: Keys | None = None
    error: str = ""
    has_read: bool = False


class OAuthProvider:
    """The keys of one identity provider. Invariant: at most `_READS_MAX` jobs read them at a time."""

    def __init__(self, rules: OAuthRules, read: Read, trace: Callable[..., None]) -> None:
        self.rules = rules
        self._read = read
        self.trace = trace
        self._keys: Keys | None = None
        self._stale_us = Micros(0)
        self._retry_us = Micros(0)
        self._retry_ms = rules.retry_ms
        self._reading = 0

    def check(self, token: str, now: Instant) -> Callable[[], _Checked]:
        """The job that checks the signature of a token. Raises SaslUnavailable while there are no keys."""
        keys, url = self._keys, self.rules.jwks_url
        is_missing = keys is None or not _has_key(keys, token)
        may_read = now.mono_us >= self._retry_us and self._reading < (_READS_MAX if keys is None else 1)
        reads = may_read and (is_missing or now.mono_us >= self._stale_us)
        if keys is None and not reads:
            raise SaslUnavailable("the keys of the identity provider have not been read")
        read = self._read
        if reads:
            self._reading += 1

        def job() -> _Checked:
            if not reads:
                return _checked(keys or (), token)
            try:
                fresh = parse_keys(read(url))
            except (OSError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                if keys is None:
                    return _Checked(None, error=reason, has_read=True)
                return _checked(keys, token)._replace(error=reason, has_read=True)
            return _checked(fresh, token)._replace(keys=fresh, has_read=True)

        return job

    def checked(self, result: _Checked, now: Instant) -> Mapping[str, object]:
        """The claims of a token whose signature is valid. Raises SaslRefused and SaslUnavailable."""
        if result.has_read:
            self._reading -= 1
            if result.keys is not None:
                self._keys = result.keys
                self._stale_us = Micros(now.mono_us + self.rules.refresh_ms * 1000)
                self._retry_us = Micros(now.mono_us + _MISSING_KEY_US)
                self._retry_ms = self.rules.retry_ms
            else:
                self._retry_us = Micros(now.mono_us + self._retry_ms * 1000)
                self._retry_ms = min(2 * self._retry_ms, self.rules.retry_ms_max)
                self.trace("jwks-unreadable", url=self.rules.jwks_url, reason=result.error)
                if self._keys is None:
                    raise SaslUnavailable("the keys of the identity provider cannot be read")
        if result.claims is None:
            raise SaslRefused(result.refusal)
        return result.claims


class OAuthServer:
    """One conversation."""

    __slots__ = ("_is_refused", "_provider")

    def __init__(self, provider: OAuthProvider) -> None:
        self._provider = provider
        self._is_refused = False

    def respond(self, response: bytes, now: Instant) -> Working:
        """Check the token. Raises SaslRefused and SaslUnavailable."""
        if self._is_refused:
            raise SaslRefused("the token is not valid", _REFUSAL.decode())
        token, authorization_id = parse_response(response)
        job = self._provider.check(token, now)

        def then(result: object, now: Instant) -> Challenge | Authenticated:
            assert isinstance(result, _Checked)
            try:
                accepted = accept(self._provider.checked(result, now), self._provider.rules, now.wall_ms)
            except SaslRefused as refusal:
                # The client answers this challenge and then learns of the failure (RFC 7628, section 3.2.3).
                self._provider.trace("token-refused", reason=str(refusal))
                self._is_refused = True
                return Challenge(_REFUSAL)
            if authorization_id not in ("", accepted.user):
                raise SaslRefused("the authorization id is not the user of the token")
            return accepted

        return Working(job, then)


def parse_response(response: bytes) -> tuple[str, str]:
    """The token and the authorization id of the client's response; raises SaslRefused."""
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
    if len(bearer["token"]) > TOKEN_BYTES_MAX:
        raise SaslRefused(f"the token has more than {TOKEN_BYTES_MAX} bytes")
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
