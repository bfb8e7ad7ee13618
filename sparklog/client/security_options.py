"""The options of every role that decide about TLS and SASL."""

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
TokenCallback = Callable[[], str | tuple[str, float]]
"""Returns a token of OAUTHBEARER, or the token and the time at which it ends, in seconds since 1970."""


class SecurityOptions(TypedDict, total=False):
    """Kafka's `security.protocol`, `ssl.*` and `sasl.*`."""

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
    sasl_mechanism: str
    sasl_jaas_config: str
    sasl_username: str
    sasl_password: str
    sasl_oauthbearer_token_callback: TokenCallback
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_assertion_file: str
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_private_key_file: str
    sasl_oauthbearer_assertion_private_key_passphrase: str
    sasl_oauthbearer_assertion_template_file: str
    sasl_oauthbearer_assertion_claim_aud: str
    sasl_oauthbearer_assertion_claim_iss: str
    sasl_oauthbearer_assertion_claim_sub: str
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
