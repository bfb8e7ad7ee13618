"""Delegation tokens in the image (KIP-48), as the controller and each broker read them."""

import hmac
from collections.abc import Iterator

from .image import CarriedKey, MetadataImage
from .records import DelegationTokenRecord


def token_key(token_id: str) -> CarriedKey:
    """The key of a token in `MetadataImage.carried`."""
    return ("token", token_id)


def token_of(image: MetadataImage, token_id: str) -> DelegationTokenRecord | None:
    """The token of that id."""
    found = image.carried.get(token_key(token_id))
    return found if isinstance(found, DelegationTokenRecord) else None


def tokens_in(image: MetadataImage) -> Iterator[DelegationTokenRecord]:
    """Every token."""
    return (one for one in image.carried.values() if isinstance(one, DelegationTokenRecord))


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The password of a token, which only holders of `delegation.token.secret.key` can compute."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def is_owner_or_renewer(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal may renew the token, and may see it without further access."""
    return principal == token.owner or principal in token.renewers


def ends_ms(token: DelegationTokenRecord) -> int:
    """When the token ends, unless it is renewed."""
    return min(token.expiration_timestamp, token.max_timestamp)


def has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether the token is of no use any more."""
    return ends_ms(token) < now_ms
