/** What the command line asks for. */
final class Options {
    final String mode;
    final String system;
    final String address;
    final String name;
    int batch = 1;
    boolean durable = true;
    double warmupSeconds = 1;
    double seconds = 5;
    long messages = 0;

    Options(String[] words) {
        if (words.length < 4) throw new IllegalArgumentException("produce|consume|delete SYSTEM ADDRESS NAME [key=value ...]");
        mode = words[0];
        system = words[1];
        address = words[2];
        name = words[3];
        for (int i = 4; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            switch (pair[0]) {
                case "batch" -> batch = Integer.parseInt(pair[1]);
                case "durable" -> durable = Boolean.parseBoolean(pair[1]);
                case "warmup_s" -> warmupSeconds = Double.parseDouble(pair[1]);
                case "seconds" -> seconds = Double.parseDouble(pair[1]);
                case "messages" -> messages = Long.parseLong(pair[1]);
                default -> throw new IllegalArgumentException("unknown option " + pair[0]);
            }
        }
    }
}
