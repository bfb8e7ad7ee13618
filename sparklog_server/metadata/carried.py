"""Records that mean nothing to this release yet and still belong to the cluster: kept as they are, so that
a snapshot loses none.
"""

from sparklog.wire.schema import Message

from .records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

CarriedKey = tuple[str | bytes | int | None, ...]


def credential_key(user: str, mechanism: int) -> CarriedKey:
    """The key of a SCRAM credential."""
    return ("scram", user, mechanism)


def key_of(record: Message) -> tuple[CarriedKey, bool] | None:
    """(what the record is about, whether it still exists after it); None for a record that leaves nothing
    behind.
    """
    if isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
        return ("acl", bytes(record.id)), isinstance(record, AccessControlEntryRecord)
    if isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
        return credential_key(record.name, record.mechanism), isinstance(record, UserScramCredentialRecord)
    if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return ("token", record.token_id), isinstance(record, DelegationTokenRecord)
    if isinstance(record, RegisterControllerRecord):
        return ("controller", record.controller_id), True
    return None
