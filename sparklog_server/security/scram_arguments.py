"""Credentials on a command line, in the form of `kafka-storage format --add-scram`:

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

An error has no secret.
"""

from base64 import b64decode
from collections.abc import Callable
from typing import Final

from sparklog.client.sasl.scram_messages import (
    HASHES,
    ITERATIONS_MIN,
    client_key,
    salted_password,
    server_key,
    stored_key,
)
from sparklog.errors import SettingsError
from sparklog_server.metadata.records import UserScramCredentialRecord

from .scram import NUMBER_OF, SALT_SEED_BYTES, kafka_salt

ITERATIONS_MAX: Final = 16_384
_PARTS: Final = ("name", "password", "saltedpassword", "salt", "iterations")


def parse_scram(text: str, entropy: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """The credential of one argument; raises SettingsError."""
    mechanism, equals, parts = text.strip().partition("=")
    if not equals or mechanism not in HASHES:
        raise SettingsError(f"--add-scram begins with one of {', '.join(HASHES)} and `=`")
    if not (parts.startswith("[") and parts.endswith("]")):
        raise SettingsError(f"--add-scram is written {mechanism}=[name=...,password=...]")
    given: dict[str, str] = {}
    for part in parts[1:-1].split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in _PARTS:
            raise SettingsError(f"--add-scram: the parts of {mechanism}=[...] are {', '.join(_PARTS)}")
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        given[name] = value[1:-1] if is_quoted else value
    if not given.get("name"):
        raise SettingsError("--add-scram needs name=...")
    return _credential(mechanism, given, entropy)


def _credential(
    mechanism: str, given: dict[str, str], entropy: Callable[[int], bytes]
) -> UserScramCredentialRecord:
    hash_name = HASHES[mechanism]
    try:
        iterations = int(given.get("iterations", ITERATIONS_MIN))
    except ValueError:
        iterations = 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise SettingsError(f"--add-scram: iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    drawn = kafka_salt(entropy(SALT_SEED_BYTES))
    salt = _decoded(given, "salt") or drawn
    if "password" in given:
        salted = salted_password(hash_name, given["password"], salt, iterations)
    elif "saltedpassword" not in given or "salt" not in given:
        raise SettingsError("--add-scram needs password=..., or salt=... and saltedpassword=...")
    else:
        salted = _decoded(given, "saltedpassword")
    return UserScramCredentialRecord(
        name=given["name"],
        mechanism=NUMBER_OF[mechanism],
        salt=salt,
        stored_key=stored_key(hash_name, client_key(hash_name, salted)),
        server_key=server_key(hash_name, salted),
        iterations=iterations,
    )


def _decoded(given: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(given.get(name, ""), validate=True)
    except ValueError:
        raise SettingsError(f"--add-scram: {name} is not in base64") from None
