"""UpdateFeatures and UnregisterBroker on a cluster of one broker."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.administering import NODE, UNKNOWN_NODE, Admin, features_set, sized
from tests.broker.world import World


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


def test_features_move_only_within_what_is_supported(admin: Admin) -> None:
    assert features_set(admin, "metadata.version", 30) == (0, None)
    failed = (
        "The update failed for all features since the following feature had an error: Invalid update version "
    )
    code = ErrorCode.INVALID_UPDATE_VERSION
    expected = failed + "29 for feature metadata.version. Local controller 1 only supports versions 30"
    assert features_set(admin, "metadata.version", 29, 2) == (code, expected)
    expected = failed + "1 for feature no.such. Local controller 1 does not support this feature."
    assert features_set(admin, "no.such", 1) == (code, expected)
    assert features_set(admin, "metadata.version", -1)[0] == code
    assert features_set(admin, "metadata.version", 30, 9)[0] == code


def test_before_version_2_each_feature_has_a_result_of_its_own(admin: Admin) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey("metadata.version", 30)], validate_only=True
    )
    told = admin.ask(request, 1, UpdateFeaturesResponse)
    assert [(one.feature, one.error_code) for one in told.results] == [("metadata.version", 0)]


def test_a_broker_that_nobody_knows_cannot_be_forgotten(admin: Admin) -> None:
    told = admin.ask(UnregisterBrokerRequest(UNKNOWN_NODE), 0, UnregisterBrokerResponse)
    assert (told.error_code, told.error_message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 7 is not currently registered",
    )


def test_a_broker_that_lives_is_not_forgotten(admin: Admin) -> None:
    told = admin.ask(UnregisterBrokerRequest(NODE), 0, UnregisterBrokerResponse)
    message = "Broker 1 is alive: stop it, wait until it is fenced, then unregister it."
    assert (told.error_code, told.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert [
        broker.broker_id for broker in admin.ask(DescribeClusterRequest(), 2, DescribeClusterResponse).brokers
    ] == [NODE]
    assert admin.create(sized("t"))[0].error_code == ErrorCode.NONE
