"""Logins by user and password (HTTP Basic), against the users of the SASL listeners: those of PLAIN by their
JAAS entries, those of SCRAM by their credentials in the metadata.

A check takes milliseconds for SCRAM, so it is a job; a password that was right is kept as a digest by a key
of this process, together with the credential that it belongs to.
"""

import hmac
from collections.abc import Callable
from typing import Final

from sparklog.client.sasl import jaas
from sparklog.client.sasl.scram_messages import HASHES
from sparklog.errors import SettingsError
from sparklog_server.broker.access.authentication import login_module
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.config.http_settings import LISTENER_NAME
from sparklog_server.config.layers import Layers
from sparklog_server.metadata.image import credential_key
from sparklog_server.metadata.records import UserScramCredentialRecord
from sparklog_server.security import NotLoaded
from sparklog_server.security.plain import PlainUsers
from sparklog_server.security.scram import NUMBERS, ScramCredential, absent_credential, credential_of

_KEPT_MAX: Final = 1_000
_KEY_BYTES: Final = 32


class BasicLogin:
    """The check of one user. `key` is secret, and drawn for this process."""

    def __init__(self, context: Context, key: bytes, trace: Callable[..., None]) -> None:
        assert len(key) == _KEY_BYTES
        self._context = context
        self._key = key
        self._trace = trace
        self._layers: Layers | None = None
        self._plain: list[PlainUsers] = []
        self._kept: dict[bytes, bytes] = {}  # the digest of user and password, and the stored key

    def known(self, user: str, password: bytes) -> bool:
        """Whether this is the password of the user, as far as that is known without a job."""
        if any(users.is_valid(user, password) for users in self._plain_users()):
            return True
        kept = self._kept.get(self._digest(user, password))
        return kept is not None and any(kept == one.stored_key for _, one in self._credentials(user))

    def job(self, user: str, password: bytes) -> Callable[[], bytes | None]:
        """A job: the stored key of the credential that this password belongs to; None for another password,
        or for a user that does not exist, which takes as long.
        """
        credentials = self._credentials(user) or [
            (NUMBERS[2], absent_credential(NUMBERS[2], user, self._key))
        ]

        def check() -> bytes | None:
            for mechanism, known in credentials:
                text = password.decode("utf-8", "replace")
                computed = credential_of(mechanism, text, known.salt, known.iterations)
                if hmac.compare_digest(computed.stored_key, known.stored_key):
                    return known.stored_key
            return None

        return check

    def keep(self, user: str, password: bytes, stored_key: bytes) -> None:
        """The password was right: it is `known` while the user has that credential."""
        while len(self._kept) >= _KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[self._digest(user, password)] = stored_key

    def may_see(self, principal: str, host: str) -> bool:
        """Whether the principal may describe the cluster, which its metrics do."""
        authorizer = self._context.authorization.authorizer
        if authorizer is None:
            return True
        try:
            return authorizer.authorize(
                principal, host, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, ()
            )
        except NotLoaded:
            return False

    def _digest(self, user: str, password: bytes) -> bytes:
        return hmac.digest(self._key, user.encode() + b"\0" + password, "sha256")

    def _credentials(self, user: str) -> list[tuple[str, ScramCredential]]:
        carried = self._context.image.carried
        found = []
        for number, mechanism in sorted(NUMBERS.items()):
            record = carried.get(credential_key(user, number))
            if isinstance(record, UserScramCredentialRecord) and mechanism in HASHES:
                found.append(
                    (
                        mechanism,
                        ScramCredential(
                            bytes(record.salt),
                            bytes(record.stored_key),
                            bytes(record.server_key),
                            record.iterations,
                        ),
                    )
                )
        return found

    def _plain_users(self) -> list[PlainUsers]:
        """The users of PLAIN by the settings of the moment."""
        layers = self._context.live.layers
        if layers is not self._layers:
            self._layers = layers
            settings = layers.effective
            controllers = settings.controller_listener_names
            names = [one.name for one in settings.listeners if one.is_sasl and one.name not in controllers]
            plain = []
            for name in (LISTENER_NAME, *names):
                try:
                    module = login_module(layers.text, settings.sasl.jaas_config, name, "PLAIN")
                except SettingsError as error:
                    self._trace("http-users-ignored", listener=name, reason=str(error))
                    continue
                if module is not None and module.name == jaas.PLAIN:
                    plain.append(PlainUsers(module.options, self._key))
            self._plain = plain
        return self._plain
