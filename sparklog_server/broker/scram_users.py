"""The SCRAM users of the cluster, in the metadata of the moment."""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256

from sparklog.wire.schema import Message
from sparklog_server.metadata.carried import CarriedKey, credential_key
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import UserScramCredentialRecord
from sparklog_server.metadata.scram_secret import scram_secret_of
from sparklog_server.security.scram import ScramCredential, Shape, shape_of


class ScramUsers:
    """The credentials, their secret and their shapes; the last two are computed when the metadata changes."""

    def __init__(self, image: Callable[[], MetadataImage], cluster_id: str, token_secret: str) -> None:
        self._image = image
        self._others = f"{cluster_id}\0{token_secret}"
        self._known_secret: str | None = None
        self._secret = b""
        self._counted: Mapping[CarriedKey, Message] | None = None
        self._shapes: dict[int, Counter[Shape]] = {}

    def credential(self, user: str, mechanism: int) -> ScramCredential | None:
        """The credential of a user that exists."""
        found = self._image().carried.get(credential_key(user, mechanism))
        if not isinstance(found, UserScramCredentialRecord):
            return None
        return ScramCredential(
            bytes(found.salt), bytes(found.stored_key), bytes(found.server_key), found.iterations
        )

    def secret(self) -> bytes:
        """The secret from which the credentials of others are computed, the same on every node."""
        told = scram_secret_of(self._image())
        if told != self._known_secret:
            self._known_secret = told
            self._secret = sha256(f"sparklog-scram\0{told}\0{self._others}".encode()).digest()
        return self._secret

    def shapes(self, mechanism: int) -> Mapping[Shape, int]:
        """The numbers of users by the shapes of their credentials."""
        carried = self._image().carried
        if carried is not self._counted:
            self._counted, self._shapes = carried, {}
            for one in carried.values():
                if isinstance(one, UserScramCredentialRecord):
                    counts = self._shapes.setdefault(one.mechanism, Counter())
                    counts[shape_of(bytes(one.salt), one.iterations)] += 1
        return self._shapes.get(mechanism, {})
