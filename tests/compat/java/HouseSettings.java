import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;

/** The settings' half of the example in docs/policies.md; refuses retention.bytes=1 with what it was given. */
public class HouseSettings implements AlterConfigPolicy {
    @Override
    public void configure(Map<String, ?> settings) {
    }

    @Override
    public void validate(RequestMetadata request) {
        if ("-1".equals(request.configs().get("retention.ms")))
            throw new PolicyViolationException("Topic " + request.resource().name() + " must not keep records for ever");
        if ("1".equals(request.configs().get("retention.bytes")))
            throw new PolicyViolationException(request.resource().type() + " " + request.resource().name() + " "
                + new TreeMap<>(request.configs()));
    }

    @Override
    public void close() {
    }
}
