import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

/** Prints the subject of each certificate file as X500Principal.getName() writes it. */
class SubjectNames {
    public static void main(String[] paths) throws Exception {
        for (String path : paths)
            try (FileInputStream file = new FileInputStream(path)) {
                X509Certificate made = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(file);
                System.out.println(made.getSubjectX500Principal().getName().replace("\n", "\\n"));
            }
    }
}
