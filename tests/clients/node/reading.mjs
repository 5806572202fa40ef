// The reads of the JavaScript clients, and their results. See ../python/reading.py.
import { readFileSync } from "node:fs";

const TABLES = ["people", "prices"];
const PAUSE_MS = 10;
const STRIDE = 7919;
const SPELL_MS = 2000;
// Concurrent reads, as in JavaScript programs. They share the client's knowledge of the cluster.
const LANES = 4;

export const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;

const [variant, addresses, groups, versions] = process.argv.slice(2);
export const replicas = variant === "replicas";
export const nodes = addresses.split(",").map((address) => {
  const [host, port] = address.split(":");
  return { host, port: Number(port) };
});

// In turn: a GET of each table, an MGET of one slot, and an MGET over slots.
function keysOf(count) {
  const group = (count * STRIDE) % groups;
  const kind = count % 4;
  if (kind < 2) return [`${TABLES[kind]}:{${group}}:${kind}`];
  if (kind === 2) return [0, 1, 2, 3].map((i) => `people:{${group}}:${i}`);
  return [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `${TABLES[i % 2]}:{${(group + i) % groups}}:${i % 4}`);
}

// The error in an answer, or the version of each table in it.
function check(keys, values, splits) {
  if (values.length !== keys.length) return { wrong: `${values.length} values for ${keys}` };
  const seen = {};
  let mixed = false;
  for (const [i, key] of keys.entries()) {
    const [found, version] = String(values[i]).split(" ");
    if (found !== key || !/^\d+$/.test(version) || version < 1 || version > Number(versions)) {
      return { wrong: `${key}: ${values[i]}` };
    }
    const table = key.split(":")[0];
    mixed ||= (seen[table] ??= Number(version)) !== Number(version);
  }
  if (!mixed) return { seen };
  // The client splits the MGET, so its parts are separate commands.
  const isSplit = splits && new Set(keys.map((key) => key.split(":")[1])).size > 1;
  return isSplit ? { parts: 1 } : { wrong: `two versions: ${values}` };
}

// Reads by get(key) and mget(keys) until standard input ends. With `splits`, the client sends an MGET over slots as
// several commands.
export async function read(client, version, splits, get, mget) {
  const results = { client, version, variant, reads: 0, wrong: 0, parts: 0, spells: [] };
  let longest = 0;
  let over = false;
  const last = {};
  process.stdin.on("end", () => (over = true)).resume();

  const failed = (kind, text) => {
    const now = Date.now() / 1000;
    const recent = (one) => one.kind === kind && now - one.until < SPELL_MS / 1000;
    const spell = results.spells.findLast(recent);
    if (spell) {
      spell.count += 1;
      spell.until = now;
    } else {
      results.spells.push({ kind, count: 1, since: now, until: now, text: text.slice(0, 300) });
    }
  };

  const answered = (keys, values) => {
    results.reads += 1;
    const { wrong, parts, seen } = check(keys, values, splits);
    if (wrong) {
      results.wrong += 1;
      failed("wrong answer", wrong);
    } else {
      results.parts += parts ?? 0;
      Object.assign(last, seen);
    }
  };

  let count = 0;
  // A pause is the time between two answers of one lane.
  const lane = async () => {
    let answeredAt;
    while (!over) {
      count += 1;
      const keys = keysOf(count);
      try {
        const values = keys.length === 1 ? [await get(keys[0])] : await mget(keys);
        const now = performance.now();
        if (results.reads === 0) console.log("reading");
        if (answeredAt !== undefined) longest = Math.max(longest, now - answeredAt);
        answeredAt = now;
        answered(keys, values);
      } catch (error) {
        failed(error.code ?? error.constructor.name, String(error.message));
      }
      await new Promise((resolve) => setTimeout(resolve, LANES * PAUSE_MS));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  console.log(JSON.stringify({ ...results, longest_pause_ms: Math.round(longest), last }));
  process.exit(0);
}
