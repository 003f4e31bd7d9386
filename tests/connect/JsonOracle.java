import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Base64;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/** Prints, a line each, what Kafka's JsonConverter makes of values that the test makes too: name, tab, base64. */
public final class JsonOracle {
    private static final JsonConverter WITH = converter(Map.of());
    private static final JsonConverter WITHOUT = converter(Map.of("schemas.enable", "false"));
    private static final JsonConverter NUMERIC = converter(Map.of("decimal.format", "NUMERIC"));

    private JsonOracle() {
    }

    public static void main(String[] arguments) {
        Schema inner = SchemaBuilder.struct().name("db.Inner").version(2).doc("inside").field("x", Schema.INT64_SCHEMA)
            .optional().build();
        Schema all = SchemaBuilder.struct().name("db.Everything")
            .field("tiny", Schema.INT8_SCHEMA)
            .field("small", Schema.OPTIONAL_INT16_SCHEMA)
            .field("count", SchemaBuilder.int32().defaultValue(5).build())
            .field("big", Schema.INT64_SCHEMA)
            .field("single", Schema.FLOAT32_SCHEMA)
            .field("double", Schema.FLOAT64_SCHEMA)
            .field("flag", Schema.BOOLEAN_SCHEMA)
            .field("text", Schema.OPTIONAL_STRING_SCHEMA)
            .field("raw", Schema.BYTES_SCHEMA)
            .field("price", Decimal.schema(2))
            .field("day", org.apache.kafka.connect.data.Date.SCHEMA)
            .field("clock", Time.builder().optional().build())
            .field("at", Timestamp.SCHEMA)
            .field("tags", SchemaBuilder.array(Schema.STRING_SCHEMA).build())
            .field("counts", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT64_SCHEMA).build())
            .field("pairs", SchemaBuilder.map(Schema.INT32_SCHEMA, Schema.STRING_SCHEMA).build())
            .field("micros", SchemaBuilder.int64().name("io.debezium.time.MicroTimestamp").version(1).build())
            .field("inner", inner)
            .build();
        Map<String, Long> counts = new LinkedHashMap<>();
        counts.put("k", 1L);
        Map<Integer, String> pairs = new LinkedHashMap<>();
        pairs.put(7, "seven");
        Struct value = new Struct(all)
            .put("tiny", (byte) -3)
            .put("big", 1L << 60)
            .put("single", 0.1f)
            .put("double", 1e10)
            .put("flag", true)
            .put("text", "Z\u00fcrich \"\u2603\" \\ / \u001f \n \ud83d\ude00")
            .put("raw", new byte[] {0, -1})
            .put("price", new BigDecimal("-12.34"))
            .put("day", new Date(86_400_000L * 20_000))
            .put("clock", new Date(3_723_004L))
            .put("at", new Date(-1L))
            .put("tags", Arrays.asList("a", "b"))
            .put("counts", counts)
            .put("pairs", pairs)
            .put("micros", 1_700_000_000_000_000L)
            .put("inner", new Struct(inner).put("x", 1L));
        print("struct", WITH.fromConnectData("t", all, value));
        print("struct without schema", WITHOUT.fromConnectData("t", all, value));
        print("struct with numbers", NUMERIC.fromConnectData("t", all, value));
        print("null struct", WITH.fromConnectData("t", inner, null));
        print("plain text", WITH.fromConnectData("t", null, "text"));
        double[] doubles = {0.0, -0.0, 1.0, 0.001, 9.999e-4, 1e7, 9999999.0, 1.0 / 3, 1e21, 1e-7, 1234567.5,
            2.2250738585072014E-308, 1.7976931348623157E308, 100.0, Double.NaN, Double.POSITIVE_INFINITY};
        for (double each : doubles) {
            print("double " + Double.doubleToLongBits(each), WITHOUT.fromConnectData("t", Schema.FLOAT64_SCHEMA, each));
            print("float " + Double.doubleToLongBits(each),
                WITHOUT.fromConnectData("t", Schema.FLOAT32_SCHEMA, (float) each));
        }
        for (String each : new String[] {"0", "1.00", "-1", "127", "128", "-128", "-129", "32768", "1E+3", "1E-10"}) {
            BigDecimal number = new BigDecimal(each);
            print("decimal " + each, WITHOUT.fromConnectData("t", Decimal.schema(number.scale()), number));
            print("number " + each, NUMERIC.fromConnectData("t", Decimal.schema(number.scale()), number));
        }
    }

    private static JsonConverter converter(Map<String, String> settings) {
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, false);
        return converter;
    }

    private static void print(String name, byte[] bytes) {
        System.out.println(name + "\t"
            + Base64.getEncoder().encodeToString(bytes));
    }
}
