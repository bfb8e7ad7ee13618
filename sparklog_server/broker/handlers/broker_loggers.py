"""IncrementalAlterConfigs of a broker's loggers (KIP-412): this node alone decides, and nothing is stored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from sparklog_server.broker.access.authorization import Operation
from sparklog_server.broker.handlers.configs import check_allowed
from sparklog_server.broker.session import Call
from sparklog_server.controller.alterations import Operation as Change
from sparklog_server.loggers import LOGGERS, ROOT, Level
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


def alter_loggers(
    context: "AdministrationPort", call: Call, resource: AlterConfigsResource, *, is_trial: bool
) -> tuple[int, str | None]:
    """The result of one resource: all its changes are made, or none."""
    # On a listener of controllers the caller is a node of the cluster, or an administrator of all of it.
    operation = Operation.CLUSTER_ACTION if call.session.is_controller else Operation.ALTER_CONFIGS
    configs: Sequence[AlterableConfig] = resource.configs
    try:
        check_allowed(context, call, operation, resource.resource_type, resource.resource_name)
        _check_node(context, resource.resource_name)
        changes = [(config.name, _level(config)) for config in configs]
    except Refused as refusal:
        return refusal.code, refusal.message
    if not is_trial:
        for logger, level in changes:
            context.live.set_level(logger, level, call.principal)
    return ErrorCode.NONE, None


def _check_node(context: "AdministrationPort", name: str) -> None:
    digits = name.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != context.settings.node_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {context.settings.node_id}, but received {int(name)}",
        )


def _level(config: AlterableConfig) -> Level | None:
    """The level that a change sets; None if it deletes the logger's own."""
    if config.config_operation not in (Change.SET, Change.DELETE):
        what = (
            Change(config.config_operation).name
            if config.config_operation in (Change.APPEND, Change.SUBTRACT)
            else f"Unknown operation type {config.config_operation}"
        )
        operation = what if what.startswith("Unknown") else f"{what} operation"
        raise Refused(ErrorCode.INVALID_REQUEST, f"{operation} is not allowed for the BROKER_LOGGER resource")
    if config.name not in LOGGERS:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
    if config.config_operation == Change.DELETE:
        if config.name == ROOT:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
            )
        return None
    level = Level.__members__.get(config.value or "")
    if level is None:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {config.name} to {config.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(sorted(Level.__members__))}",
        )
    return level
