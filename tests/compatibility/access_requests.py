"""A request of each API, for the matrix of access: each names what may be seen and what is hidden."""

from sparklog.record.batch import build_batch
from sparklog.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from sparklog.wire.schema import Message
from tests.compatibility.access_coordinators import TOPICS, Asked, of_group, of_transaction


def requests(cell: str) -> dict[str, Asked]:
    """The requests by name; they change nothing that a later one depends on."""
    new = [f"{name}-new-{cell.replace(' ', '-')}" for name in TOPICS]
    batch = bytes(build_batch([(b"k", b"v", (), 0)]))
    transactional = bytes(
        build_batch([(b"k", b"v", (), 0)], producer_id=7, producer_epoch=0, is_transactional=True)
    )
    return {
        "Produce": Asked(_produce(batch, None), produce.ProduceResponse, 9),
        "Produce in a transaction": Asked(_produce(transactional, "hidden"), produce.ProduceResponse, 9),
        "Fetch": Asked(_fetch(-1), fetch.FetchResponse, 12),
        "Fetch as a follower": Asked(_fetch(5), fetch.FetchResponse, 12),
        "ListOffsets": Asked(
            list_offsets.ListOffsetsRequest(
                topics=[
                    list_offsets.ListOffsetsTopic(one, [list_offsets.ListOffsetsPartition(0, timestamp=-2)])
                    for one in TOPICS
                ]
            ),
            list_offsets.ListOffsetsResponse,
            5,
        ),
        "Metadata": Asked(
            metadata.MetadataRequest(
                topics=[
                    metadata.MetadataRequestTopic(name=one) for one in (*TOPICS, "seen-none", "hid-none")
                ],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
            metadata.MetadataResponse,
            9,
        ),
        "Metadata of all": Asked(
            metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False),
            metadata.MetadataResponse,
            9,
        ),
        "Metadata that creates": Asked(
            metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=f"{one}-auto") for one in new]
            ),
            metadata.MetadataResponse,
            9,
        ),
        "DescribeTopicPartitions": Asked(
            describe_topic_partitions.DescribeTopicPartitionsRequest(
                [describe_topic_partitions.TopicRequest(one) for one in TOPICS]
            ),
            describe_topic_partitions.DescribeTopicPartitionsResponse,
        ),
        "FindCoordinator of groups": Asked(
            find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=list(TOPICS)),
            find_coordinator.FindCoordinatorResponse,
            4,
        ),
        "FindCoordinator of transactions": Asked(
            find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=list(TOPICS)),
            find_coordinator.FindCoordinatorResponse,
            4,
        ),
        **{
            f"{api} of {one}": asked
            for one in TOPICS
            for api, asked in {**of_group(one), **of_transaction(one)}.items()
        },
        "DescribeGroups": Asked(
            describe_groups.DescribeGroupsRequest(list(TOPICS), include_authorized_operations=True),
            describe_groups.DescribeGroupsResponse,
            5,
        ),
        "ConsumerGroupDescribe": Asked(
            consumer_group_describe.ConsumerGroupDescribeRequest(list(TOPICS)),
            consumer_group_describe.ConsumerGroupDescribeResponse,
        ),
        "ListGroups": Asked(list_groups.ListGroupsRequest(), list_groups.ListGroupsResponse, 4),
        "DeleteGroups": Asked(
            delete_groups.DeleteGroupsRequest(["seen-none", "hid-none"]), delete_groups.DeleteGroupsResponse
        ),
        "OffsetFetch": Asked(
            offset_fetch.OffsetFetchRequest(
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(
                        group_id=group,
                        topics=[
                            offset_fetch.OffsetFetchRequestTopics(name=one, partition_indexes=[0])
                            for one in TOPICS
                        ],
                    )
                    for group in TOPICS
                ]
            ),
            offset_fetch.OffsetFetchResponse,
            8,
        ),
        "OffsetFetch of all": Asked(
            offset_fetch.OffsetFetchRequest(
                groups=[offset_fetch.OffsetFetchRequestGroup(group_id=one, topics=None) for one in TOPICS]
            ),
            offset_fetch.OffsetFetchResponse,
            8,
        ),
        "DescribeTransactions": Asked(
            describe_transactions.DescribeTransactionsRequest(list(TOPICS)),
            describe_transactions.DescribeTransactionsResponse,
        ),
        "ListTransactions": Asked(
            list_transactions.ListTransactionsRequest(), list_transactions.ListTransactionsResponse, 0
        ),
        "InitProducerId": Asked(
            init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            init_producer_id.InitProducerIdResponse,
            4,
        ),
        "WriteTxnMarkers": Asked(
            write_txn_markers.WriteTxnMarkersRequest(
                [
                    write_txn_markers.WritableTxnMarker(
                        producer_id=10**6,
                        topics=[write_txn_markers.WritableTxnMarkerTopic("none", [0])],
                    )
                ]
            ),
            write_txn_markers.WriteTxnMarkersResponse,
            1,
        ),
        "AddPartitionsToTxn of a broker": Asked(
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                transactions=[
                    add_partitions_to_txn.AddPartitionsToTxnTransaction(
                        "seen",
                        7,
                        0,
                        True,
                        [add_partitions_to_txn.AddPartitionsToTxnTopic("seen", [0])],
                    )
                ]
            ),
            add_partitions_to_txn.AddPartitionsToTxnResponse,
            4,
        ),
        "DescribeProducers": Asked(
            describe_producers.DescribeProducersRequest(
                [describe_producers.TopicRequest(one, [0]) for one in TOPICS]
            ),
            describe_producers.DescribeProducersResponse,
        ),
        "DeleteRecords": Asked(
            delete_records.DeleteRecordsRequest(
                [
                    delete_records.DeleteRecordsTopic(one, [delete_records.DeleteRecordsPartition(0, 0)])
                    for one in TOPICS
                ],
                5000,
            ),
            delete_records.DeleteRecordsResponse,
        ),
        "OffsetForLeaderEpoch": Asked(
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        one, [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                    )
                    for one in TOPICS
                ]
            ),
            offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        ),
        "CreateTopics": Asked(
            create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(one, 1, 1) for one in (*new, "seen", "twice", "twice")], 5000
            ),
            create_topics.CreateTopicsResponse,
            5,
        ),
        "CreatePartitions": Asked(
            create_partitions.CreatePartitionsRequest(
                [
                    create_partitions.CreatePartitionsTopic(one, 1)
                    for one in (*TOPICS, "seen-none", "hid-none")
                ],
                5000,
            ),
            create_partitions.CreatePartitionsResponse,
        ),
        "DeleteTopics": Asked(
            delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=one) for one in ("seen-none", "hid-none", *new)],
                timeout_ms=5000,
            ),
            delete_topics.DeleteTopicsResponse,
        ),
        "DescribeConfigs": Asked(
            describe_configs.DescribeConfigsRequest(
                [
                    describe_configs.DescribeConfigsResource(kind, name, ["retention.ms"])
                    for kind, name in ((2, "seen"), (2, "hidden"), (4, "1"), (32, "seen"), (32, "hidden"))
                ]
            ),
            describe_configs.DescribeConfigsResponse,
        ),
        "AlterConfigs": Asked(
            alter_configs.AlterConfigsRequest(
                [
                    alter_configs.AlterConfigsResource(kind, name, [])
                    for kind, name in ((2, "seen"), (2, "hidden"), (4, "1"))
                ],
                True,
            ),
            alter_configs.AlterConfigsResponse,
        ),
        "IncrementalAlterConfigs": Asked(
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [
                    incremental_alter_configs.AlterConfigsResource(kind, name, [])
                    for kind, name in ((2, "seen"), (2, "hidden"), (4, "1"), (32, "seen"), (32, "hidden"))
                ],
                True,
            ),
            incremental_alter_configs.IncrementalAlterConfigsResponse,
        ),
        "ListConfigResources": Asked(
            list_config_resources.ListConfigResourcesRequest([16]),
            list_config_resources.ListConfigResourcesResponse,
        ),
        "DescribeLogDirs": Asked(
            describe_log_dirs.DescribeLogDirsRequest([describe_log_dirs.DescribableLogDirTopic("seen", [0])]),
            describe_log_dirs.DescribeLogDirsResponse,
            4,
        ),
        "AlterReplicaLogDirs": Asked(
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        "/none", [alter_replica_log_dirs.AlterReplicaLogDirTopic("seen", [0])]
                    )
                ]
            ),
            alter_replica_log_dirs.AlterReplicaLogDirsResponse,
        ),
        "DescribeAcls": Asked(
            describe_acls.DescribeAclsRequest(1, "none", 1, None, None, 1, 1),
            describe_acls.DescribeAclsResponse,
        ),
        "CreateAcls": Asked(
            create_acls.CreateAclsRequest(
                [create_acls.AclCreation(4, "other-cluster", 3, "User:x", "*", 3, 3)]
            ),
            create_acls.CreateAclsResponse,
        ),
        "DeleteAcls": Asked(
            delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(1, "none", 1, None, None, 1, 1)]),
            delete_acls.DeleteAclsResponse,
        ),
        "ElectLeaders": Asked(
            elect_leaders.ElectLeadersRequest(
                topic_partitions=[elect_leaders.TopicPartitions("seen", [0])], timeout_ms=5000
            ),
            elect_leaders.ElectLeadersResponse,
        ),
        "AlterPartitionReassignments": Asked(
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(timeout_ms=5000),
            alter_partition_reassignments.AlterPartitionReassignmentsResponse,
            0,
        ),
        "ListPartitionReassignments": Asked(
            list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None),
            list_partition_reassignments.ListPartitionReassignmentsResponse,
        ),
        "DescribeClientQuotas": Asked(
            describe_client_quotas.DescribeClientQuotasRequest(),
            describe_client_quotas.DescribeClientQuotasResponse,
        ),
        "AlterClientQuotas": Asked(
            alter_client_quotas.AlterClientQuotasRequest(
                [
                    alter_client_quotas.AlterClientQuotasRequestEntryData(
                        [alter_client_quotas.EntityData("user", "u")],
                        [alter_client_quotas.OpData("producer_byte_rate", 1.0)],
                    )
                ],
                True,
            ),
            alter_client_quotas.AlterClientQuotasResponse,
        ),
        "DescribeUserScramCredentials": Asked(
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                [describe_user_scram_credentials.UserName("none")]
            ),
            describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
        ),
        "AlterUserScramCredentials": Asked(
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                [alter_user_scram_credentials.ScramCredentialDeletion("none", 1)]
            ),
            alter_user_scram_credentials.AlterUserScramCredentialsResponse,
        ),
        "DescribeCluster": Asked(
            describe_cluster.DescribeClusterRequest(True), describe_cluster.DescribeClusterResponse
        ),
        "DescribeQuorum": Asked(
            describe_quorum.DescribeQuorumRequest(
                [
                    describe_quorum.DescribeQuorumRequestTopicData(
                        "none", [describe_quorum.DescribeQuorumRequestPartitionData(0)]
                    )
                ]
            ),
            describe_quorum.DescribeQuorumResponse,
            0,
        ),
        "UpdateFeatures": Asked(
            update_features.UpdateFeaturesRequest(validate_only=True), update_features.UpdateFeaturesResponse
        ),
        "UnregisterBroker": Asked(
            unregister_broker.UnregisterBrokerRequest(9999), unregister_broker.UnregisterBrokerResponse
        ),
    }


def _produce(batch: bytes, transactional_id: str | None) -> Message:
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            produce.TopicProduceData(
                name=one,
                partition_data=[produce.PartitionProduceData(index=0, records=memoryview(bytearray(batch)))],
            )
            for one in TOPICS
        ],
    )


def _fetch(replica: int) -> Message:
    return fetch.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        session_epoch=-1,
        topics=[
            fetch.FetchTopic(
                topic=one, partitions=[fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)]
            )
            for one in TOPICS
        ],
    )
