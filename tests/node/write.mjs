// Writes to the live tables `kv`, `people` and `list` with ioredis and prints what it got as one JSON
// object.
import Redis from "ioredis";

const client = new Redis({ port: Number(process.argv[2]), host: "127.0.0.1" });
const values = (replies) => replies.map(([error, value]) => error?.message ?? value);

const pipeline = client.pipeline();
for (let i = 0; i < 200; i++) pipeline.set(`kv:${i}`, i).incr(`kv:${i}`);

console.log(
  JSON.stringify({
    set: await client.set("kv:a", "1", "EX", 100),
    ttl: await client.ttl("kv:a"),
    incr: await client.incr("kv:a"),
    kept: await client.ttl("kv:a"),
    persist: [await client.persist("kv:a"), await client.ttl("kv:a")],
    nx: await client.set("kv:a", "2", "PX", 1000, "NX"),
    gone: [await client.pexpire("kv:a", 0), await client.get("kv:a")],
    many: values(await pipeline.exec()).filter((_, place) => place % 2 === 1),
    multi: values(
      await client.multi().set("kv:{m}a", "1").incr("kv:{m}a").lpush("kv:{m}a", "x").get("kv:{m}a").exec(),
    ),
    across: await client
      .multi(Array.from({ length: 50 }, (_, i) => ["set", `kv:x${i}`, "1"]))
      .exec()
      .catch((error) => error.message),
    hash: [await client.hset("people:1", { name: "Ada", age: 36 }), await client.hgetall("people:1")],
    list: [await client.rpush("list:l", 1, 2, 3), await client.lrange("list:l", 0, -1)],
    bytes: (await client.set("kv:b", Buffer.from([0, 255, 13, 10]))) && [...(await client.getBuffer("kv:b"))],
    deleted: await client.del("kv:0", "kv:1", "kv:none"),
  }),
);
await client.quit();
