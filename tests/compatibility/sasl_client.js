// Writes one record and reads the topic with kafkajs over SASL. The one argument is JSON: broker, mechanism,
// username, password, topic, value. Prints the values read, or the error, as JSON.
const { Kafka, logLevel } = require("kafkajs");

async function main(given) {
  const kafka = new Kafka({
    brokers: [given.broker],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    sasl: { mechanism: given.mechanism, username: given.username, password: given.password },
  });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: given.topic, messages: [{ value: given.value }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: given.topic + "-group" });
  await consumer.connect();
  await consumer.subscribe({ topic: given.topic, fromBeginning: true });
  const value = await new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
  });
  await consumer.disconnect();
  return value;
}

main(JSON.parse(process.argv[2])).then(
  (value) => console.log(JSON.stringify({ value })),
  (error) => console.log(JSON.stringify({ error: error.message })),
);
