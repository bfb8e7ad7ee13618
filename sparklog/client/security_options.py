"""The options of every role that decide about TLS."""

from collections.abc import Sequence
from typing import Literal, TypedDict

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class SecurityOptions(TypedDict, total=False):
    """Kafka's `security.protocol` and `ssl.*`."""

    security_protocol: SecurityProtocol
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    sparklog_ssl_crl_location: str | None
