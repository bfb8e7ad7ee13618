// What client_work.py has a client do, by kafkajs. The argument is JSON: broker, topic, made, count.
const { Kafka, ConfigResourceTypes, logLevel } = require("kafkajs");

async function main({ broker, topic, made, count }) {
  const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: Array.from({ length: count }, (_, number) => ({ value: `${number}` })) });
  await producer.disconnect();
  const admin = kafka.admin();
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: made, numPartitions: 1 }] });
  await admin.createPartitions({ topicPartitions: [{ topic: made, count: 2 }] });
  await admin.deleteTopics({ topics: [made] });
  await admin.fetchTopicMetadata({ topics: [topic] });
  await admin.fetchTopicOffsets(topic);
  await admin.describeCluster();
  await admin.describeConfigs({ resources: [resource] });
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "-1" }] }] });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
  await admin.setOffsets({ groupId: "transacted", topic, partitions: [{ partition: 0, offset: "1" }] });
  await admin.listGroups();
  await admin.describeGroups(["transacted"]);
  await admin.fetchOffsets({ groupId: "transacted", topics: [topic] });
  await admin.deleteGroups(["transacted"]);
  await admin.disconnect();
  const transactional = kafka.producer({ transactionalId: "id", maxInFlightRequests: 1, idempotent: true });
  await transactional.connect();
  for (const end of ["abort", "commit"]) {
    const transaction = await transactional.transaction();
    await transaction.send({ topic, messages: [{ value: "v" }] });
    await transaction.sendOffsets({ consumerGroupId: "transacted", topics: [{ topic, partitions: [{ partition: 0, offset: "1" }] }] });
    await transaction[end]();
  }
  await transactional.disconnect();
}

main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
