import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints every setting of Kafka's broker, topics, groups and client metrics: kind, name, type, default, limit. */
public final class ConfigDefaults {
    private ConfigDefaults() {
    }

    public static void main(String[] arguments) {
        print("broker", AbstractKafkaConfig.CONFIG_DEF);
        print("topic", LogConfig.configDefCopy());
        print("group", GroupConfig.CONFIG_DEF);
        print("client-metrics", ClientMetricsConfigs.configDef());
    }

    private static void print(String kind, ConfigDef settings) {
        for (ConfigDef.ConfigKey setting : new TreeMap<>(settings.configKeys()).values()) {
            boolean isRequired = setting.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            String value = isRequired ? "null" : ConfigDef.convertToString(setting.defaultValue, setting.type);
            String limit = setting.validator == null ? "" : setting.validator.toString();
            System.out.println(String.join("\t", kind, setting.name, setting.type.name(), String.valueOf(value), limit));
        }
    }
}
