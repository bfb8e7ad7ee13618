"""Assertions: JWTs by which a client proves to its identity provider who it is (RFC 7523).

    claims of the settings ◄─ template file ◄─ iat, exp, nbf, jti     the later of two equal names counts
    header of the template file ◄─ alg, typ

Files are read for each assertion, so a new key counts with the next token.
"""

import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparklog.client.failures import AuthenticationFailed

from .grants import AssertionKeys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_PREFIX: Final = "sasl.oauthbearer.assertion."
_FILE_BYTES_MAX: Final = 1 << 20
_COORDINATE_BYTES: Final = 32


def assertions(keys: AssertionKeys) -> Callable[[], str]:
    """What gives an assertion for each request; that raises AuthenticationFailed."""
    if keys.file:
        path = keys.file
        return lambda: read_text(path, f"{_PREFIX}file={path}").strip()
    return lambda: _signed(keys)


def read_text(path: str, where: str) -> str:
    """A file of ASCII text, of a bounded size; raises AuthenticationFailed."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise AuthenticationFailed(f"{where} has more than {_FILE_BYTES_MAX} bytes")
        return content.decode("ascii")
    except OSError as error:
        raise AuthenticationFailed(f"{where} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{where} is not ASCII text") from None


def _signed(keys: AssertionKeys) -> str:
    algorithm = keys.algorithm.upper()
    now_s = int(time.time())
    header, claims = _template(keys)
    payload = {**keys.claims, **claims}
    payload |= {"iat": now_s, "exp": now_s + keys.exp_seconds, "nbf": now_s - keys.nbf_seconds}
    if keys.jti_include:
        payload |= {"jti": str(uuid.uuid4())}
    signed = f"{_part(header | {'alg': algorithm, 'typ': 'JWT'})}.{_part(payload)}"
    return f"{signed}.{_base64url(_signature(keys, algorithm, signed.encode()))}"


def _template(keys: AssertionKeys) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of the template file."""
    if not keys.template_file:
        return {}, {}
    where = f"{_PREFIX}template.file={keys.template_file}"
    try:
        fields = json.loads(read_text(keys.template_file, where))
        header, payload = ({} | fields.get(part, {}) for part in ("header", "payload"))
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise AuthenticationFailed(
            f'{where} is not of the form {{"header": {{...}}, "payload": {{...}}}}'
        ) from None
    return header, payload


def _signature(keys: AssertionKeys, algorithm: str, content: bytes) -> bytes:
    where = f"{_PREFIX}private.key.file={keys.private_key_file}"
    try:
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
    except ImportError:
        raise AuthenticationFailed(
            f"{where}: a signature needs the package cryptography (pip install cryptography)"
        ) from None
    key = _private_key(keys, where)
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        # JWS has the two numbers one after the other, not in DER (RFC 7518, section 3.4).
        r, s = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
        return r.to_bytes(_COORDINATE_BYTES, "big") + s.to_bytes(_COORDINATE_BYTES, "big")
    needed = "an RSA key" if algorithm == "RS256" else "a key of the curve P-256"
    raise AuthenticationFailed(f"{where}: {algorithm} needs {needed}")


def _private_key(keys: AssertionKeys, where: str) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = read_text(keys.private_key_file or "", where).encode()
    passphrase = keys.private_key_passphrase
    try:
        return load_pem_private_key(pem, passphrase.encode() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthenticationFailed(
            f"{where} is not a private key in PEM that {_PREFIX}private.key.passphrase opens"
            if passphrase
            else f"{where} is not an unencrypted private key in PEM"
        ) from None


def _part(values: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(values, separators=(",", ":")).encode())


def _base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
