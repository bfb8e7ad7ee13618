"""PLAIN (RFC 4616): user and password in one response, against the users of a JAAS entry."""

import hmac
from collections.abc import Mapping
from typing import Final

from sparklog.model import Instant

from .sasl import Authenticated, SaslRefused

USER_PREFIX: Final = "user_"
_HASH: Final = "sha256"


class PlainUsers:
    """The users of one listener. It keeps digests of the passwords by a key of this process, so that a
    comparison takes the same time for each password, and for each unknown user.
    """

    __slots__ = ("_digests", "_key", "_nobody")

    def __init__(self, options: Mapping[str, str], key: bytes) -> None:
        """`options` are those of PlainLoginModule: `user_NAME="password"`."""
        self._key = key
        self._digests = {
            name.removeprefix(USER_PREFIX): hmac.digest(key, password.encode(), _HASH)
            for name, password in options.items()
            if name.startswith(USER_PREFIX)
        }
        self._nobody = hmac.digest(key, key, _HASH)

    def __len__(self) -> int:
        return len(self._digests)

    def is_valid(self, user: str, password: bytes) -> bool:
        """Whether this is the password of the user."""
        given = hmac.digest(self._key, password, _HASH)
        is_equal = hmac.compare_digest(given, self._digests.get(user, self._nobody))
        return is_equal and user in self._digests


class PlainServer:
    """One conversation."""

    __slots__ = ("_users",)

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def respond(self, response: bytes, now: Instant) -> Authenticated:
        """Check the password. Raises SaslRefused."""
        parts = response.split(b"\0")
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            raise SaslRefused(text, text)
        try:
            authorization_id, user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise SaslRefused("the user name is not UTF-8") from None
        for part, name in ((parts[1], "username"), (parts[2], "password")):
            if not part:
                text = f"Authentication failed: {name} not specified"
                raise SaslRefused(text, text)
        if not self._users.is_valid(user, parts[2]):
            text = "Authentication failed: Invalid username or password"
            raise SaslRefused(text, text)
        if authorization_id not in ("", user):
            text = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise SaslRefused(text, text)
        return Authenticated(user)
