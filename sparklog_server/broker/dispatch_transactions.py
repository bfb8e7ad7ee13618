"""The handlers of transaction APIs, which the broker imports when a client first sends one of them."""

from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.describe_producers import DescribeProducersRequest
from sparklog.wire.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.list_transactions import ListTransactionsRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from sparklog_server.broker.context import Handlers
from sparklog_server.broker.handlers.describe_producers import describe_producers
from sparklog_server.broker.handlers.markers import write_txn_markers
from sparklog_server.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from sparklog_server.broker.handlers.txn_offsets import txn_offset_commit

TRANSACTIONS: Handlers = {
    24: (add_partitions_to_txn, AddPartitionsToTxnRequest),
    25: (add_offsets_to_txn, AddOffsetsToTxnRequest),
    26: (end_txn, EndTxnRequest),
    27: (write_txn_markers, WriteTxnMarkersRequest),
    28: (txn_offset_commit, TxnOffsetCommitRequest),
    61: (describe_producers, DescribeProducersRequest),
    65: (describe_transactions, DescribeTransactionsRequest),
    66: (list_transactions, ListTransactionsRequest),
}
