"""Errors are found in every response that can tell one, at any depth."""

import importlib
import pkgutil

import msgspec
import pytest

from sparklog.errors import ErrorCode
from sparklog.wire import messages
from sparklog.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from sparklog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from sparklog.wire.schema import Message
from sparklog_server.broker.metrics.request_errors import RequestErrors


def responses() -> list[type[Message]]:
    found: list[type[Message]] = []
    for module in pkgutil.iter_modules(messages.__path__):
        names = vars(importlib.import_module(f"{messages.__name__}.{module.name}")).items()
        found += [
            one
            for name, one in names
            if name.endswith("Response") and isinstance(one, type) and issubclass(one, Message)
        ]
    return sorted(set(found), key=lambda one: one.__name__)


@pytest.mark.parametrize("response", responses())
def test_every_response_is_looked_through_without_an_exception(response: type[Message]) -> None:
    errors = RequestErrors()
    errors.count(1, response())
    assert not errors.counts
    if "error_code" in response.__struct_fields__:
        told = msgspec.structs.replace(response(), error_code=int(ErrorCode.NOT_CONTROLLER))
        errors.count(1, told)
        assert errors.counts == {(1, ErrorCode.NOT_CONTROLLER): 1}


def test_each_refused_part_counts_and_a_part_without_error_does_not() -> None:
    errors = RequestErrors()
    parts = [MetadataResponsePartition(error_code=code) for code in (0, 5, 5, 9)]
    errors.count(3, MetadataResponse(topics=[MetadataResponseTopic(error_code=3, partitions=parts)]))
    errors.count(32, DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=42)] * 2))
    assert errors.counts == {
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): 1,
        (3, ErrorCode.LEADER_NOT_AVAILABLE): 2,
        (3, ErrorCode.REPLICA_NOT_AVAILABLE): 1,
        (32, ErrorCode.INVALID_REQUEST): 2,
    }


def test_codes_that_do_not_exist_are_one_series() -> None:
    errors = RequestErrors()
    for code in range(1_000, 3_000):
        errors.count(32, DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=code)]))
    assert errors.counts == {(32, ErrorCode.UNKNOWN_SERVER_ERROR): 2_000}
