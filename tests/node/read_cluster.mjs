// Reads the table `people` with ioredis as a client of a cluster, from replicas too, and prints what it got as one
// JSON object.
import Redis from "ioredis";

const [port, count] = process.argv.slice(2).map(Number);
const client = new Redis.Cluster([{ port, host: "127.0.0.1" }], { scaleReads: "all" });
await new Promise((resolve) => client.once("ready", resolve));

const keys = Array.from({ length: count }, (_, i) => `people:${i}`);
const parsed = (texts) => texts.map((text) => text && JSON.parse(text));

const scanned = new Set();
for (const node of client.nodes("master")) {
  for await (const found of node.scanStream({ match: "people:*", count: 500 })) {
    found.forEach((key) => scanned.add(key));
  }
}

console.log(
  JSON.stringify({
    rows: parsed(await Promise.all(keys.map((key) => client.get(key)))),
    many: parsed(await client.mget(keys.slice(0, 100))),
    hash: await client.hgetall("people:7"),
    absent: await client.get("people:nosuch"),
    refused: await client.set("people:7", "x").catch((error) => error.message),
    scanned: scanned.size,
  }),
);
await client.quit();
