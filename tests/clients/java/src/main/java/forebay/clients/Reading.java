package forebay.clients;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** The reads of the Java clients, and their results. See python/reading.py. */
final class Reading {
  private static final String[] TABLES = {"people", "prices"};
  private static final int PAUSE_MS = 10;
  private static final int STRIDE = 7919;
  private static final double SPELL_S = 2;

  /** Failures of one kind with short pauses between them. */
  private static final class Spell {
    String kind;
    String text;
    int count = 1;
    double since;
    double until;
  }

  final boolean replicas;
  final String[] addresses;
  private final Map<String, Object> results = new HashMap<>();
  private final List<Spell> spells = new ArrayList<>();
  private final Map<String, Integer> last = new HashMap<>();
  private final int groups;
  private final int versions;
  private int reads;
  private int wrong;
  private int parts;
  private long longest;
  private long answeredAt;
  private volatile boolean over;

  /** Takes the arguments of the command line, for a client that splits an MGET over slots. */
  Reading(String client, String version, String[] words) {
    replicas = words[0].equals("replicas");
    addresses = words[1].split(",");
    groups = Integer.parseInt(words[2]);
    versions = Integer.parseInt(words[3]);
    results.put("client", client);
    results.put("version", version);
    results.put("variant", words[0]);
  }

  static boolean oneSlot(List<String> keys) {
    return keys.stream().map(key -> key.split(":")[1]).distinct().count() == 1;
  }

  /** In turn: a GET of each table, an MGET of one slot, and an MGET over slots. */
  private List<String> keys(int count) {
    int group = (int) ((long) count * STRIDE % groups);
    int kind = count % 4;
    if (kind < 2) return List.of(TABLES[kind] + ":{" + group + "}:" + kind);
    List<String> keys = new ArrayList<>();
    if (kind == 2) {
      for (int i = 0; i < 4; i++) keys.add("people:{" + group + "}:" + i);
      return keys;
    }
    for (int i = 0; i < 8; i++) {
      keys.add(TABLES[i % 2] + ":{" + (group + i) % groups + "}:" + i % 4);
    }
    return keys;
  }

  /** Reads until standard input ends, and prints the results. */
  void run(Function<String, String> get, Function<List<String>, List<String>> mget) throws Exception {
    Thread end = new Thread(this::waitForEnd);
    end.setDaemon(true);
    end.start();
    for (int count = 1; !over; count++) {
      List<String> keys = keys(count);
      try {
        if (keys.size() > 1) {
          answered(keys, mget.apply(keys));
        } else {
          List<String> values = new ArrayList<>();
          values.add(get.apply(keys.get(0)));
          answered(keys, values);
        }
      } catch (RuntimeException error) {
        failed(error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
      }
      Thread.sleep(PAUSE_MS);
    }
    results.put("reads", reads);
    results.put("wrong", wrong);
    results.put("parts", parts);
    results.put("spells", spells);
    results.put("last", last);
    results.put("longest_pause_ms", longest / 1_000_000);
    System.out.println(new com.google.gson.Gson().toJson(results));
    // Threads of the clients would keep the process alive.
    System.exit(0);
  }

  private void waitForEnd() {
    try {
      System.in.transferTo(java.io.OutputStream.nullOutputStream());
    } catch (IOException error) {
      // A broken pipe is an end, too.
    }
    over = true;
  }

  private void answered(List<String> keys, List<String> values) {
    long now = System.nanoTime();
    if (reads == 0) System.out.println("reading");
    else longest = Math.max(longest, now - answeredAt);
    answeredAt = now;
    reads++;
    if (values.size() != keys.size()) {
      isWrong(values.size() + " values for " + keys);
      return;
    }
    Map<String, Integer> seen = new HashMap<>();
    boolean mixed = false;
    for (int i = 0; i < keys.size(); i++) {
      String key = keys.get(i);
      String[] parts = String.valueOf(values.get(i)).split(" ");
      int version = parts.length == 2 && parts[1].matches("\\d{1,3}") ? Integer.parseInt(parts[1]) : 0;
      if (!parts[0].equals(key) || version < 1 || version > versions) {
        isWrong(key + ": " + values.get(i));
        return;
      }
      Integer before = seen.put(key.split(":")[0], version);
      mixed |= before != null && before != version;
    }
    if (!mixed) {
      last.putAll(seen);
    } else if (!oneSlot(keys)) {
      // The client splits the MGET, so its parts are separate commands.
      parts++;
    } else {
      isWrong("two versions: " + values);
    }
  }

  private void isWrong(String text) {
    wrong++;
    failed("wrong answer", text);
  }

  private void failed(String kind, String text) {
    double now = System.currentTimeMillis() / 1000.0;
    for (int i = spells.size() - 1; i >= 0; i--) {
      Spell one = spells.get(i);
      if (one.kind.equals(kind) && now - one.until < SPELL_S) {
        one.count++;
        one.until = now;
        return;
      }
    }
    Spell one = new Spell();
    one.kind = kind;
    one.text = text.substring(0, Math.min(text.length(), 300));
    one.since = now;
    one.until = now;
    spells.add(one);
  }
}
