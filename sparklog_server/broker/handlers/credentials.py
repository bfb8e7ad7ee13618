"""AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554); no response contains a secret.

No listener uses the credentials yet: they are kept in the metadata log, as in a Kafka without security.
"""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from sparklog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import propose_if_allowed
from sparklog_server.broker.session import Call, Parked
from sparklog_server.metadata.records import UserScramCredentialRecord
from sparklog_server.outcome import cut

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


CREDENTIALS_PER_REQUEST_MAX = 2_000
"""The controller decides on them in one turn of 15 ms."""


def alter_user_scram_credentials(
    context: "AdministrationPort", call: Call, request: AlterUserScramCredentialsRequest, now: Instant
) -> Message | Parked:
    """Set and remove credentials; the session of a request for too many is closed."""
    count = len(request.deletions) + len(request.upsertions)
    if count > CREDENTIALS_PER_REQUEST_MAX:
        most = f"where a request may change {CREDENTIALS_PER_REQUEST_MAX}"
        context.disconnect(call.session, f"a request that changes {count} SCRAM credentials, {most}")
        return Parked.SILENT
    return propose_if_allowed(context, call, request, Operation.ALTER, now)


def describe_user_scram_credentials(
    context: "AdministrationPort", call: Call, request: DescribeUserScramCredentialsRequest, now: Instant
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms of each user; of all users if none is named."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = "Cluster authorization failed."
        refused = [DescribeUserScramCredentialsResult("", code, message) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=message, results=refused)
    known: dict[str, list[CredentialInfo]] = {}
    for record in context.image.carried.values():
        if isinstance(record, UserScramCredentialRecord):
            known.setdefault(record.name, []).append(CredentialInfo(record.mechanism, record.iterations))
    asked: dict[str, int] = {}
    for user in request.users or ():
        asked[user.name] = asked.get(user.name, 0) + 1
    results = []
    for name, times in (asked or dict.fromkeys(known, 1)).items():
        result = DescribeUserScramCredentialsResult(user=name)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = cut(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = cut(f"Attempt to describe a user credential that does not exist: {name}")
        else:
            result.credential_infos = sorted(known[name], key=lambda one: one.mechanism)
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
