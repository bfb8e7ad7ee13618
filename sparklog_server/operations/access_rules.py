"""Access rules as a person writes them: principals, operations and resources."""

from sparklog.client.admin.acls import CLUSTER_NAME, OPERATIONS, RESOURCE_TYPES, Operation, ResourceType

from .refused import OperationRefused


def principal_in(text: str) -> str:
    """`User:NAME` for a name alone."""
    return text if ":" in text else f"User:{text}"


def operations_in(text: str) -> list[Operation]:
    """The operations of `read,describe`, each once; raises OperationRefused for one that does not exist."""
    names = [name.strip().lower().replace("_", "-") for name in text.split(",")]
    known: dict[str, Operation] = {operation: operation for operation in OPERATIONS}
    for name in names:
        if name not in known:
            raise OperationRefused(f"{name!r} is no operation; there are {', '.join(known)}", "operation")
    return [known[name] for name in dict.fromkeys(names)]


def resource_in(text: str) -> tuple[ResourceType, str]:
    """The type and the name of `topic:NAME`, or of `cluster`; raises OperationRefused."""
    kind, _, name = text.partition(":")
    if kind == "cluster":
        return "cluster", name or CLUSTER_NAME
    for known in RESOURCE_TYPES:
        if kind == known and name:
            return known, name
    raise OperationRefused(
        f"{text!r} is no resource; write topic:NAME, group:NAME, transactional-id:NAME, "
        f"delegation-token:NAME, user:NAME or cluster",
        "resource",
    )
