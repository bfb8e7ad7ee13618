// A member of a group by kafkajs, which says what group_member.py says; the directory of the installed library comes by NODE_PATH.
const { Kafka, logLevel } = require("kafkajs");

const asked = JSON.parse(process.argv[2]);
const tell = (said) => process.stdout.write(JSON.stringify(said) + "\n");
const kafka = new Kafka({ clientId: "member", brokers: [asked.bootstrap], logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({ groupId: asked.group, ...asked.settings });
let owned = [];

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  // kafkajs knows the eager protocol only: what it had is given up at each join.
  if (owned.length) tell({ revoked: owned });
  owned = Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) => numbers.map((number) => `${topic}:${number}`));
  tell({ assigned: owned.sort() });
});

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topics: asked.topics, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        tell({ record: [`${batch.topic}:${batch.partition}`, Number(message.offset), message.value.toString()] });
        resolveOffset(message.offset);
      }
      const next = (BigInt(batch.lastOffset()) + 1n).toString();
      await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: next }]);
      tell({ committed: true });
      await heartbeat();
    },
  });
}

process.stdin.resume();
process.stdin.on("end", async () => {
  await consumer.disconnect();
  tell({ left: true });
  process.exit(0);
});
main().catch((error) => {
  tell({ failed: String(error) });
  process.exit(1);
});
