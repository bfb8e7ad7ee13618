"""Which addresses a broker may open: one that other machines reach must encrypt, authenticate its clients,
and have an authorizer that decides what they may do.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from sparklog.errors import SettingsError

from .listeners import Listener
from .tls_settings import WithTls, tls_of

AUTHORIZER_KEY: Final = "authorizer.class.name"


class Exposed(WithTls, Protocol):
    """The settings that are checked against each other."""

    @property
    def given(self) -> Mapping[str, str]: ...


def check_exposure(settings: Exposed) -> None:
    """Raises SettingsError with the remedy for the first listener that other machines reach and that is not
    secure.
    """
    for listener in settings.listeners:
        if not listener.is_loopback and (missing := _missing(settings, listener)) is not None:
            raise SettingsError(
                f"{listener} accepts every client that can reach this machine: {missing}, or listen on "
                f"127.0.0.1, or start with --insecure if the network itself is trusted"
            )


def _missing(settings: Exposed, listener: Listener) -> str | None:
    """What would make the listener secure, or None."""
    if not listener.is_encrypted:
        return "use SSL or SASL_SSL as its protocol in listener.security.protocol.map"
    if not listener.is_sasl and tls_of(settings, listener.name).ssl_client_auth != "required":
        return "authenticate clients by ssl.client.auth=required, or by the protocol SASL_SSL"
    if not settings.given.get(AUTHORIZER_KEY, "").strip():
        return (
            f"set {AUTHORIZER_KEY}=org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users, "
            f"so that access rules apply"
        )
    return None
