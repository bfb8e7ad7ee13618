"""A reply that is encoded piece by piece is, byte for byte, the reply encoded at once."""

from collections.abc import Sequence

import pytest

from sparklog.wire.header import encode_reply
from sparklog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from sparklog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from sparklog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from sparklog.wire.pieces import Pieces

METADATA, LIST_GROUPS, DELETE_GROUPS = 3, 16, 42


def joined(chunks: Sequence[object]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[call-overload]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("sizes", [(), (1,), (126, 1), (127, 1), (0, 3, 200), (20_000,)])
def test_the_pieces_of_a_listing_are_the_listing(version: int, sizes: tuple[int, ...]) -> None:
    groups = [ListedGroup(f"group-{number}", "consumer", "Empty", "Classic") for number in range(sum(sizes))]
    pieces = Pieces(ListGroupsResponse(error_code=15), LIST_GROUPS, version)
    taken = iter(groups)
    for size in sizes:
        pieces.add(ListGroupsResponse(groups=[next(taken) for _ in range(size)]), size)
    whole = ListGroupsResponse(error_code=15, groups=groups)
    assert joined(encode_reply(pieces, LIST_GROUPS, version, 7)) == joined(
        encode_reply(whole, LIST_GROUPS, version, 7)
    )


@pytest.mark.parametrize("version", range(3))
def test_the_time_to_rest_is_told_at_the_end(version: int) -> None:
    results = [DeletableGroupResult("g", 16), DeletableGroupResult("h", 0)]
    pieces = Pieces(DeleteGroupsResponse(), DELETE_GROUPS, version)
    pieces.add(DeleteGroupsResponse(results=results), 2)
    encode_reply(pieces, DELETE_GROUPS, version, 7)
    pieces.throttle_time_ms = 1234
    whole = DeleteGroupsResponse(throttle_time_ms=1234, results=results)
    assert joined(encode_reply(pieces, DELETE_GROUPS, version, 7)) == joined(
        encode_reply(whole, DELETE_GROUPS, version, 7)
    )


@pytest.mark.parametrize(
    ("version", "tail_bytes"), [(0, 0), (7, 0), (8, 4), (9, 4), (10, 4), (11, 0), (12, 0), (13, 2)]
)
def test_fields_behind_the_array_stay_behind_it(version: int, tail_bytes: int) -> None:
    topics = [MetadataResponseTopic(name=f"topic-{number}") for number in range(200)]
    head = MetadataResponse(cluster_id="c", cluster_authorized_operations=5, error_code=0)
    pieces = Pieces(head, METADATA, version, tail_bytes)
    for begin in (0, 100):
        pieces.add(MetadataResponse(topics=topics[begin : begin + 100]), 100)
    whole = MetadataResponse(cluster_id="c", cluster_authorized_operations=5, topics=topics)
    assert joined(encode_reply(pieces, METADATA, version, 7)) == joined(
        encode_reply(whole, METADATA, version, 7)
    )
