// ioredis as a client of reading.mjs. Replicas: scaleReads "slave", a random one. ioredis sends an MGET unsplit.
import Redis from "ioredis";
import { nodes, read, replicas, versionOf } from "./reading.mjs";

const client = new Redis.Cluster(nodes, { scaleReads: replicas ? "slave" : "master" });
// Every refused connection is an event. The commands report their own errors.
client.on("error", () => {});

await read(
  "ioredis",
  versionOf("ioredis"),
  false,
  (key) => client.get(key),
  (keys) => client.mget(keys),
);
