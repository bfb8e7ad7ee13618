"""Sets and removes SCRAM credentials; the password is salted before it leaves the client."""

from typing import ClassVar

from sparklog.wire.schema import Bytes, Int8, Int16, Int32, Message, NullableStr, Str, Versions


class ScramCredentialDeletion(Message):
    name: Str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Message):
    name: Str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Message):
    user: Str = ""
    error_code: Int16 = 0
    error_message: NullableStr = ""


class AlterUserScramCredentialsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
