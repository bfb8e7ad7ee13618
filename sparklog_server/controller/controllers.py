"""ControllerRegistration: a controller names its listeners and features (KIP-919), for DescribeCluster and
UpdateFeatures.
"""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import ControllerImage, endpoints_of, feature_ranges
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import BrokerEndpoint, BrokerFeature, RegisterControllerRecord
from sparklog_server.outcome import Outcome


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> Outcome[Message, ControllerRegistrationResponse]:
    """Record the registration of a controller, unless it repeats the present one."""
    if request.controller_id < 0:
        message = f"Node ids are not negative: {request.controller_id}"
        return Outcome(
            (),
            ControllerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION, error_message=message),
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
        ],
        features=[
            BrokerFeature(one.name, one.min_supported_version, one.max_supported_version)
            for one in request.features
        ],
    )
    node_id = NodeId(request.controller_id)
    asked = ControllerImage(
        node_id,
        Uuid(request.incarnation_id),
        endpoints_of(record.end_points),
        feature_ranges(record.features),
    )
    is_repeated = image.controllers.get(node_id) == asked
    return Outcome(() if is_repeated else (record,), ControllerRegistrationResponse(error_message=None))
