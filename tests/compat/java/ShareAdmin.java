import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.common.TopicPartition;

/** The calls of Kafka's admin client about share groups, one after the other, and what came of each, line by line. */
public final class ShareAdmin {
    private interface Call {
        Object run() throws ExecutionException, InterruptedException;
    }

    private ShareAdmin() {
    }

    public static void main(String[] args) throws InterruptedException {
        String group = args[1];
        String topic = args[2];
        TopicPartition first = new TopicPartition(topic, 0);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(properties)) {
            tell("listed", () -> listed(admin, group));
            tell("described", () -> described(admin.describeShareGroups(List.of(group)).describedGroups().get(group).get()));
            tell("offsets", () -> offsets(admin, group));
            tell("altered", () -> admin.alterShareGroupOffsets(group, Map.of(first, 2L)).all().get());
            tell("offsets", () -> offsets(admin, group));
            tell("alteredUnknown", () ->
                admin.alterShareGroupOffsets(group, Map.of(new TopicPartition("no-such-topic", 0), 2L)).all().get());
            tell("alteredNoGroup", () -> admin.alterShareGroupOffsets("no-such-group", Map.of(first, 2L)).all().get());
            tell("deletedOffsets", () -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get());
            tell("offsets", () -> offsets(admin, group));
            tell("deletedOffsets", () -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get());
            tell("deleted", () -> admin.deleteShareGroups(List.of(group)).all().get());
            tell("deleted", () -> admin.deleteShareGroups(List.of(group)).all().get());
            tell("described", () -> described(admin.describeShareGroups(List.of(group)).describedGroups().get(group).get()));
        }
    }

    private static void tell(String what, Call call) throws InterruptedException {
        try {
            System.out.println(what + " " + call.run());
        } catch (ExecutionException failure) {
            System.out.println(what + " " + failure.getCause().getClass().getSimpleName());
        }
    }

    private static Object listed(Admin admin, String group) throws ExecutionException, InterruptedException {
        for (GroupListing listing : admin.listGroups(ListGroupsOptions.forShareGroups()).all().get()) {
            if (listing.groupId().equals(group)) {
                return listing.type().get() + " " + listing.protocol() + " " + listing.groupState().get();
            }
        }
        return null;
    }

    private static Object described(ShareGroupDescription group) {
        StringBuilder text = new StringBuilder(group.groupState() + " " + group.coordinator().id());
        for (ShareMemberDescription member : group.members()) {
            text.append(" ").append(member.clientId()).append(member.assignment().topicPartitions());
        }
        return text;
    }

    private static Object offsets(Admin admin, String group) throws ExecutionException, InterruptedException {
        Map<String, ListShareGroupOffsetsSpec> asked = Map.of(group, new ListShareGroupOffsetsSpec());
        Map<String, Object> found = new TreeMap<>();
        admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group).get()
            .forEach((partition, at) -> found.put("p" + partition.partition(), at.startOffset() + " lag " + at.lag().get()));
        return found;
    }
}
