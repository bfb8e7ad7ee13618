"""The `ssl.*` keys of one listener or client, as values.

The names of the fields are those of Kafka's keys without `ssl.` and with `_` for `.`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from sparklog.errors import SettingsError

PREFIX: Final = "ssl."
CRL_KEY: Final = "sparklog.ssl.crl.location"
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
CLIENT_AUTH: Final = ("none", "requested", "required")
SECRETS: Final = (
    "keystore_password",
    "key_password",
    "truststore_password",
    "keystore_certificate_chain",
    "keystore_key",
    "truststore_certificates",
)
"""The fields whose values are never shown."""


def check_store_type(store_type: str) -> None:
    """Raises SettingsError for a type of store that is not read here. The content of a store decides how it
    is read.
    """
    if store_type.upper() not in STORE_TYPES:
        raise SettingsError(
            f"a key store or trust store is one of {', '.join(STORE_TYPES)}, not {store_type}"
        )


class TlsKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that have an effect. Equal values give equal contexts while the files stay the same."""

    keystore_location: str | None = None
    keystore_password: str | None = None
    keystore_certificate_chain: str | None = None
    keystore_key: str | None = None
    key_password: str | None = None
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    crl_location: str | None = None
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    endpoint_identification_algorithm: str = "https"

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'[hidden]' if name in SECRETS else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"TlsKeys({shown})"

    @staticmethod
    def of(texts: Mapping[str, str]) -> "TlsKeys":
        """The keys among these texts by Kafka's names; other names are ignored, and an empty text is no
        value. Raises SettingsError.
        """
        given: dict[str, str | tuple[str, ...]] = {}
        for field in TlsKeys.__struct_fields__:
            name = CRL_KEY if field == "crl_location" else PREFIX + field.replace("_", ".")
            text = texts.get(name)
            if text is None:
                continue
            text = text.strip()
            if field in ("enabled_protocols", "cipher_suites"):
                if text:
                    given[field] = tuple(entry.strip() for entry in text.split(","))
            elif text or field == "endpoint_identification_algorithm":
                given[field] = text
        keys = msgspec.convert(given, TlsKeys)
        keys.check()
        return keys

    def check(self) -> None:
        """Raises SettingsError for values that no store or context could satisfy."""
        for protocol in self.enabled_protocols:
            if protocol not in PROTOCOLS:
                raise SettingsError(
                    f"ssl.enabled.protocols={','.join(self.enabled_protocols)}: {protocol} is not "
                    f"offered, only {' and '.join(PROTOCOLS)}"
                )
        if self.client_auth not in CLIENT_AUTH:
            raise SettingsError(f"ssl.client.auth={self.client_auth}: it is one of {', '.join(CLIENT_AUTH)}")
        if self.endpoint_identification_algorithm.lower() not in ("", "https"):
            raise SettingsError(
                f"ssl.endpoint.identification.algorithm={self.endpoint_identification_algorithm}: it is "
                f"https, or empty to accept a certificate for any name"
            )
        self._check_keystore()
        self._check_truststore()

    @property
    def verifies_names(self) -> bool:
        """Whether a server's certificate must be for the name that the client connects to."""
        return bool(self.endpoint_identification_algorithm)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that hold certificates and keys."""
        found = (self.keystore_location, self.truststore_location, self.crl_location)
        return tuple(path for path in found if path is not None)

    def _check_keystore(self) -> None:
        if (self.keystore_key is None) is not (self.keystore_certificate_chain is None):
            raise SettingsError("ssl.keystore.key and ssl.keystore.certificate.chain are set together")
        if self.keystore_key is None:
            return
        if self.keystore_location is not None:
            raise SettingsError("set either ssl.keystore.location or ssl.keystore.key, not both")
        if self.keystore_password is not None:
            raise SettingsError(
                "ssl.keystore.password does not apply to a PEM key: set ssl.key.password if the key is "
                "encrypted"
            )

    def _check_truststore(self) -> None:
        if self.truststore_certificates is not None and self.truststore_location is not None:
            raise SettingsError("set either ssl.truststore.location or ssl.truststore.certificates, not both")
