"""Cipher suites: Java's names, which Kafka's `ssl.cipher.suites` holds, as OpenSSL's.

TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 ─► ECDHE-RSA-AES128-GCM-SHA256      TLS 1.2
TLS_AES_128_GCM_SHA256                ─► the same                          TLS 1.3
"""

import re
from collections.abc import Sequence
from typing import Final

from sparklog.errors import SettingsError

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITE: Final = re.compile(
    r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)|(CHACHA20_POLY1305)_SHA256)"
)


def split_suites(suites: Sequence[str]) -> tuple[list[str], list[str]]:
    """The suites of TLS 1.2, by OpenSSL's names, and those of TLS 1.3; raises SettingsError for an unknown or
    unsafe suite.
    """
    old, new = [], []
    for suite in suites:
        if suite in TLS_1_3_SUITES:
            new.append(suite)
        else:
            old.append(_openssl_name(suite))
    return old, new


def _openssl_name(suite: str) -> str:
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise SettingsError(f"ssl.cipher.suites: {suite} is not a suite that is offered")
    exchange, bits, mode, digest, chacha = match.groups()
    start = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    if chacha:
        return f"{start}CHACHA20-POLY1305"
    return f"{start}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"
