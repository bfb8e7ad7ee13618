"""What a voter must never forget: its epoch and its vote in it, in the file `quorum-state` (Kafka's JSON, version 1).

{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Uuid

FILE_NAME = "quorum-state"
NO_NODE = NodeId(-1)
_DATA_VERSIONS = (0, 1)


class ElectionStateCorrupt(Exception):
    """The file is there but cannot be understood: a voter that guesses its vote could vote twice in one epoch."""


class ElectionState(msgspec.Struct, frozen=True):
    """The latest epoch, its leader if known, and whom this voter voted for in it; -1 is nobody."""

    epoch: LeaderEpoch = LeaderEpoch(0)
    leader_id: NodeId = NO_NODE
    voted_id: NodeId = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID

    def render(self) -> bytes:
        """The file's content."""
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.epoch,
            "votedId": self.voted_id,
            "votedDirectoryId": urlsafe_b64encode(self.voted_directory_id).decode().rstrip("="),
            "data_version": 1,
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def parse(content: bytes | None) -> ElectionState:
    """The state in a file's content; that of a voter which never voted if there is no file. Raises ElectionStateCorrupt."""
    if content is None:
        return ElectionState()
    try:
        fields = json.loads(content)
        if fields["data_version"] not in _DATA_VERSIONS:
            raise ElectionStateCorrupt(f"data_version {fields['data_version']} is not known")
        directory = urlsafe_b64decode(fields.get("votedDirectoryId", "A" * 22) + "==")
        state = ElectionState(
            epoch=LeaderEpoch(int(fields["leaderEpoch"])),
            leader_id=NodeId(int(fields.get("leaderId", -1))),
            voted_id=NodeId(int(fields.get("votedId", -1))),
            voted_directory_id=Uuid(directory),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ElectionStateCorrupt(f"not a quorum-state file: {error!r}") from error
    if state.epoch < 0 or len(directory) != len(ZERO_UUID):
        raise ElectionStateCorrupt(f"epoch {state.epoch} and directory id of {len(directory)} bytes")
    return state
