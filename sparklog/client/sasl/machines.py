"""The machines of a client: each is one conversation with a broker.

    first() ─► response ─► the broker ─► challenge ─► next(challenge) ─► response ─► ...
                                             └─► finish(challenge), once the broker has accepted

An empty response ends a conversation that the broker has not accepted. Every failure is an
AuthenticationFailed.
"""

from collections.abc import Callable
from hmac import compare_digest
from typing import Protocol

from sparklog.client.failures import AuthenticationFailed

from . import scram_messages as scram

NONCE_BYTES = 24


class Machine(Protocol):
    """One conversation of a mechanism."""

    def first(self) -> bytes:
        """The first response."""

    def next(self, challenge: bytes) -> bytes:
        """The response to a challenge. Raises AuthenticationFailed."""

    @property
    def is_complete(self) -> bool:
        """Whether the broker has proved what the mechanism asks of it, so that its acceptance counts."""


class PlainMachine:
    """PLAIN (RFC 4616): one response with the password."""

    __slots__ = ("_response",)

    def __init__(self, user: str, password: str) -> None:
        self._response = b"\0".join((b"", user.encode(), password.encode()))

    def first(self) -> bytes:
        """User and password."""
        return self._response

    def next(self, challenge: bytes) -> bytes:
        """PLAIN has no challenge."""
        if challenge:
            raise AuthenticationFailed("the broker sent a challenge, but PLAIN has none")
        return b""

    @property
    def is_complete(self) -> bool:
        """PLAIN asks no proof of the broker."""
        return True


class OAuthMachine:
    """OAUTHBEARER (RFC 7628): one response with the token; a challenge is the broker's refusal."""

    __slots__ = ("_is_refused", "_response")

    def __init__(self, token: str, extensions: dict[str, str] | None = None) -> None:
        pairs = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
        self._response = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
        self._is_refused = False

    def first(self) -> bytes:
        """The token."""
        return self._response

    def next(self, challenge: bytes) -> bytes:
        """The response to a refusal, upon which the broker tells its error."""
        self._is_refused = self._is_refused or bool(challenge)
        return b"\x01" if challenge else b""

    @property
    def is_complete(self) -> bool:
        """Whether the broker has not refused the token."""
        return not self._is_refused


class ScramMachine:
    """SCRAM: proves the password without sending it, and demands that the broker knows it too.

    `salted` gives the salted password for a salt and a number of iterations.
    """

    __slots__ = ("_bare", "_expected", "_hash", "_is_complete", "_nonce", "_salted", "_server_first")

    def __init__(
        self,
        mechanism: str,
        user: str,
        salted: Callable[[bytes, int], bytes],
        nonce: bytes,
        *,
        is_token: bool = False,
    ) -> None:
        self._hash = scram.HASHES[mechanism]
        self._salted = salted
        self._nonce = scram.base64(nonce)
        self._bare = f"n={scram.escaped(user)},r={self._nonce}{',tokenauth=true' if is_token else ''}"
        self._server_first = False
        self._expected = b""
        self._is_complete = False

    def first(self) -> bytes:
        """The user and a nonce."""
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes:
        """The proof, or nothing after the broker's signature."""
        try:
            return self._verified(challenge) if self._server_first else self._proof(challenge)
        except scram.MessageInvalid as error:
            raise AuthenticationFailed(f"the broker's reply to SCRAM is {error}") from None

    @property
    def is_complete(self) -> bool:
        """Whether the broker has signed with the key of this user."""
        return self._is_complete

    def _proof(self, challenge: bytes) -> bytes:
        message = scram.parse_server_first(challenge)
        if not message.nonce.startswith(self._nonce) or len(message.nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker's reply to SCRAM has a foreign nonce")
        if not scram.ITERATIONS_MIN <= message.iterations <= scram.ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the broker requests {message.iterations} iterations of SCRAM; "
                f"from {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX} are computed"
            )
        self._server_first = True
        salted = self._salted(message.salt, message.iterations)
        bare = f"c={scram.base64(b'n,,')},r={message.nonce}"
        exchanged = f"{self._bare},{challenge.decode()},{bare}".encode()
        key = scram.client_key(self._hash, salted)
        signed = scram.signature(self._hash, scram.stored_key(self._hash, key), exchanged)
        self._expected = scram.signature(self._hash, scram.server_key(self._hash, salted), exchanged)
        return f"{bare},p={scram.base64(scram.xor(key, signed))}".encode()

    def _verified(self, challenge: bytes) -> bytes:
        message = scram.parse_server_final(challenge)
        if message.error is not None:
            raise AuthenticationFailed(f"the broker refuses SCRAM: {message.error}")
        if self._is_complete or not compare_digest(message.signature, self._expected):
            raise AuthenticationFailed("the broker does not know the password: its signature is not valid")
        self._is_complete = True
        return b""
