import java.util.Collection;
import java.util.Map;

/** Writes maps, collections, strings, numbers and booleans as JSON on one line. */
final class Json {
    private Json() {
    }

    static String text(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(before);
                before = ',';
                quote(String.valueOf(entry.getKey()), out);
                out.append(':');
                write(entry.getValue(), out);
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Collection) {
            char before = '[';
            for (Object element : (Collection<?>) value) {
                out.append(before);
                before = ',';
                write(element, out);
            }
            out.append(before == '[' ? "[]" : "]");
        } else if (value instanceof String || value instanceof Enum) {
            quote(value.toString(), out);
        } else {
            out.append(value);
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char unit = text.charAt(i);
            // Surrogates are escaped one by one, so that a lone one reaches the reader as it is.
            if (unit < 0x20 || unit == '"' || unit == '\\' || Character.isSurrogate(unit)) {
                out.append(String.format("\\u%04x", (int) unit));
            } else {
                out.append(unit);
            }
        }
        out.append('"');
    }
}
