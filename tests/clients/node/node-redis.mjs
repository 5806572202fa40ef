// node-redis as a client of reading.mjs. Replicas: useReplicas, the primary and its replicas in turn. Up to version 5
// node-redis sends an MGET unsplit. From version 6 on it splits the MGET by slots.
import { createCluster } from "redis";
import { nodes, read, replicas, versionOf } from "./reading.mjs";

const client = createCluster({
  rootNodes: nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` })),
  useReplicas: replicas,
});
// Without a listener, an error ends the process. The commands report their own errors.
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
