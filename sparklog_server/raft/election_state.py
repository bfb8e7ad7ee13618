"""The durable state of a voter: its epoch and its vote in it, in the file `quorum-state` (Kafka's JSON,
version 1).

{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Uuid
from sparklog_server.disk.door import StorageError
from sparklog_server.log.segment.damage import log_dir_of, repair_remedy

FILE_NAME = "quorum-state"
NO_NODE = NodeId(-1)
_DATA_VERSIONS = (0, 1)


class ElectionStateCorrupt(StorageError):
    """The file exists but is unreadable: a voter that guesses its vote could vote twice in one epoch."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, "read", what, remedy=repair_remedy(log_dir_of(log_dir_of(path))))


class ElectionState(msgspec.Struct, frozen=True):
    """The latest epoch, its leader if known, and the candidate this voter voted for in it; -1 is none."""

    epoch: LeaderEpoch = LeaderEpoch(0)
    leader_id: NodeId = NO_NODE
    voted_id: NodeId = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID

    def render(self) -> bytes:
        """The file's content."""
        directory = urlsafe_b64encode(self.voted_directory_id).decode().rstrip("=")
        return msgspec.json.encode(_File(self.leader_id, self.epoch, self.voted_id, directory)) + b"\n"


class _File(
    msgspec.Struct,
    rename={
        "leader_id": "leaderId",
        "epoch": "leaderEpoch",
        "voted_id": "votedId",
        "directory": "votedDirectoryId",
    },
):
    """The fields as Kafka names them, in its order; version 0 had others besides, which the broker does not
    use.
    """

    leader_id: int = -1
    epoch: int = -1
    voted_id: int = -1
    directory: str = "A" * 22
    data_version: int = 1


def parse(content: bytes | None, path: str = FILE_NAME) -> ElectionState:
    """The state in the content of the file at `path`; without a file, that of a voter which never voted.
    Raises ElectionStateCorrupt.
    """
    if content is None:
        return ElectionState()
    try:
        found = msgspec.json.decode(content, type=_File)
        directory = urlsafe_b64decode(found.directory + "==")
    except (msgspec.DecodeError, ValueError) as error:
        raise ElectionStateCorrupt(path, f"not a quorum-state file ({error})") from error
    if found.data_version not in _DATA_VERSIONS or found.epoch < 0 or len(directory) != len(ZERO_UUID):
        raise ElectionStateCorrupt(
            path,
            f"version {found.data_version}, epoch {found.epoch}, directory id of {len(directory)} bytes",
        )
    return ElectionState(
        LeaderEpoch(found.epoch), NodeId(found.leader_id), NodeId(found.voted_id), Uuid(directory)
    )
