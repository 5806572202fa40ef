// Reads the table `people` with ioredis and prints what it got as one JSON object.
import Redis from "ioredis";

const client = new Redis({ port: Number(process.argv[2]), host: "127.0.0.1" });
const many = client.pipeline();
for (let i = 0; i < 100; i++) many.hget(`people:${i}`, "id");

const scanned = new Set();
for await (const keys of client.scanStream({ match: "people:*", count: 100 })) {
  keys.forEach((key) => scanned.add(key));
}

console.log(
  JSON.stringify({
    hash: await client.hgetall("people:7"),
    row: JSON.parse(await client.get("people:7")),
    absent: await client.get("people:nosuch"),
    many: (await many.exec()).map(([error, value]) => error ?? value),
    refused: await client.set("people:7", "x").catch((error) => error.message),
    scanned: scanned.size,
  }),
);
await client.quit();
