"""The messages and formulas of SCRAM (RFC 5802, RFC 7677), shared by client and broker.

    client-first   n,[a=authzid],n=user,r=client nonce[,extension=value ...]
    server-first   r=client nonce + server nonce,s=salt,i=iterations
    client-final   c=channel binding,r=client nonce + server nonce,p=proof
    server-final   v=server signature, or e=error

As in Kafka, names and passwords are their UTF-8 bytes without SASLprep, and there is no channel binding.
`hmac` and `hashlib` are imported at their use, because a start without security does without OpenSSL.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import new, pbkdf2_hmac
from typing import Final, NamedTuple

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism, by its name in `hashlib`."""
ITERATIONS_MIN: Final = 4_096
MESSAGE_BYTES_MAX: Final = 16 << 10
"""A message has names, nonces and keys; a longer one is not parsed, for its sender has not authenticated."""
ITERATIONS_MAX: Final = 1 << 20
"""A client computes at most this many iterations: a broker could otherwise occupy it for hours."""

# Groups repeat without backtracking (`*+`): otherwise `re` keeps some 200 bytes for each repetition, which
# clients that have not authenticated can ask for.
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_RESERVED: Final = rf"(?:m={_VALUE},)?"
_EXTENSIONS: Final = (
    rf"(?P<extensions>(?:,(?!p=)[A-Za-z]++={_VALUE})*+)"  # `p` is the proof, never one of them
)
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_SASLNAME}))?,)"
    rf"(?P<bare>{_RESERVED}n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>[^,=]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class MessageInvalid(ValueError):
    """The bytes are no such message of SCRAM; the text has no part of them."""


class ClientFirst(NamedTuple):
    """`header` is the channel binding flag and the authorization id, `bare` the rest of the message."""

    header: bytes
    bare: bytes
    user: str
    authorization_id: str
    nonce: str
    extensions: Mapping[str, str]


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`bare` is the message without the proof."""

    bare: bytes
    channel_binding: bytes
    nonce: str
    proof: bytes


class ServerFinal(NamedTuple):
    """The error, or the signature of the server."""

    error: str | None
    signature: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises MessageInvalid."""
    match = _matched(_CLIENT_FIRST, message, "client-first")
    return ClientFirst(
        match["header"].encode(),
        match["bare"].encode(),
        name_of(match["name"]),
        name_of(match["authzid"] or ""),
        match["nonce"],
        dict(one.split("=", 1) for one in match["extensions"].split(",") if one),
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Raises MessageInvalid."""
    match = _matched(_SERVER_FIRST, message, "server-first")
    return ServerFirst(match["nonce"], b64decode(match["salt"]), int(match["iterations"]))


def parse_client_final(message: bytes) -> ClientFinal:
    """Raises MessageInvalid."""
    match = _matched(_CLIENT_FINAL, message, "client-final")
    return ClientFinal(
        match["bare"].encode(), b64decode(match["channel"]), match["nonce"], b64decode(match["proof"])
    )


def parse_server_final(message: bytes) -> ServerFinal:
    """Raises MessageInvalid."""
    match = _matched(_SERVER_FINAL, message, "server-final")
    return ServerFinal(match["error"], b64decode(match["signature"] or ""))


def escaped(name: str) -> str:
    """A user name as SCRAM writes it: `=` and `,` are escaped."""
    return name.replace("=", "=3D").replace(",", "=2C")


def name_of(text: str) -> str:
    """The user name of such a text, in which every `=` begins an escape."""
    return text.replace("=2C", ",").replace("=3D", "=")


def base64(content: bytes) -> str:
    """As text, with padding."""
    return b64encode(content).decode()


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2, which takes milliseconds."""
    return pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """The key whose knowledge a client proves."""
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, key: bytes) -> bytes:
    """The hash of a client's key, by which a broker checks a proof."""
    return new(hash_name, key).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    """The key with which the broker signs."""
    return hmac.digest(salted, b"Server Key", hash_name)


def signature(hash_name: str, key: bytes, exchanged: bytes) -> bytes:
    """The signature over the exchanged messages."""
    return hmac.digest(key, exchanged, hash_name)


def xor(left: bytes, right: bytes) -> bytes:
    """Two texts of one length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _matched(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    if len(message) > MESSAGE_BYTES_MAX:
        raise MessageInvalid(
            f"not a {name} message: it has {len(message)} bytes, and {MESSAGE_BYTES_MAX} are allowed"
        )
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise MessageInvalid(f"not a {name} message")
    return match
