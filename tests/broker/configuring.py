"""Settings as a client asks for them and changes them, in one line each."""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Answer = tuple[ErrorCode, str | None]


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    """One resource of a change: (key, operation, value)."""
    return AlterConfigsResource(
        kind, name, [AlterableConfig(key, operation, value) for key, operation, value in changes]
    )


def alter(
    world: World, client: SimulatedConnection, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[Answer]:
    """Ask for changes; the answers by resource."""
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answer = world.ask(client, request, 1, IncrementalAlterConfigsResponse)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    named = [(one.resource_type, one.resource_name) for one in answer.responses]
    assert named == [(one.resource_type, one.resource_name) for one in resources]
    return [(ErrorCode(one.error_code), one.error_message) for one in answer.responses]


def set_to(world: World, client: SimulatedConnection, kind: int, name: str, **values: str) -> Answer:
    """Set keys of one resource, underscores for dots."""
    (answer,) = alter(
        world,
        client,
        resource(kind, name, *((key.replace("_", "."), SET, value) for key, value in values.items())),
    )
    return answer


def describe(
    world: World, client: SimulatedConnection, kind: int, name: str, *keys: str
) -> dict[str, DescribeConfigsResourceResult]:
    """The rows of one resource by key; those of `keys` alone if there are any."""
    one = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[one], include_synonyms=True, include_documentation=True)
    answer = world.ask(client, request, 4, DescribeConfigsResponse)
    assert isinstance(answer, DescribeConfigsResponse)
    (result,) = answer.results
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


def value_of(
    world: World, client: SimulatedConnection, kind: int, name: str, key: str
) -> tuple[str | None, int]:
    """(value, source) of one key."""
    row = describe(world, client, kind, name, key)[key]
    return row.value, row.config_source


def synonyms_of(row: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    """(key, value, source) of each place that supplies a value, the winner first."""
    return [(one.name, one.value, one.source) for one in row.synonyms]
