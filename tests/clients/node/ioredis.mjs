// ioredis, as reading.mjs says. Replicas: scaleReads "slave", one by chance. An MGET is sent as it is.
import Redis from "ioredis";
import { nodes, read, replicas, versionOf } from "./reading.mjs";

const client = new Redis.Cluster(nodes, { scaleReads: replicas ? "slave" : "master" });
// Every refused connection is an event; what a command meets is told by the command.
client.on("error", () => {});

await read(
  "ioredis",
  versionOf("ioredis"),
  false,
  (key) => client.get(key),
  (keys) => client.mget(keys),
);
