package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/** Client settings under construction, as the connector asks for them; delegation tokens, which the true class would add, are not served. */
public class KafkaConfigUpdater {
    private final Map<String, Object> settings = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        for (Iterator<Tuple2<String, Object>> each = given.iterator(); each.hasNext(); ) {
            Tuple2<String, Object> setting = each.next();
            settings.put(setting._1(), setting._2());
        }
    }

    public KafkaConfigUpdater set(String key, Object value) {
        settings.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        settings.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return settings;
    }
}
