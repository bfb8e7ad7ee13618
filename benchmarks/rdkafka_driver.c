/* A bounded load on librdkafka, the library inside the confluent-kafka wheel; benchmarks/rdkafka.py builds and runs it.
 *
 *   rdkafka_driver produce SERVERS TOPIC COUNT SIZE       SECONDS_MAX [setting=value ...]
 *   rdkafka_driver consume SERVERS TOPIC COUNT PARTITIONS SECONDS_MAX [setting=value ...]
 *
 * Prints one line of JSON. It is in C so that on a machine of two cores the client leaves one of them to the broker. The wheel carries no
 * header, so what is used of librdkafka's public, stable interface is declared here.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rd_kafka rd_kafka_t;
typedef struct rd_kafka_conf rd_kafka_conf_t;
typedef struct rd_kafka_topic rd_kafka_topic_t;
typedef struct rd_kafka_queue rd_kafka_queue_t;
typedef struct rd_kafka_partition_list rd_kafka_partition_list_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1, CONF_OK = 0, PARTITION_ANY = -1, OFFSET_BEGINNING = -2 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_outq_len(rd_kafka_t *);
rd_kafka_partition_list_t *rd_kafka_topic_partition_list_new(int);
void *rd_kafka_topic_partition_list_add(rd_kafka_partition_list_t *, const char *, int32_t);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_partition_list_t *, const char *, int32_t, int64_t);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);

enum { VALUES = 4096, CONSUMED_AT_ONCE = 10000 };

static long delivered, failed;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) failed++; else delivered++;
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char reason[256];
    if (rd_kafka_conf_set(conf, key, value, reason, sizeof reason) != CONF_OK) {
        fprintf(stderr, "%s\n", reason);
        exit(2);
    }
}

/* Text like the events of a web site: the same field names, other numbers; compresses about three to one. */
static char *make_values(size_t size) {
    char *values = malloc(VALUES * size), text[160];
    uint32_t state = 2463534242u;
    for (size_t at = 0; at < VALUES * size;) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        int length = snprintf(text, sizeof text, "{\"customer\":%u,\"page\":\"/items/%u\",\"referrer\":\"search\",\"session\":\"%08x\",\"ms\":%u}",
                              state % 1000000, state % 977, state * 2654435761u, state % 5000);
        size_t room = VALUES * size - at, taken = (size_t)length < room ? (size_t)length : room;
        memcpy(values + at, text, taken);
        at += taken;
    }
    return values;
}

static int produce(rd_kafka_t *client, const char *topic_name, long count, size_t size, double seconds_max) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, topic_name, NULL);
    char *values = make_values(size);
    double start = seconds(), deadline = start + seconds_max;
    long sent = 0;
    while (sent < count && ((sent & 1023) || seconds() < deadline)) {
        if (rd_kafka_produce(topic, PARTITION_ANY, 0, values + (size_t)(sent % VALUES) * size, size, NULL, 0, NULL) == 0) {
            if ((++sent & 255) == 0) rd_kafka_poll(client, 0);
        } else if (rd_kafka_poll(client, 10) == 0 && seconds() >= deadline) {
            break; /* the queue is full and nothing moves */
        }
    }
    while (rd_kafka_outq_len(client) > 0 && seconds() < deadline) rd_kafka_poll(client, 1);
    double took = seconds() - start;
    printf("{\"records\": %ld, \"failed\": %ld, \"bytes\": %.0f, \"seconds\": %.4f}\n", delivered, failed, (double)delivered * (double)size, took);
    return delivered == count ? 0 : 1;
}

static int consume(rd_kafka_t *client, const char *topic_name, long count, int partitions, double seconds_max) {
    static rd_kafka_message_t *messages[CONSUMED_AT_ONCE];
    rd_kafka_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int partition = 0; partition < partitions; partition++) {
        rd_kafka_topic_partition_list_add(list, topic_name, partition);
        rd_kafka_topic_partition_list_set_offset(list, topic_name, partition, OFFSET_BEGINNING);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    double start = seconds(), deadline = start + seconds_max, first = 0, bytes = 0;
    long got = 0;
    rd_kafka_assign(client, list);
    while (got < count && seconds() < deadline) {
        ssize_t taken = rd_kafka_consume_batch_queue(queue, 100, messages, CONSUMED_AT_ONCE);
        for (ssize_t i = 0; i < taken; i++) {
            if (messages[i]->err) failed++; else got++, bytes += (double)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (got && first == 0) first = seconds();
    }
    double end = seconds();
    printf("{\"records\": %ld, \"failed\": %ld, \"bytes\": %.0f, \"seconds\": %.4f, \"seconds_after_first\": %.4f}\n", got, failed, bytes, end - start, end - first);
    return got >= count ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fprintf(stderr, "usage: see the top of rdkafka_driver.c\n");
        return 2;
    }
    int is_producer = strcmp(argv[1], "produce") == 0;
    char reason[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[2]);
    if (is_producer) {
        set(conf, "queue.buffering.max.messages", "500000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    } else {
        set(conf, "group.id", "unused");
        set(conf, "enable.auto.commit", "false");
    }
    for (int i = 7; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = 0;
        set(conf, argv[i], equals + 1);
    }
    rd_kafka_t *client = rd_kafka_new(is_producer ? PRODUCER : CONSUMER, conf, reason, sizeof reason);
    if (!client) {
        fprintf(stderr, "%s\n", reason);
        return 2;
    }
    long count = atol(argv[4]), size_or_partitions = atol(argv[5]);
    int status = is_producer ? produce(client, argv[3], count, (size_t)size_or_partitions, atof(argv[6]))
                             : consume(client, argv[3], count, (int)size_or_partitions, atof(argv[6]));
    fflush(stdout);
    _Exit(status); /* what is measured is over: no orderly goodbye */
}
