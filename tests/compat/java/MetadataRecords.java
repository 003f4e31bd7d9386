import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Reads metadata records, a line of hexadecimal digits each, and prints for each what Kafka writes of it, its class and
 * its fields in JSON; for one that Kafka refuses, an exclamation mark.
 */
public final class MetadataRecords {
    private MetadataRecords() {}

    private static String answer(byte[] value) {
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ApiMessageAndVersion record;
        try {
            record = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
        } catch (RuntimeException refused) {
            return "!";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(written));
        String json = MetadataJsonConverters.writeJson(record.message(), record.version()).toString();
        String name = record.message().getClass().getSimpleName();
        return HexFormat.of().formatHex(written.array()) + " " + name + " " + json;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.print(answer(HexFormat.of().parseHex(line)) + "\n");
        }
        out.flush();
    }
}
