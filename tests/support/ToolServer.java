import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs Kafka's tools one after the other in one virtual machine: most of what a tool costs is the start of its own.
 *
 * <p>A line of standard input is a run: the tool's class, its input and its arguments, each in Base64, with blanks
 * between. A line of output answers it: the exit status, standard output and standard error. The classes of the tools
 * are loaded anew for each run, so that no run sees the static fields of the one before.
 */
public final class ToolServer {
    private ToolServer() {}

    /** A tool wants to exit. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("the tool has exited", null, false, false);
        }
    }

    /** Loads the tools' classes by itself, and leaves all others to the loader that all runs share. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader(URL[] jars) {
            super(jars, ToolServer.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.admin.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> known = findLoadedClass(name);
                if (known != null) {
                    return known;
                }
                try {
                    return findClass(name);
                } catch (ClassNotFoundException error) {
                    return super.loadClass(name, resolve); // of a package with such a name, in another jar
                }
            }
        }
    }

    private static final List<Runnable> AT_EXIT = new ArrayList<>();
    private static int status;
    private static boolean hasExited;

    private static void exit(int code, String message) {
        if (!hasExited) {
            hasExited = true;
            status = code;
            PrintStream nowhere = new PrintStream(PrintStream.nullOutputStream());
            System.setOut(nowhere); // a tool that takes the exit for a failure has more to say
            System.setErr(nowhere);
        }
        throw new Exited();
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static URL[] jars() throws Exception {
        List<URL> jars = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            String name = new File(entry).getName();
            if (name.startsWith("kafka-tools-") || name.startsWith("kafka_2")) {
                jars.add(new File(entry).toURI().toURL());
            }
        }
        return jars.toArray(new URL[0]);
    }

    private static void run(URL[] jars, String tool, String[] arguments) throws Exception {
        status = 0;
        hasExited = false;
        try (ToolLoader loader = new ToolLoader(jars)) {
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!hasExited) {
                status = 1;
                error.getCause().printStackTrace();
            }
        }
    }

    public static void main(String[] options) throws Exception {
        LoggerFactory.getLogger(ToolServer.class); // binds the log to this process's stderr, not to that of the first run
        Exit.setExitProcedure(ToolServer::exit);
        Exit.setHaltProcedure(ToolServer::exit);
        Exit.setShutdownHookAdder((name, task) -> AT_EXIT.add(task));
        URL[] jars = jars();
        PrintStream answers = System.out;
        PrintStream trouble = System.err;
        InputStream requests = System.in;
        BufferedReader lines = new BufferedReader(new InputStreamReader(requests, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String[] arguments = new String[words.length - 2];
            for (int index = 0; index < arguments.length; index++) {
                arguments[index] = decoded(words[index + 2]);
            }
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
            PrintStream out = new PrintStream(output, true, StandardCharsets.UTF_8);
            PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8);
            try {
                System.setOut(out);
                System.setErr(err);
                run(jars, decoded(words[0]), arguments);
                System.setOut(out);
                System.setErr(err);
                AT_EXIT.forEach(Runnable::run); // as a tool of its own does when it ends: some close their client here
            } finally {
                AT_EXIT.clear();
                out.flush();
                err.flush();
                System.setOut(answers);
                System.setErr(trouble);
            }
            Base64.Encoder encoder = Base64.getEncoder();
            String written = encoder.encodeToString(output.toByteArray()) + " " + encoder.encodeToString(errors.toByteArray());
            answers.println(status + " " + written);
            answers.flush();
        }
    }
}
