"""The login that the settings of a client describe: a user and a password, or the source of a token.

sasl.jaas.config (Kafka's, as in Spark's options) ─┐
sasl.username, sasl.password (librdkafka's) ───────┼─► PasswordLogin │ TokenLogin
sasl.oauthbearer.* or a callback ──────────────────┘
"""

from collections.abc import Callable
from typing import Protocol

from sparklog.errors import SettingsError

from . import jaas
from .login import OAUTHBEARER, Login, PasswordLogin, TokenLogin, check_mechanism, password_login

_KEY = "sasl.jaas.config"
_EXTENSION = "extension_"


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
    def sasl_oauthbearer_scope(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_id(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_secret(self) -> str | None: ...


class TokenSource(Protocol):
    """Where the tokens of OAUTHBEARER come from: the shell reads URLs and clocks."""

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        """Tokens of a function of the user."""

    def of_endpoint(
        self, url: str, client_id: str, client_secret: str, scope: str | None
    ) -> Callable[[], str]:
        """Tokens of a provider, by the client credentials grant; or those of a file."""


class _NoTokens:
    """Checks settings without reading anything."""

    def of_callback(self, callback: Callable[[], str | tuple[str, float]]) -> Callable[[], str]:
        return str

    def of_endpoint(
        self, url: str, client_id: str, client_secret: str, scope: str | None
    ) -> Callable[[], str]:
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
    url = settings.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise SettingsError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or in Python "
            "sasl_oauthbearer_token_callback; tokens without a signature are not made"
        )
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", "")
    if not url.startswith("file:") and not (client_id and secret):
        raise SettingsError(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id "
            "and sasl.oauthbearer.client.credentials.client.secret"
        )
    scope = settings.sasl_oauthbearer_scope or options.get("scope")
    return TokenLogin(tokens.of_endpoint(url, client_id, secret, scope), extensions)
