"""Chooses a SASL mechanism.

After v0 the tokens follow as bare frames, after v1 inside SaslAuthenticate. It can never become flexible:
old clients misread its versions.
"""

from typing import ClassVar

from sparklog.wire.schema import Int16, Message, Str, Versions


class SaslHandshakeRequest(Message):
    versions: ClassVar = Versions(0, 1)

    mechanism: Str = ""


class SaslHandshakeResponse(Message):
    versions: ClassVar = Versions(0, 1)

    error_code: Int16 = 0
    mechanisms: list[Str] = []
