"""Records that this release does not use but keeps unchanged, so that a snapshot preserves them."""

from sparklog.wire.schema import Message

from .records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

CarriedKey = tuple[str | bytes | int | None, ...]


def credential_key(user: str, mechanism: int) -> CarriedKey:
    """The key of a SCRAM credential."""
    return ("scram", user, mechanism)


def key_of(record: Message) -> tuple[CarriedKey, bool] | None:
    """The object of the record, and whether it still exists after the record; None for a record without
    state.
    """
    if isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
        return credential_key(record.name, record.mechanism), isinstance(record, UserScramCredentialRecord)
    if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return ("token", record.token_id), isinstance(record, DelegationTokenRecord)
    return None
