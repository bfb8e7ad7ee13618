"""The SASL listeners of this node: which mechanisms each offers, by which credentials; and the logins by
which the node authenticates with others. `ScramUsers` are those of the published metadata.
`session_authentication.py` has the state of one session.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sparklog.client.sasl import jaas
from sparklog.client.sasl.login import OAUTHBEARER, PasswordLogin, check_mechanism, password_login
from sparklog.client.sasl.scram_messages import HASHES, base64
from sparklog.errors import SettingsError
from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.access.session_authentication import Mechanism, Mechanisms, SessionAuthentication
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.keys import entries_of
from sparklog_server.config.layers import Layers
from sparklog_server.config.listeners import parse_protocol_map
from sparklog_server.config.sasl_settings import SaslSettings, text_for
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.delegation_tokens import ends_ms, token_hmac, token_of
from sparklog_server.metadata.image import CarriedKey, MetadataImage, credential_key
from sparklog_server.metadata.records import UserScramCredentialRecord
from sparklog_server.metadata.scram_secret import scram_secret_of
from sparklog_server.security.sasl import ServerMachine
from sparklog_server.security.scram import ScramCredential, Shape, shape_of

if TYPE_CHECKING:
    from sparklog_server.security.oauth import (
        KeyReads,
        Keys,
        KeysRead,
        OAuthProvider,
        OAuthRules,
        RunInBackground,
    )
    from sparklog_server.security.scram import ScramAccounts, TokenFound


_JAAS: Final = "sasl.jaas.config"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_KEY_BYTES: Final = 32


def background(continuations: Continuations) -> "RunInBackground":
    """Runs the jobs of OAuth providers in the background."""

    def run(job: "Callable[[], Keys | str]", then: "KeysRead") -> None:
        def finished(result: "Keys | str | StorageError", now: Instant) -> None:
            assert not isinstance(result, StorageError), "the job returns its errors"
            then(result, now)

        continuations.run(
            job, finished, is_background=True, out_of_memory=lambda now: then("out of memory", now)
        )

    return run


class Authentication:
    """The SASL listeners of a node. It follows settings that change while it runs, if they are valid."""

    def __init__(
        self,
        live: DynamicBrokerConfig,
        image: Callable[[], MetadataImage],
        *,
        cluster_id: str,
        entropy: Callable[[int], bytes],
        read: Callable[[str], bytes],
        run_in_background: "RunInBackground",
        trace: Callable[..., None],
    ) -> None:
        """Raises SettingsError."""
        self._live = live
        self._image = image
        self._entropy = entropy
        self._read = read
        self._run_in_background = run_in_background
        self._reads: KeyReads | None = None
        self._providers: dict[OAuthRules, OAuthProvider] = {}
        self._accounts: dict[str, ScramAccounts] = {}
        self._trace = trace
        self._plain_key = entropy(_KEY_BYTES)
        self._cluster_id = cluster_id
        self._layers = live.layers
        self._listeners = self._compiled(live.layers)

    def begin(self, listener: str) -> SessionAuthentication | None:
        """The authentication of a new session; None on a listener without SASL."""
        if not self._offered(listener):
            return None
        return SessionAuthentication(partial(self._offered, listener), self._token_ends_ms)

    def _offered(self, listener: str) -> Mechanisms:
        """What a listener offers by the settings of the moment; nothing without SASL."""
        if self._layers is not self._live.layers:
            self._layers = self._live.layers
            try:
                self._listeners = self._compiled(self._layers)
            except SettingsError as error:
                self._trace("sasl-settings-ignored", reason=str(error))
        return self._listeners.get(listener, {})

    def _compiled(self, layers: Layers) -> dict[str, Mechanisms]:
        sasl = layers.effective.sasl
        compiled: dict[str, Mechanisms] = {}
        for listener in self._live.settings.listeners:
            if not listener.protocol.startswith("SASL_"):
                continue
            listed = text_for(layers.text, listener.name, None, _MECHANISMS)
            names = sasl.enabled_mechanisms if listed is None else entries_of(listed)
            if not names:
                raise SettingsError(f"the listener {listener.name} needs {_MECHANISMS}")
            is_controller = listener.name in self._live.settings.controller_listener_names
            offered = {}
            for name in names:
                check_mechanism(name, _MECHANISMS)
                if is_controller and name in HASHES:
                    raise SettingsError(
                        f"{name} on the controller listener {listener.name}: credentials of SCRAM are in the "
                        f"metadata log, which controllers must agree on first; use PLAIN, or certificates"
                    )
                limit = text_for(layers.text, listener.name, name, "connections.max.reauth.ms")
                session_ms_max = sasl.connections_max_reauth_ms if limit is None else int(limit)
                offered[name] = Mechanism(self._machines_of(layers, listener.name, name), session_ms_max)
            compiled[listener.name] = offered
        return compiled

    def _machines_of(self, layers: Layers, listener: str, mechanism: str) -> Callable[[], ServerMachine]:
        """What makes the machines of a mechanism on a listener."""
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
        module = login_module(layers.text, layers.effective.sasl.jaas_config, listener, mechanism)
        if mechanism == "PLAIN":
            from sparklog_server.security.plain import USER_PREFIX, PlainServer, PlainUsers

            users = PlainUsers({} if module is None else module.options, self._plain_key)
            if not len(users):
                raise SettingsError(
                    f"{key} must name the users of PLAIN: org.apache.kafka.common.security.plain."
                    f'{jaas.PLAIN} required {USER_PREFIX}NAME="password";'
                )
            return lambda: PlainServer(users)
        if mechanism == OAUTHBEARER:
            from sparklog_server.security.oauth import OAuthServer

            provider = self._provider(oauth_rules(layers.effective.sasl, layers.text, listener))
            return lambda: OAuthServer(provider)
        from sparklog_server.security.scram import NONCE_BYTES, ScramAccounts, ScramServer

        accounts = self._accounts.get(mechanism)
        if accounts is None:
            known = ScramUsers(self._image, self._cluster_id, self._live.settings.sasl.token_secret_key or "")
            accounts = self._accounts[mechanism] = ScramAccounts(
                mechanism, known.credential, self._token, known.secret, known.shapes
            )
        return lambda: ScramServer(accounts, base64(self._entropy(NONCE_BYTES)))

    def _provider(self, rules: "OAuthRules") -> "OAuthProvider":
        """The provider of these rules: a change of other settings does not drop its keys."""
        from sparklog_server.security.oauth import KeyReads, OAuthProvider

        if self._reads is None:
            self._reads = KeyReads(self._read, self._run_in_background)
        if rules not in self._providers:
            self._providers[rules] = OAuthProvider(rules, self._reads, self._trace)
        return self._providers[rules]

    def _token(self, token_id: str) -> "TokenFound | None":
        from sparklog_server.security.scram import TokenFound

        secret, token = self._live.settings.sasl.token_secret_key, token_of(self._image(), token_id)
        if not secret or token is None:
            return None
        password = base64(token_hmac(secret, token_id))
        return TokenFound(token.owner.partition(":")[2], ends_ms(token), password)

    def _token_ends_ms(self, token_id: str) -> int | None:
        token = token_of(self._image(), token_id)
        return None if token is None else ends_ms(token)


def login_module(
    text: Callable[[str], str | None], general: str | None, listener: str, mechanism: str
) -> jaas.LoginModule | None:
    """The login module of a mechanism on a listener. The `general` one, which is given without a listener,
    counts for the mechanism that it is of. Raises SettingsError.
    """
    expected = jaas.PLAIN if mechanism == "PLAIN" else jaas.SCRAM if mechanism in HASHES else jaas.OAUTHBEARER
    own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
    given = text(own)
    if given is not None:
        module = jaas.parse_jaas(given, own)
        if module.name == jaas.KERBEROS or module.name != expected:
            raise SettingsError(f"{own}: {mechanism} takes the login module {expected}, not {module.name}")
        return module
    if general is None:
        return None
    module = jaas.parse_jaas(general, _JAAS)
    return module if module.name == expected else None


def oauth_rules(sasl: SaslSettings, text: Callable[[str], str | None], listener: str) -> "OAuthRules":
    """What tokens must say on a listener; raises SettingsError."""
    from sparklog_server.security.oauth import OAuthRules

    def setting(key: str, general: str | int | None) -> str | None:
        own = text_for(text, listener, OAUTHBEARER, f"sasl.oauthbearer.{key}")
        return own if own is not None or general is None else str(general)

    url = setting("jwks.endpoint.url", sasl.jwks_url)
    if not url:
        raise SettingsError(
            f"OAUTHBEARER on the listener {listener} needs sasl.oauthbearer.jwks.endpoint.url: tokens "
            "without a signature are never accepted"
        )
    check_url(url, sasl.allowed_urls, "sasl.oauthbearer.jwks.endpoint.url")
    return OAuthRules(
        jwks_url=url,
        issuer=setting("expected.issuer", sasl.expected_issuer),
        audiences=entries_of(setting("expected.audience", ",".join(sasl.expected_audience)) or ""),
        scope_claim=setting("scope.claim.name", sasl.scope_claim_name) or "scope",
        subject_claim=setting("sub.claim.name", sasl.sub_claim_name) or "sub",
        groups_claim=sasl.groups_claim_name,
        clock_skew_seconds=int(setting("clock.skew.seconds", sasl.clock_skew_seconds) or 0),
        refresh_ms=int(setting("jwks.endpoint.refresh.ms", sasl.jwks_refresh_ms) or 0),
        retry_ms=int(setting("jwks.endpoint.retry.backoff.ms", sasl.jwks_retry_backoff_ms) or 0),
        retry_ms_max=int(setting("jwks.endpoint.retry.backoff.max.ms", sasl.jwks_retry_backoff_ms_max) or 0),
    )


def check_url(url: str, allowed: tuple[str, ...], key: str) -> None:
    """Raises SettingsError for an URL that this node may not request; files are always allowed."""
    if url.startswith("file:"):
        return
    if not url.startswith(("https://", "http://")):
        raise SettingsError(f"{key}={url}: an URL of the kind https:// or file:// is needed")
    if url not in allowed:
        raise SettingsError(f"{key}={url} is not in sparklog.sasl.oauthbearer.allowed.urls")


class LinkLogins:
    """The logins of this node on inter-broker and controller listeners, None for those without SASL. It
    follows settings that change while it runs, if they are valid.
    """

    def __init__(
        self, live: DynamicBrokerConfig, entropy: Callable[[int], bytes], trace: Callable[..., None]
    ) -> None:
        """Raises SettingsError."""
        self._live = live
        self._entropy = entropy
        self._trace = trace
        self._layers = live.layers
        self._logins = self._made(live.layers)

    def login(self, *, is_controller: bool) -> PasswordLogin | None:
        """The login for a new link to a controller, or to another broker."""
        if self._layers is not self._live.layers:
            self._layers = self._live.layers
            try:
                self._logins = self._made(self._layers)
            except SettingsError as error:
                self._trace("sasl-settings-ignored", reason=str(error))
        return self._logins[is_controller]

    def _made(self, layers: Layers) -> tuple[PasswordLogin | None, PasswordLogin | None]:
        settings = layers.effective
        controller = next(iter(settings.controller_listener_names), None)
        broker_key, controller_key = (
            f"sasl.mechanism.{kind}.protocol" for kind in ("inter.broker", "controller")
        )
        broker = _link_login(
            layers,
            settings.inter_broker_listener_name,
            settings.sasl.mechanism_inter_broker,
            broker_key,
            self._entropy,
        )
        if controller is None:
            return broker, None
        mechanism = settings.sasl.mechanism_controller
        return broker, _link_login(layers, controller, mechanism, controller_key, self._entropy)


def _link_login(
    layers: Layers, listener: str, mechanism: str, key: str, entropy: Callable[[int], bytes]
) -> PasswordLogin | None:
    settings = layers.effective
    protocols = parse_protocol_map(settings.listener_security_protocol_map)
    if not protocols.get(listener, "PLAINTEXT").startswith("SASL_"):
        return None
    check_mechanism(mechanism, key)
    is_of_controllers = listener in settings.controller_listener_names
    if mechanism == OAUTHBEARER or (is_of_controllers and mechanism in HASHES):
        usable = "PLAIN" if is_of_controllers else "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        raise SettingsError(f"{key}={mechanism}: nodes authenticate by {usable}, or by certificates")
    module = login_module(layers.text, settings.sasl.jaas_config, listener, mechanism)
    own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
    if module is None:
        raise SettingsError(f'{own} must have the user of this node: username="..." password="..."')
    return password_login(mechanism, module, own, entropy)


class ScramUsers:
    """The credentials, their secret and their shapes; the last two are computed when the metadata changes."""

    def __init__(self, image: Callable[[], MetadataImage], cluster_id: str, token_secret: str) -> None:
        self._image = image
        self._others = f"{cluster_id}\0{token_secret}"
        self._known_secret: str | None = None
        self._secret = b""
        self._counted: Mapping[CarriedKey, Message] | None = None
        self._shapes: dict[int, Counter[Shape]] = {}

    def credential(self, user: str, mechanism: int) -> ScramCredential | None:
        """The credential of a user that exists."""
        found = self._image().carried.get(credential_key(user, mechanism))
        if not isinstance(found, UserScramCredentialRecord):
            return None
        return ScramCredential(
            bytes(found.salt), bytes(found.stored_key), bytes(found.server_key), found.iterations
        )

    def secret(self) -> bytes:
        """The secret from which the credentials of others are computed, the same on every node."""
        current = scram_secret_of(self._image())
        if current != self._known_secret:
            self._known_secret = current
            self._secret = sha256(f"sparklog-scram\0{current}\0{self._others}".encode()).digest()
        return self._secret

    def shapes(self, mechanism: int) -> Mapping[Shape, int]:
        """The numbers of users by the shapes of their credentials."""
        carried = self._image().carried
        if carried is not self._counted:
            self._counted, self._shapes = carried, {}
            for one in carried.values():
                if isinstance(one, UserScramCredentialRecord):
                    counts = self._shapes.setdefault(one.mechanism, Counter())
                    counts[shape_of(bytes(one.salt), one.iterations)] += 1
        return self._shapes.get(mechanism, {})
