// node-redis, as reading.mjs says. Replicas: useReplicas, the primary and its replicas by turns. An MGET is sent as it
// is up to version 5, and split by slots from 6 on.
import { createCluster } from "redis";
import { nodes, read, replicas, versionOf } from "./reading.mjs";

const client = createCluster({
  rootNodes: nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` })),
  useReplicas: replicas,
});
// Without a listener an error ends the process; what a command meets is told by the command.
client.on("error", () => {});
await client.connect();

const version = versionOf("redis");
await read(
  "node-redis",
  version,
  parseInt(version) >= 6,
  (key) => client.get(key),
  (keys) => client.mGet(keys),
);
