"""The secret from which credentials of SCRAM users that do not exist are computed."""

from sparklog.model import Offset
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from sparklog.wire.schema import Message
from sparklog_server.controller.credentials import alter_user_scram_credentials
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import UserScramCredentialRecord
from sparklog_server.metadata.scram_secret import scram_secret_of
from tests.controller.world import World

ALICE = UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", stored_key=b"a", server_key=b"b")


def applied(image: MetadataImage, *records: Message) -> MetadataImage:
    return image.apply([(Offset(index), one) for index, one in enumerate(records)])[0]


def upsert(image: MetadataImage, user: str, drawn: bytes) -> MetadataImage:
    change = ScramCredentialUpsertion(user, 1, 4096, b"salt", b"salted")
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    return applied(image, *alter_user_scram_credentials(image, request, lambda size: drawn * size).records)


def test_the_secret_is_drawn_with_the_first_user_and_stays() -> None:
    image = upsert(MetadataImage(), "alice", b"\1")
    assert scram_secret_of(image) == "01" * 32
    image = upsert(image, "bob", b"\2")
    deletions = [ScramCredentialDeletion("alice", 1), ScramCredentialDeletion("bob", 1)]
    request = AlterUserScramCredentialsRequest(deletions=deletions)
    image = applied(image, *alter_user_scram_credentials(image, request, bytes).records)
    assert dict(image.carried) == {}
    assert scram_secret_of(upsert(image, "carol", b"\3")) == "01" * 32


def test_a_refused_user_draws_none() -> None:
    change = ScramCredentialUpsertion("alice", 1, 1, b"salt", b"salted")
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    assert alter_user_scram_credentials(MetadataImage(), request, bytes).records == ()


def test_a_cluster_of_an_earlier_release_with_users_gets_one() -> None:
    image = applied(MetadataImage(), ALICE)
    world = World()
    world.controller.reset(image)
    world.controller.activate(world.now)
    records = world.controller.due_once()
    assert len(scram_secret_of(applied(image, *records))) == 64
    world.controller.reset(applied(image, *records))
    assert world.controller.due_once() == ()
    world.controller.reset(MetadataImage())
    assert world.controller.due_once() == ()
