"""SCRAM-SHA-256 and SCRAM-SHA-512 as a broker speaks them (RFC 5802).

    FIRST ─ user, nonce ─► salt, iterations ─► FINAL ─ proof ─► signature ─► DONE
      └─ a delegation token used for the first time: a job computes its keys ─┘

A user that does not exist gets a credential too, always the same one, and fails with the proof, as a wrong
password does. Its iterations and the kind of its salt are those of a share of the users that exist, chosen by
its name, so that neither tells it from them.
"""

import hmac
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.client.sasl.scram_messages import (
    HASHES,
    ITERATIONS_MIN,
    ClientFirst,
    MessageInvalid,
    base64,
    parse_client_final,
    parse_client_first,
    salted_password,
    signature,
    stored_key,
    xor,
)
from sparklog.client.sasl.scram_messages import client_key as client_key_of
from sparklog.client.sasl.scram_messages import server_key as server_key_of
from sparklog.model import Instant

from .sasl import Authenticated, Challenge, SaslRefused, Working

NUMBERS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by their numbers in records and requests (KIP-554)."""
NUMBER_OF: Final = {name: number for number, name in NUMBERS.items()}
NONCE_BYTES: Final = 24

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
SALT_SEED_BYTES: Final = 17
_SALT_BITS: Final = 130
_SALT_LENGTH: Final = 25
"""The usual length of a salt of Kafka's tools: a number of 130 bits in base 36."""


class ScramCredential:
    """What a broker keeps of a password; its repr has no secret."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, salt: bytes, stored_key: bytes, server_key: bytes, iterations: int) -> None:
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations


class TokenFound(NamedTuple):
    """A delegation token: its owner, its expiry, and its password (the HMAC in base64)."""

    owner: str
    expires_ms: int
    password: str


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password, which takes milliseconds."""
    name = HASHES[mechanism]
    salted = salted_password(name, password, salt, iterations)
    stored = stored_key(name, client_key_of(name, salted))
    return ScramCredential(salt, stored, server_key_of(name, salted), iterations)


class Shape(NamedTuple):
    """What a credential shows to a client that knows no password; a salt is of digits in base 36, or of
    arbitrary bytes.
    """

    iterations: int
    salt_length: int
    is_of_digits: bool


DEFAULT_SHAPE: Final = Shape(ITERATIONS_MIN, _SALT_LENGTH, is_of_digits=True)


def shape_of(salt: bytes, iterations: int) -> Shape:
    """The shape of a credential; all salts of Kafka's tools have one."""
    is_of_digits = all(byte in _DIGITS for byte in salt)
    is_kafkas = is_of_digits and abs(len(salt) - _SALT_LENGTH) <= 1
    return Shape(iterations, _SALT_LENGTH if is_kafkas else len(salt), is_of_digits)


