// Says what RE2/J, the library of patterns that Apache Kafka's broker uses, makes of patterns. Run by
// `java -cp re2j.jar PatternJudge.java`. Each line that it reads is a pattern and texts, in base64
// with commas between them; each line that it writes is the reason why the pattern is none, after an
// exclamation mark, or for each text 1 if the pattern matches all of it, else 0.

import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

public class PatternJudge {
    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static String judge(String[] fields) {
        try {
            Pattern pattern = Pattern.compile(text(fields[0]));
            StringBuilder answer = new StringBuilder();
            for (int i = 1; i < fields.length; i++)
                answer.append(pattern.matcher(text(fields[i])).matches() ? '1' : '0');
            return answer.toString();
        } catch (PatternSyntaxException error) {
            return "!" + error.getDescription();
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, "UTF-8");
        for (String line = input.readLine(); line != null; line = input.readLine())
            output.println(judge(line.split(",", -1)));
        output.flush();
    }
}
