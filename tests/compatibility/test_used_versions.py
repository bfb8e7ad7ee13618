"""The record of the versions that our own clients use is current."""

import pytest

from docs.protocol_page import recorded
from tests.compatibility.used_versions import measured

pytestmark = pytest.mark.compat


def test_our_clients_use_the_versions_on_record() -> None:
    used = {api: list(versions) for api, versions in measured("sparklog").items()}
    assert used == recorded()["sparklog"]["apis"], (
        "run `python -m tests.compatibility.used_versions sparklog`"
    )
