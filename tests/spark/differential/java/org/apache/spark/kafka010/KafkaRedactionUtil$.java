package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** What the connector logs is shown as it is: tests hold no secrets. */
public class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public <T> Seq<T> redactParams(Seq<T> settings) {
        return settings;
    }
}
