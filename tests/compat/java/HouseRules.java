import java.util.List;
import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** The topics' half of the example in docs/policies.md, and a topic on which it fails. */
public class HouseRules implements CreateTopicPolicy {
    private List<String> teams;

    @Override
    public void configure(Map<String, ?> settings) {
        teams = List.of(settings.get("house.teams").toString().split(","));
    }

    @Override
    public void validate(RequestMetadata request) {
        String topic = request.topic();
        if (topic.equals("orders.broken"))
            throw new IllegalStateException("broken");
        if (topic.equals("orders.shape"))
            throw new PolicyViolationException(request.numPartitions() + " " + request.replicationFactor() + " "
                + request.replicasAssignments() + " " + request.configs());
        if (!teams.contains(topic.split("\\.")[0]) && !topic.startsWith("__"))
            throw new PolicyViolationException("Topic " + topic + " must begin with one of " + String.join(", ", teams));
    }

    @Override
    public void close() {
    }
}
