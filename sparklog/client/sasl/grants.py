"""The grants by which a client asks its identity provider for a token: the content of the request.

| grant | proof | when, as in Kafka 4.3 |
|---|---|---|
| client credentials (RFC 6749, 4.4) | client id and secret | otherwise |
| client credentials (RFC 7523, 2.2) | an assertion | assertion.file or assertion.claim.iss is set |
| JWT bearer (RFC 7523, 2.1) | an assertion | jwt.retriever.class is JwtBearerJwtRetriever |

No repr has a secret.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self
from urllib.parse import quote_plus

import msgspec

from sparklog.errors import SettingsError

ALGORITHMS: Final = ("ES256", "RS256")
_CLAIMS: Final = ("aud", "iss", "sub")
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class AssertionKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The settings `sasl.oauthbearer.assertion.*`, whose other keys count only without a `file`."""

    file: str | None = None
    algorithm: str = "RS256"
    private_key_file: str | None = None
    private_key_passphrase: str | None = None
    template_file: str | None = None
    claims: Mapping[str, str]
    """`aud`, `iss` and `sub`, those that are set."""
    exp_seconds: int = 300
    nbf_seconds: int = 60
    jti_include: bool = False

    def __repr__(self) -> str:
        return f"AssertionKeys(file={self.file!r}, private_key_file={self.private_key_file!r})"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The keys from all settings by their names behind `sasl_oauthbearer_assertion_`."""
        claims = {name: given[f"claim_{name}"] for name in _CLAIMS}
        others = {
            key: value for name, value in given.items() if (key := name.removeprefix("claim_")) not in _CLAIMS
        }
        return cls(claims={name: text for name, text in claims.items() if text}, **others)

    @property
    def is_for_client(self) -> bool:
        """Whether an assertion takes the place of the secret of the client."""
        return bool(self.file) or "iss" in self.claims

    def check(self) -> None:
        """Raises SettingsError for settings that make no assertion."""
        if self.file:
            return
        if self.algorithm.upper() not in ALGORITHMS:
            raise SettingsError(
                f"sasl.oauthbearer.assertion.algorithm={self.algorithm}: must be one of "
                f"{', '.join(ALGORITHMS)}"
            )
        if not self.private_key_file:
            raise SettingsError(
                "an assertion needs sasl.oauthbearer.assertion.private.key.file, or "
                "sasl.oauthbearer.assertion.file"
            )


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a token. `secrets` are texts of it that no error may have."""

    form: Mapping[str, str]
    authorization: str | None = None
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return "TokenRequest()"


class Grant(Protocol):
    """How a client asks for a token."""

    def request(self) -> TokenRequest:
        """The next request. Raises AuthenticationFailed."""


class SecretGrant:
    """Client credentials by id and secret."""

    __slots__ = ("_request",)

    def __init__(self, client_id: str, secret: str, scope: str | None, *, is_encoded: bool) -> None:
        """`is_encoded` as RFC 6749 demands (section 2.3.1); Kafka's default is not."""
        client_id, secret = client_id.strip(), secret.strip()
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}" if is_encoded else f"{client_id}:{secret}"
        basic = b64encode(pair.encode()).decode()
        self._request = TokenRequest(
            form={"grant_type": "client_credentials"} | _scope(scope),
            authorization=f"Basic {basic}",
            secrets=(secret, quote_plus(secret), basic),
        )

    def request(self) -> TokenRequest:
        """The same each time."""
        return self._request


class AssertionGrant:
    """Client credentials by an assertion, which `assertion` makes for each request."""

    __slots__ = ("_assertion", "_form")

    def __init__(self, client_id: str, scope: str | None, assertion: Callable[[], str]) -> None:
        self._assertion = assertion
        self._form = {"grant_type": "client_credentials", "client_assertion_type": _ASSERTION_TYPE}
        self._form |= ({"client_id": client_id} if client_id else {}) | _scope(scope)

    def request(self) -> TokenRequest:
        """A request with a new assertion."""
        assertion = self._assertion()
        return TokenRequest(form=self._form | {"client_assertion": assertion}, secrets=(assertion,))


class JwtBearerGrant:
    """An assertion in exchange for a token (KIP-1139)."""

    __slots__ = ("_assertion", "_form")

    def __init__(self, scope: str | None, assertion: Callable[[], str]) -> None:
        self._assertion = assertion
        self._form = {"grant_type": _JWT_BEARER} | _scope(scope)

    def request(self) -> TokenRequest:
        """A request with a new assertion."""
        assertion = self._assertion()
        return TokenRequest(form=self._form | {"assertion": assertion}, secrets=(assertion,))


def _scope(scope: str | None) -> dict[str, str]:
    return {} if not scope or not scope.strip() else {"scope": scope.strip()}
