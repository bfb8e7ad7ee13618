"""Chooses a SASL mechanism.

After v0 the tokens follow as frames without a header, after v1 inside SaslAuthenticate. It can never become
flexible, because old clients would misread the versions.
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
