import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Prints, for each certificate (arguments after the rules), the name that Kafka's rules make of its subject. */
public class CertificateNames {
    public static void main(String[] args) throws Exception {
        SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(args[0]);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (int at = 1; at < args.length; at++) {
            try (FileInputStream file = new FileInputStream(args[at])) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(file);
                String name;
                try {
                    name = mapper.getName(certificate.getSubjectX500Principal().getName());
                } catch (SslPrincipalMapper.NoMatchingRule none) {
                    name = "(none)";
                }
                System.out.write((name + "\0").getBytes("UTF-8"));
            }
        }
        System.out.flush();
    }
}
