"""Logins: the credentials of a client, from which each connection gets a machine of its own.

    settings, or a JAAS entry ─► Login ─► machine() for each connection, and for each re-authentication

No repr has a secret.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from sparklog.errors import SettingsError

from . import jaas
from .machines import NONCE_BYTES, Machine, OAuthMachine, PlainMachine, ScramMachine
from .scram_messages import HASHES, salted_password

MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")
OAUTHBEARER: Final = "OAUTHBEARER"
KERBEROS_HINT: Final = (
    "Kerberos (GSSAPI) is not supported: use SCRAM-SHA-512, or OAUTHBEARER with an identity provider"
)


class Login(Protocol):
    """The credentials of one client for one mechanism."""

    mechanism: str

    def machine(self) -> Machine:
        """A new conversation. Raises AuthenticationFailed."""


class PasswordLogin:
    """A user and a password, for PLAIN and SCRAM; with `is_token`, a delegation token's id and HMAC."""

    __slots__ = ("_entropy", "_is_token", "_password", "_salted", "mechanism", "user")

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        entropy: Callable[[int], bytes],
        *,
        is_token: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._entropy = entropy
        self._is_token = is_token
        self._salted: tuple[bytes, int, bytes] = b"", 0, b""

    def machine(self) -> Machine:
        """A new conversation."""
        if self.mechanism == "PLAIN":
            return PlainMachine(self.user, self._password)
        return ScramMachine(
            self.mechanism, self.user, self._salt, self._entropy(NONCE_BYTES), is_token=self._is_token
        )

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        """The salted password; the last one is kept, since it takes milliseconds (RFC 5802, section 5.1)."""
        if self._salted[:2] != (salt, iterations):
            salted = salted_password(HASHES[self.mechanism], self._password, salt, iterations)
            self._salted = salt, iterations, salted
        return self._salted[2]


class TokenLogin:
    """OAUTHBEARER: `token` gives the current token and may wait for the provider."""

    __slots__ = ("_extensions", "_token", "mechanism")

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str]) -> None:
        self.mechanism = OAUTHBEARER
        self._token = token
        self._extensions = dict(extensions)

    def machine(self) -> Machine:
        """A new conversation with the current token."""
        return OAuthMachine(self._token(), self._extensions)


def password_login(
    mechanism: str, module: jaas.LoginModule, key: str, entropy: Callable[[int], bytes]
) -> PasswordLogin:
    """The login of a JAAS entry, which the setting `key` has; raises SettingsError."""
    expected = jaas.PLAIN if mechanism == "PLAIN" else jaas.SCRAM
    if module.name != expected:
        raise SettingsError(f"{key}: {mechanism} takes the login module {expected}, not {module.name}")
    return PasswordLogin(
        mechanism,
        jaas.required_option(module, "username", key),
        jaas.required_option(module, "password", key),
        entropy,
        is_token=mechanism != "PLAIN" and module.options.get("tokenauth", "").lower() == "true",
    )


def check_mechanism(mechanism: str, key: str) -> None:
    """Raises SettingsError for a mechanism that is not supported."""
    if mechanism == "GSSAPI":
        raise SettingsError(f"{key}=GSSAPI: {KERBEROS_HINT}")
    if mechanism not in MECHANISMS:
        raise SettingsError(f"{key}={mechanism}: the mechanisms are {', '.join(MECHANISMS)}")
