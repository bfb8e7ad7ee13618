"""AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339): checks of the broker; the controller decides
on the rest.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparklog.errors import ErrorCode, SettingsError
from sparklog.model import Instant
from sparklog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.messages.alter_configs import AlterConfigsResource as Replacement
from sparklog.wire.messages.alter_configs import AlterConfigsResourceResponse as Replaced
from sparklog.wire.messages.incremental_alter_configs import AlterConfigsResource as Alteration
from sparklog.wire.messages.incremental_alter_configs import AlterConfigsResourceResponse as Altered
from sparklog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation
from sparklog_server.broker.handlers.broker_loggers import alter_loggers
from sparklog_server.broker.handlers.configs import LISTED_TYPES, LOGGER_RESOURCE, check_allowed
from sparklog_server.broker.session import AnsweredInSteps, Call, InSteps, Parked
from sparklog_server.config.layers import BROKER_STATE, Layers
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.controller.alterations import Operation as Change
from sparklog_server.controller.alterations import altered, replacing
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import BROKER_RESOURCE
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


Result = tuple[int, str | None]
ReplyT = TypeVar("ReplyT", bound=Message)
_DECIDED_TOGETHER = 64


def incremental_alter_configs(
    context: "AdministrationPort", call: Call, request: IncrementalAlterConfigsRequest, now: Instant
) -> AnsweredInSteps:
    """Change settings key by key; each resource has its own result."""
    resources: list[Alteration] = request.resources
    refused = yield from _refusals(context, call, resources)
    for index, resource in enumerate(resources):
        yield
        if index not in refused and resource.resource_type == LOGGER_RESOURCE:
            refused[index] = alter_loggers(context, call, resource, is_trial=request.validate_only)

    def response(answers: Sequence[Result]) -> IncrementalAlterConfigsResponse:
        named = zip(resources, answers, strict=True)
        responses = [
            Altered(code, message, one.resource_type, one.resource_name) for one, (code, message) in named
        ]
        return IncrementalAlterConfigsResponse(responses=responses)

    return (yield from _Altering(context, call, request, refused, response).decide())


def alter_configs(
    context: "AdministrationPort", call: Call, request: AlterConfigsRequest, now: Instant
) -> AnsweredInSteps:
    """Replace all settings of resources; each resource has its own result."""
    resources: list[Replacement] = request.resources
    refused = yield from _refusals(context, call, resources)
    for index, resource in enumerate(resources):
        yield
        if index not in refused and resource.resource_type == LOGGER_RESOURCE:
            refused[index] = ErrorCode.INVALID_REQUEST, f"Unknown resource type {LOGGER_RESOURCE}"

    def response(answers: Sequence[Result]) -> AlterConfigsResponse:
        named = zip(resources, answers, strict=True)
        return AlterConfigsResponse(
            responses=[
                Replaced(code, message, one.resource_type, one.resource_name)
                for one, (code, message) in named
            ]
        )

    return (yield from _Altering(context, call, request, refused, response).decide())


class _Altering(Generic[ReplyT]):
    """A request that changes the settings of resources. `refused` has the results, by index, of the resources
    that this broker refuses; the controller decides on the others. `response` takes all results in order.
    """

    def __init__(
        self,
        context: "AdministrationPort",
        call: Call,
        request: IncrementalAlterConfigsRequest | AlterConfigsRequest,
        refused: dict[int, Result],
        response: Callable[[Sequence[Result]], ReplyT],
    ) -> None:
        self._context = context
        self._call = call
        self._request = request
        self._refused = refused
        self._response = response

    def decide(self) -> AnsweredInSteps:
        """Propose the entries that are not refused to the controller, after a job has tried the certificates
        that they change.
        """
        changed = yield from self._changed_certificates()
        if not changed:
            return self._propose((yield))
        context = self._context

        def job() -> dict[int, str]:
            reasons = {
                index: context.live.certificates_refusal(settings) for index, settings in changed.items()
            }
            return {index: reason for index, reason in reasons.items() if reason is not None}

        def tried(reasons: dict[int, str] | StorageError, now: Instant) -> ReplyT | Parked:
            assert not isinstance(reasons, StorageError), "no file of a log directory is read"
            # The code is that of Kafka for a configuration that cannot be applied.
            self._refused |= {index: (ErrorCode.INVALID_REQUEST, reason) for index, reason in reasons.items()}
            return self._propose(now)

        context.jobs.run(self._call, job, tried)
        return Parked.MUTING

    def _changed_certificates(self) -> InSteps[dict[int, BrokerSettings]]:
        """The settings of this broker after each change, by index, that changes its certificates."""
        found: dict[int, BrokerSettings] = {}
        if self._call.forwarding is not None:  # the broker that forwards a request has tried its own
            return found
        before = self._context.settings
        resources: Sequence[Alteration | Replacement] = self._request.resources
        for index, resource in enumerate(resources):
            yield
            if index in self._refused or resource.resource_type != BROKER_RESOURCE:
                continue
            try:
                after = _settings_after(self._context, resource)
            except (Refused, SettingsError):
                continue  # the controller refuses it
            if (after.tls, after.of_listeners) != (before.tls, before.of_listeners):
                found[index] = after
        return found

    def _propose(self, now: Instant) -> ReplyT | Parked:
        request, refused, propose = self._request, self._refused, self._context.propose_each_for
        # Any: of the request's own class, which mypy cannot relate to it.
        allowed: list[Any] = [one for index, one in enumerate(request.resources) if index not in refused]
        if not allowed:
            return self._response(_merged(refused, []))
        # The controller decides on each part in one turn. A request with too many entries is refused whole.
        entries = sum([len(one.configs) for one in allowed])
        together = _DECIDED_TOGETHER if entries <= RECORDS_PER_REQUEST_MAX else len(allowed)
        commands = (
            type(request)(resources=allowed[begin : begin + together], validate_only=request.validate_only)
            for begin in range(0, len(allowed), together)
        )
        if isinstance(request, AlterConfigsRequest):
            return propose(self._call, commands, AlterConfigsResponse, self._completed, now)
        return propose(self._call, commands, IncrementalAlterConfigsResponse, self._completed, now)

    def _completed(self, replies: Sequence[IncrementalAlterConfigsResponse | AlterConfigsResponse]) -> ReplyT:
        decided = [(one.error_code, one.error_message) for reply in replies for one in reply.responses]
        return self._response(_merged(self._refused, decided))


def _settings_after(context: "AdministrationPort", resource: Alteration | Replacement) -> BrokerSettings:
    """The settings of this broker after a change of its own or of the cluster's; raises Refused and
    SettingsError.
    """
    name, layers = resource.resource_name, context.live.layers
    current = context.image.broker_config(name)
    changes = (
        replacing(current, resource.configs)
        if isinstance(resource, Replacement)
        else altered((BROKER_RESOURCE, name), current, resource.configs)
    )
    own = {key: value for key, value in {**current, **changes}.items() if value is not None}
    cluster, broker = (layers.cluster, own) if name else (own, layers.broker)
    return Layers.of(layers.static, cluster=cluster, broker=broker).effective


def _refusals(
    context: "AdministrationPort", call: Call, resources: Sequence[Alteration | Replacement]
) -> InSteps[dict[int, Result]]:
    """The results, by index, of the resources that the broker refuses itself."""
    repeated = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    refused: dict[int, Result] = {}
    for index, resource in enumerate(resources):
        yield
        try:
            if repeated[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check(context, call, resource)
        except Refused as refusal:
            refused[index] = refusal.code, refusal.message
    return refused


def _check(context: "AdministrationPort", call: Call, resource: Alteration | Replacement) -> None:
    resource_type, name = resource.resource_type, resource.resource_name
    if resource_type not in LISTED_TYPES:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if len({config.name for config in resource.configs}) < len(resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", 0) != Change.DELETE
    ]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    if resource_type == LOGGER_RESOURCE:
        return
    if name and resource_type == BROKER_RESOURCE:
        node_id = str(context.settings.node_id)
        if not name.isascii() or not name.removeprefix("-").isdigit():
            raise Refused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        # The broker that forwards a request has checked that the settings are its own. The state of a broker
        # is the controller's business: it can be asked of one that is dead.
        is_state = all(config.name == BROKER_STATE for config in resource.configs)
        if name != node_id and call.forwarding is None and not is_state:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}"
            )
    check_allowed(context, call, Operation.ALTER_CONFIGS, resource_type, name)


def _merged(refused: dict[int, Result], decided: Sequence[Result]) -> list[Result]:
    """All results in the order of the request: those refused by index, the others in between."""
    rest = iter(decided)
    return [
        refused[index] if index in refused else next(rest) for index in range(len(refused) + len(decided))
    ]
