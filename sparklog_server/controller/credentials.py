"""SCRAM credentials of users, kept in the metadata log (KIP-554).

A client sends the salted password. The log holds the two keys that a server needs (RFC 5802), from which the
password cannot be computed.
"""

import hmac
from collections.abc import Callable
from hashlib import new as new_hash

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.image import MetadataImage, credential_key
from sparklog_server.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from sparklog_server.metadata.scram_secret import missing_secret
from sparklog_server.outcome import Outcome, Refused

SALT_BYTES_MAX = 1024
"""A bound that Kafka does not have: every node holds the content of the metadata log in memory."""

_HASHES = {1: "sha256", 2: "sha512"}
_ITERATIONS_MIN = 4_096
_ITERATIONS_MAX = 16_384


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest, entropy: Callable[[int], bytes]
) -> Outcome[Message, AlterUserScramCredentialsResponse]:
    """Set and remove credentials, at most one for each user; each user has its own result."""
    records: dict[str, Message] = {}
    refused: dict[str, Refused] = {}
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    for change in changes:
        name = change.name
        if name in refused:
            continue
        try:
            if records.pop(name, None) is not None:
                raise Refused(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records[name] = (
                _removal(image, change)
                if isinstance(change, ScramCredentialDeletion)
                else _credential(change)
            )
        except Refused as refusal:
            refused[name] = refusal
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in records]
    results += [
        AlterUserScramCredentialsResult(user=name, error_code=refusal.code, error_message=refusal.message)
        for name, refusal in refused.items()
    ]
    has_credential = any(isinstance(one, UserScramCredentialRecord) for one in records.values())
    secret = missing_secret(image, entropy) if has_credential else ()
    return Outcome((*secret, *records.values()), AlterUserScramCredentialsResponse(results=results))


def _removal(image: MetadataImage, deletion: ScramCredentialDeletion) -> RemoveUserScramCredentialRecord:
    _hash_of(deletion.name, deletion.mechanism)
    if credential_key(deletion.name, deletion.mechanism) not in image.carried:
        raise Refused(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _credential(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    hash_name = _hash_of(upsertion.name, upsertion.mechanism)
    if upsertion.iterations < _ITERATIONS_MIN:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > _ITERATIONS_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(upsertion.salt) > SALT_BYTES_MAX:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salt has {len(upsertion.salt)} bytes; at most {SALT_BYTES_MAX} are kept",
        )
    if not upsertion.salted_password:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    salted = bytes(upsertion.salted_password)
    # Here, since a start without credentials does without OpenSSL's hash functions.
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=bytes(upsertion.salt),
        stored_key=new_hash(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest(),
        server_key=hmac.digest(salted, b"Server Key", hash_name),
        iterations=upsertion.iterations,
    )


def _hash_of(name: str, mechanism: int) -> str:
    """The hash function of a mechanism, by its name in `hashlib`."""
    if not name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in _HASHES:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return _HASHES[mechanism]
