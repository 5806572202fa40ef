// Writes and reads keys of the live table `ab` with ioredis as a client of a cluster, walks all primaries, and prints
// what it got as one JSON object.
import Redis from "ioredis";

const [port, count] = process.argv.slice(2).map(Number);
const client = new Redis.Cluster([{ port, host: "127.0.0.1" }], { scaleReads: "all" });
await new Promise((resolve) => client.once("ready", resolve));

const keys = Array.from({ length: count }, (_, i) => `ab:i${i}`);
const set = await Promise.all(keys.map((key) => client.set(key, key)));
const values = await Promise.all(keys.map((key) => client.get(key)));

const [scanned, sizes] = [[], []];
for (const node of client.nodes("master")) {
  for await (const found of node.scanStream({ match: "ab:i*", count: 100 })) scanned.push(...found);
  sizes.push(await node.dbsize());
}

console.log(
  JSON.stringify({
    set: set.filter((reply) => reply === "OK").length,
    read: values.filter((value, at) => value === keys[at]).length,
    scanned: scanned.length,
    different: new Set(scanned).size,
    size: sizes.reduce((sum, size) => sum + size, 0),
  }),
);
await client.quit();
