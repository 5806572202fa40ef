package forebay.clients;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** What the clients in Java read, and what they note: ../python/reading.py, in other words. */
final class Reading {
  private static final String[] TABLES = {"people", "prices"};
  private static final int PAUSE_MS = 10;
  private static final int STRIDE = 7919;
  private static final double SPELL_S = 2;

  /** Failures of one kind without a longer pause between them. */
  private static final class Spell {
    String kind;
    String text;
    int count = 1;
    double since;
    double until;
  }

  final boolean replicas;
  final String[] addresses;
  private final Map<String, Object> told = new HashMap<>();
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

  /** By the command line, of a client whose MGET over slots is several commands. */
  Reading(String client, String version, String[] words) {
    replicas = words[0].equals("replicas");
    addresses = words[1].split(",");
    groups = Integer.parseInt(words[2]);
    versions = Integer.parseInt(words[3]);
    told.put("client", client);
    told.put("version", version);
    told.put("variant", words[0]);
  }

  static boolean oneSlot(List<String> keys) {
    return keys.stream().map(key -> key.split(":")[1]).distinct().count() == 1;
  }

  /** GETs of both tables, an MGET of one slot, and one over slots, by turns. */
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

  /** Reads until standard input ends, and prints what came of it. */
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
    told.put("reads", reads);
    told.put("wrong", wrong);
    told.put("parts", parts);
    told.put("spells", spells);
    told.put("last", last);
    told.put("longest_pause_ms", longest / 1_000_000);
    System.out.println(new com.google.gson.Gson().toJson(told));
    // Threads of the clients would hold the process.
    System.exit(0);
  }

  private void waitForEnd() {
    try {
      System.in.transferTo(java.io.OutputStream.nullOutputStream());
    } catch (IOException error) {
      // A pipe that breaks is an end, too.
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
      // The client's own doing: its parts are commands of their own.
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
