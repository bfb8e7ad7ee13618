"""The login that the settings of a client describe: a user and a password, or the source of a token.

sasl.jaas.config (Kafka's, as in Spark's options) ─┐
sasl.username, sasl.password (librdkafka's) ───────┼─► PasswordLogin │ TokenLogin
sasl.oauthbearer.* or a callback ──────────────────┘
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from sparklog.errors import SettingsError
from sparklog.tls.keys import TlsKeys

from . import jaas
from .grants import AssertionGrant, AssertionKeys, Grant, JwtBearerGrant, SecretGrant
from .login import OAUTHBEARER, Login, PasswordLogin, TokenLogin, check_mechanism, password_login

_KEY: Final = "sasl.jaas.config"
_EXTENSION: Final = "extension_"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_DEFAULT, _FILE, _CREDENTIALS, _JWT_BEARER = RETRIEVERS = (
    "DefaultJwtRetriever",
    "FileJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "JwtBearerJwtRetriever",
)
"""What Kafka's classes of sasl.oauthbearer.jwt.retriever.class do is built in."""


class LoginSettings(Protocol):
    """The settings of a client that make its login."""

    @property
    def sasl_mechanism(self) -> str: ...
    @property
    def sasl_jaas_config(self) -> str | None: ...
    @property
    def sasl_username(self) -> str | None: ...
    @property
    def sasl_password(self) -> str | None: ...
    @property
    def sasl_oauthbearer_token_callback(self) -> Callable[[], str | tuple[str, float]] | None: ...
    @property
    def sasl_oauthbearer_token_endpoint_url(self) -> str | None: ...
    @property
    def sasl_oauthbearer_jwt_retriever_class(self) -> str: ...
    @property
    def sasl_oauthbearer_header_urlencode(self) -> bool: ...
    @property
    def assertion(self) -> AssertionKeys: ...
    @property
    def sasl_oauthbearer_scope(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_id(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_secret(self) -> str | None: ...


class TokenSource(Protocol):
    """Where the tokens of OAUTHBEARER come from: the shell reads URLs, files and clocks."""

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        """Tokens of a function of the user."""

    def of_file(self, url: str) -> Callable[[], str]:
        """Tokens of a file, which is read each time."""

    def of_endpoint(self, url: str, grant: Grant, tls: TlsKeys) -> Callable[[], str]:
        """Tokens of a provider, which is reached by these keys. Raises SettingsError."""

    def assertions(self, keys: AssertionKeys) -> Callable[[], str]:
        """Assertions for a grant."""


class _NoTokens:
    """Checks settings without reading anything."""

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        return str

    def of_file(self, url: str) -> Callable[[], str]:
        return str

    def of_endpoint(self, url: str, grant: Grant, tls: TlsKeys) -> Callable[[], str]:
        return str

    def assertions(self, keys: AssertionKeys) -> Callable[[], str]:
        return str


def check_login(settings: LoginSettings) -> None:
    """Raises SettingsError if the settings make no login."""
    login_of(settings, bytes, _NoTokens())


def login_of(settings: LoginSettings, entropy: Callable[[int], bytes], tokens: TokenSource) -> Login:
    """The login of a client whose security.protocol is a SASL one; raises SettingsError."""
    mechanism = settings.sasl_mechanism
    check_mechanism(mechanism, "sasl.mechanism")
    module = None if settings.sasl_jaas_config is None else jaas.parse_jaas(settings.sasl_jaas_config, _KEY)
    if mechanism == OAUTHBEARER:
        return _token_login(settings, module, tokens)
    if module is not None:
        return password_login(mechanism, module, _KEY, entropy)
    if not settings.sasl_username or not settings.sasl_password:
        raise SettingsError(f"{mechanism} needs sasl.username and sasl.password, or {_KEY}")
    return PasswordLogin(mechanism, settings.sasl_username, settings.sasl_password, entropy)


def _token_login(settings: LoginSettings, module: jaas.LoginModule | None, tokens: TokenSource) -> TokenLogin:
    if module is not None and module.name != jaas.OAUTHBEARER:
        raise SettingsError(f"{_KEY}: OAUTHBEARER takes the login module {jaas.OAUTHBEARER}")
    options = {} if module is None else module.options
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    if settings.sasl_oauthbearer_token_callback is not None:
        return TokenLogin(tokens.of_callback(settings.sasl_oauthbearer_token_callback), extensions)
    return TokenLogin(_provided(settings, options, tokens), extensions)


def _provided(settings: LoginSettings, options: Mapping[str, str], tokens: TokenSource) -> Callable[[], str]:
    """The tokens of a provider, or of a file."""
    url = settings.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise SettingsError(
            f"OAUTHBEARER needs {_URL}, or in Python sasl_oauthbearer_token_callback; tokens without a "
            "signature are not made"
        )
    is_file = url.startswith("file:")
    retriever = _retriever(settings.sasl_oauthbearer_jwt_retriever_class)
    if retriever == _FILE or (retriever == _DEFAULT and is_file):
        if not is_file:
            raise SettingsError(f"{_URL}: {_FILE} needs an URL of file://")
        return tokens.of_file(url)
    if is_file:
        raise SettingsError(f"{_URL}: {retriever} needs an URL of https://")
    grant = _grant(settings, options, tokens, is_bearer=retriever == _JWT_BEARER)
    return tokens.of_endpoint(url, grant, TlsKeys.of(options))


def _retriever(name: str) -> str:
    short = name.removeprefix(_PACKAGE)
    if short not in RETRIEVERS:
        raise SettingsError(
            f"sasl.oauthbearer.jwt.retriever.class={name}: the classes are "
            f"{', '.join(_PACKAGE + one for one in RETRIEVERS)}"
        )
    return short


def _grant(
    settings: LoginSettings, options: Mapping[str, str], tokens: TokenSource, *, is_bearer: bool
) -> Grant:
    scope = settings.sasl_oauthbearer_scope or options.get("scope")
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    keys = settings.assertion
    if is_bearer or keys.is_for_client:
        keys.check()
        assertions = tokens.assertions(keys)
        return (
            JwtBearerGrant(scope, assertions) if is_bearer else AssertionGrant(client_id, scope, assertions)
        )
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", "")
    if not (client_id and secret):
        raise SettingsError(
            f"{_URL} needs sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret, or an assertion "
            "(sasl.oauthbearer.assertion.file, or .claim.iss and .private.key.file)"
        )
    is_encoded = settings.sasl_oauthbearer_header_urlencode
    return SecretGrant(client_id, secret, scope, is_encoded=is_encoded)
