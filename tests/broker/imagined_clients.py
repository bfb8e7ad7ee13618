"""The values, producers and group members of which `imagined` makes requests, and the weight of each API."""

from sparklog.wire.schema import Message
from sparklog_server.broker.dispatch import SERVED

TOPICS = ("t", "t", "t", "u", "v", "__consumer_offsets", "__transaction_state", "__share_group_state")
STRANGE_NAMES = ("", ".", "?", "x" * 249, "x" * 250, "snow\u2603", "__cluster_metadata", "__sparklog_commits")
CLASSIC, MODERN = ("g", "k"), ("h", "m")
GROUPS = CLASSIC + MODERN
TRANSACTIONAL_IDS = ("a", "b", "sl.c")
INSTANCES = (None, None, "i", "j")
NUMBERS = (
    "",
    "0",
    "1",
    "-1",
    "2",
    "14",
    "100",
    "1000",
    "1048576",
    "1073741824",
    "9223372036854775807",
    "0.5",
)
WORDS = (
    "delete",
    "compact",
    "compact,delete",
    "producer",
    "gzip",
    "zstd",
    "CreateTime",
    "LogAppendTime",
    "auto",
    "never",
    "true",
    "false",
)
SUBSCRIPTION = b"\0\0\0\0\0\2\0\1t\0\1u\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
EPOCH_MAX = 32_767
OFTEN = (
    0,
    0,
    0,
    1,
    1,
    8,
    9,
    11,
    11,
    12,
    13,
    14,
    19,
    20,
    22,
    22,
    24,
    24,
    25,
    26,
    26,
    26,
    27,
    27,
    27,
    28,
    28,
    37,
    68,
)
"""APIs that are asked more often: those that change what others rest on."""
APIS = (*SERVED, *OFTEN)
TRANSACTION = (24, 0, 25, 28, 0, 26)
"""What a transactional producer asks one after the other; a group's member next."""
PRODUCING = (0, 0, 0)
JOINING = (11,)
MEMBERSHIP = (14, 12, 68, 8, 9, 12, 68, 13)
WAITS = ("max_wait_ms", "timeout_ms", "session_timeout_ms", "rebalance_timeout_ms")
WAIT_MS_MAX = 30_000
OF_TRANSACTIONS = frozenset({24, 25, 26, 28})
OF_CLASSIC_GROUPS = frozenset({11, 12, 13, 14})
OF_MODERN_GROUPS = frozenset({68})


class Producer:
    """A producer id, its epoch, the transactional id it was given for, and how far it has counted in each
    partition.
    """

    def __init__(self, transactional_id: str | None, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequences: dict[tuple[str, int], int] = {}


class Member:
    """A member of a group, classic or modern, with its generation or epoch."""

    def __init__(self, group: str, member_id: str, generation: int, instance: str | None) -> None:
        self.group = group
        self.member_id = member_id
        self.generation = generation
        self.instance = instance


def newcomers() -> list[Member]:
    """A client that may join a group."""
    classic = [Member(group, "", -1, instance) for group in CLASSIC for instance in INSTANCES]
    return classic + [Member(group, f"{group}-{number}", 0, None) for group in MODERN for number in range(3)]


def in_time(request: Message) -> Message:
    """A request that does not ask to wait for days."""
    for name in WAITS:
        if hasattr(request, name):
            setattr(request, name, min(getattr(request, name), WAIT_MS_MAX))
    return request