def kafka_salt(seed: bytes) -> bytes:
    """A salt as Kafka's tools make it, from at least `SALT_SEED_BYTES` random bytes."""
    value, digits = int.from_bytes(seed, "big") % (1 << _SALT_BITS), bytearray()
    while value:
        value, digit = divmod(value, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


def absent_credential(
    mechanism: str, user: str, secret: bytes, shapes: Mapping[Shape, int] | None = None
) -> ScramCredential:
    """The credential of a user that does not exist: it looks like a real one and has no password. `shapes`
    counts the users that exist by their shapes.
    """
    name = HASHES[mechanism]

    def drawn(purpose: bytes) -> bytes:
        return hmac.digest(secret, b"%s %s %s" % (purpose, name.encode(), user.encode()), "sha512")

    shape = _chosen(shapes or {}, int.from_bytes(drawn(b"shape")[:8], "big") / (1 << 64))
    salt = b"".join(drawn(b"salt %d" % start) for start in range(0, shape.salt_length, 64))
    if shape == (shape.iterations, _SALT_LENGTH, True):
        salt = kafka_salt(salt)
    elif shape.is_of_digits:
        salt = bytes(_DIGITS[byte % len(_DIGITS)] for byte in salt)[: shape.salt_length]
    else:
        salt = salt[: shape.salt_length]
    size = len(hmac.digest(b"", b"", name))
    return ScramCredential(salt, drawn(b"stored")[:size], drawn(b"server")[:size], shape.iterations)


def _chosen(shapes: Mapping[Shape, int], share: float) -> Shape:
    """The shape at this share, from 0 to 1, of all users. A user that comes changes those of few others."""
    rest = share * sum(shapes.values())
    for shape in sorted(shapes):
        rest -= shapes[shape]
        if rest < 0:
            return shape
    return DEFAULT_SHAPE


class ScramAccounts:
    """The credentials of a cluster for one mechanism.

    `users` and `tokens` find those of the current metadata, and `shapes` counts the users by their shapes;
    `secret` is the same on every node, so that each gives a user that does not exist the same credential.
    """

    def __init__(
        self,
        mechanism: str,
        users: Callable[[str, int], ScramCredential | None],
        tokens: Callable[[str], TokenFound | None],
        secret: Callable[[], bytes],
        shapes: Callable[[int], Mapping[Shape, int]] = lambda _mechanism: {},
    ) -> None:
        self.mechanism = mechanism
        self._users = users
        self.token = tokens
        self._secret = secret
        self._shapes = shapes
        self._of_tokens: dict[str, tuple[str, ScramCredential]] = {}

    def user(self, name: str) -> tuple[ScramCredential, bool]:
        """The credential of a user, and whether the user exists; both take the same time."""
        number = NUMBER_OF[self.mechanism]
        absent = absent_credential(self.mechanism, name, self._secret(), self._shapes(number))
        found = self._users(name, number)
        return (absent, False) if found is None else (found, True)

    def absent_token(self, token_id: str) -> ScramCredential:
        """The credential of a token that does not exist; one that exists has its salt and iterations."""
        return absent_credential(self.mechanism, token_id, self._secret())

    def known_token(self, token_id: str, password: str) -> ScramCredential | None:
        """The computed credential of a token; None if it must be computed."""
        found = self._of_tokens.get(token_id)
        return found[1] if found is not None and found[0] == password else None

    def keep_token(self, token_id: str, password: str, credential: ScramCredential) -> None:
        """Keep a computed credential; the oldest ones are dropped."""
        while len(self._of_tokens) >= _TOKENS_MAX:
            del self._of_tokens[next(iter(self._of_tokens))]
        self._of_tokens[token_id] = password, credential


_TOKENS_MAX: Final = 10_000


class _State(Enum):
    FIRST = auto()
    FINAL = auto()
    DONE = auto()


class ScramServer:
    """One conversation."""

    __slots__ = (
        "_accounts",
        "_credential",
        "_expires_ms",
        "_first",
        "_hash",
        "_is_known",
        "_is_token",
        "_nonce",
        "_server_first",
        "_state",
        "_user",
    )

    def __init__(self, accounts: ScramAccounts, nonce: str) -> None:
        """`nonce` is printable, without commas, and drawn for this conversation."""
        self._accounts = accounts
        self._hash = HASHES[accounts.mechanism]
        self._nonce = nonce
        self._state = _State.FIRST
        self._is_token = self._is_known = False
        self._expires_ms: int | None = None
        self._user = ""
        self._server_first = b""

    def respond(self, response: bytes, now: Instant) -> Challenge | Authenticated | Working:
        """The next step. Raises SaslRefused."""
        state, self._state = self._state, _State.DONE  # a failure ends the conversation
        try:
            if state is _State.FIRST:
                return self._begin(parse_client_first(response), now)
            if state is _State.FINAL:
                return self._finish(response, now)
        except MessageInvalid as error:
            raise SaslRefused(str(error)) from None
        raise SaslRefused("a response after the end of the conversation")

    def _begin(self, first: ClientFirst, now: Instant) -> Challenge | Working:
        self._first = first
        self._is_token = first.extensions.get("tokenauth", "").lower() == "true"
        if first.authorization_id not in ("", first.user):
            text = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise SaslRefused(text, text)
        if not self._is_token:
            self._user = first.user
            credential, self._is_known = self._accounts.user(first.user)
            return self._challenge(credential)
        token = self._accounts.token(first.user)
        if token is None or token.expires_ms < now.wall_ms:
            # An id is a random UUID, so it may show that this token does not exist.
            return self._challenge(self._accounts.absent_token(first.user))
        self._is_known, self._user, self._expires_ms = True, token.owner, token.expires_ms
        known = self._accounts.known_token(first.user, token.password)
        if known is not None:
            return self._challenge(known)
        return self._with_keys_of(first.user, token.password)

    def _with_keys_of(self, token_id: str, password: str) -> Working:
        mechanism, salt = self._accounts.mechanism, self._accounts.absent_token(token_id).salt

        def job() -> ScramCredential:
            return credential_of(mechanism, password, salt, ITERATIONS_MIN)

        def then(credential: object, now: Instant) -> Challenge:
            assert isinstance(credential, ScramCredential)
            self._accounts.keep_token(token_id, password, credential)
            return self._challenge(credential)

        return Working(job, then)

    def _challenge(self, credential: ScramCredential) -> Challenge:
        self._credential = credential
        self._state = _State.FINAL
        nonce = self._first.nonce + self._nonce
        text = f"r={nonce},s={base64(credential.salt)},i={credential.iterations}"
        self._server_first = text.encode()
        return Challenge(self._server_first)

    def _finish(self, response: bytes, now: Instant) -> Authenticated:
        final = parse_client_final(response)
        if final.nonce != self._first.nonce + self._nonce:
            raise SaslRefused("the nonce is not that of the conversation")
        if final.channel_binding != self._first.header:
            raise SaslRefused("the channel binding is not that of the first message")
        credential = self._credential
        exchanged = b",".join((self._first.bare, self._server_first, final.bare))
        signed = signature(self._hash, credential.stored_key, exchanged)
        if len(final.proof) != len(signed):
            raise SaslRefused("the proof has another length")
        proven = stored_key(self._hash, xor(signed, final.proof))
        is_equal = hmac.compare_digest(proven, credential.stored_key)
        if not (is_equal and self._is_known):
            raise SaslRefused("the proof is not that of the user's password")
        if self._expires_ms is not None and self._expires_ms < now.wall_ms:
            raise SaslRefused("the delegation token has expired")
        answer = f"v={base64(signature(self._hash, credential.server_key, exchanged))}"
        token_id = self._first.user if self._is_token else None
        return Authenticated(self._user, answer.encode(), self._expires_ms, token_id)
