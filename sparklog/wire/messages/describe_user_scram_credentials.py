"""The SCRAM mechanisms of users, with iteration counts and without secrets; null users mean all."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Message, NullableStr, Str, Versions, nullable


class UserName(Message):
    name: Str = ""


class DescribeUserScramCredentialsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    users: Annotated[list[UserName] | None, nullable()] = []


class CredentialInfo(Message):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Message):
    user: Str = ""
    error_code: Int16 = 0
    error_message: NullableStr = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
    results: list[DescribeUserScramCredentialsResult] = []
