"""Documents of URLs: the keys of identity providers."""

from threading import Event, current_thread

import pytest

from sparklog_server.daemon.documents import Documents


def test_a_read_that_does_not_end_is_given_up_and_not_begun_again_meanwhile() -> None:
    begun, goes_on, ended = [], Event(), Event()

    def read(url: str) -> bytes:
        begun.append(current_thread())
        goes_on.wait()
        ended.set()
        return b"keys"

    documents = Documents(read, timeout_s=0.01)
    with pytest.raises(TimeoutError, match=r"not read within 0\.01 s"):
        documents.read("https://idp/keys")
    with pytest.raises(TimeoutError, match="has not ended"):
        documents.read("https://idp/keys")
    assert len(begun) == 1
    goes_on.set()
    begun[0].join()
    assert Documents(read).read("https://idp/keys") == b"keys"
    documents = Documents(lambda url: url.encode())
    assert documents.read("one") == b"one"


def test_an_error_of_the_read_is_that_of_the_document() -> None:
    def read(url: str) -> bytes:
        raise ConnectionRefusedError(url)

    with pytest.raises(ConnectionRefusedError):
        Documents(read).read("https://idp/keys")
