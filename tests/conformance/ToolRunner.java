import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another in one JVM, since starting a JVM for each
 * costs more than what the tool does.
 *
 * A request is one line on stdin: the main class, then stdin and each argument in base64, parted by
 * spaces. The reply is one line on stdout: exit code, stdout and stderr in base64. Each run gets the
 * tools' own classes afresh, because they keep state in statics (the console consumer's count of
 * messages); the client library below them is shared. Run it as `java -cp JARS ToolRunner.java`.
 */
public final class ToolRunner {
    private static final String[] FRESH = {"org.apache.kafka.tools.", "kafka.admin.", "kafka.tools."};

    /** Thrown in place of ending the JVM; an Error, so that few handlers take it for a failure. */
    private static final class Exited extends Error {
        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** Defines the tools' classes itself, and leaves every other class to the shared loader. */
    private static final class FreshLoader extends URLClassLoader {
        FreshLoader(URL[] jars, ClassLoader shared) {
            super(jars, shared);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (Arrays.stream(FRESH).noneMatch(name::startsWith)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found != null ? found : findClass(name);
            }
        }
    }

    /** Decode one word of a request; the "=" before it keeps an empty one from vanishing. */
    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    private static String decode(String text) {
        return new String(bytes(text), StandardCharsets.UTF_8);
    }

    private static URL[] toolJars() throws IOException {
        List<URL> jars = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            String name = Path.of(entry).getFileName().toString();
            if (name.startsWith("kafka-tools") || name.startsWith("kafka_2.13")) {
                jars.add(Path.of(entry).toUri().toURL());
            }
        }
        return jars.toArray(new URL[0]);
    }

    private static int run(URL[] jars, String mainClass, String[] arguments) {
        AtomicReference<Integer> exitCode = new AtomicReference<>();
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        // The first exit counts: some tools catch everything and exit again.
        Exit.Procedure procedure = (code, message) -> {
            exitCode.compareAndSet(null, code);
            throw new Exited(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        try (FreshLoader loader = new FreshLoader(jars, before)) {
            Thread.currentThread().setContextClassLoader(loader);
            try {
                Class<?> tool = Class.forName(mainClass, true, loader);
                tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (ReflectiveOperationException failed) {
                Throwable cause = failed.getCause() == null ? failed : failed.getCause();
                if (!(cause instanceof Exited)) {
                    cause.printStackTrace();
                    exitCode.compareAndSet(null, 1);
                }
            }
            hooks.forEach(Runnable::run);
        } catch (Exited exited) {
            return exitCode.get();
        } catch (IOException failed) {
            failed.printStackTrace();
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
        return exitCode.get() == null ? 0 : exitCode.get();
    }

    public static void main(String[] unused) throws IOException {
        PrintStream replies = System.out;
        InputStream requests = System.in;
        URL[] jars = toolJars();
        BufferedReader reader = new BufferedReader(new InputStreamReader(requests, StandardCharsets.US_ASCII));
        replies.println("ready");
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            String[] words = line.split(" ");
            String[] arguments = Arrays.stream(words).skip(2).map(ToolRunner::decode).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(bytes(words[1])));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(jars, words[0], arguments);
            System.out.flush();
            System.err.flush();
            Base64.Encoder encoder = Base64.getEncoder();
            replies.println(code + " =" + encoder.encodeToString(out.toByteArray())
                + " =" + encoder.encodeToString(err.toByteArray()));
        }
    }
}
