// Writes keys once to the live table `t` of a cluster with ioredis, one loop for each hashtag, until standard input ends.
// Prints what each write was told, a line of JSON each. Nothing is sent again by the client.
import Redis from "ioredis";

const [ports, name, pause, ...tags] = process.argv.slice(2);
const nodes = ports.split(",").map((port) => ({ port: Number(port), host: "127.0.0.1" }));
const client = new Redis.Cluster(nodes, {
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  retryDelayOnTryAgain: 0,
  slotsRefreshInterval: 1000,
  clusterRetryStrategy: () => 200,
  redisOptions: { connectTimeout: 2000, commandTimeout: 2000, autoResendUnfulfilledCommands: false },
});
client.on("error", () => {});

let over = false;
process.stdin.on("end", () => (over = true)).resume();

async function write(tag, place) {
  for (let count = 1; !over; count++) {
    const key = `t:{${tag}}${name}-${count}`;
    const begin = Date.now() / 1000;
    const error = await client.set(key, key).then(
      () => null,
      (error) => error.message,
    );
    console.log(JSON.stringify({ place, key, begin, end: Date.now() / 1000, error }));
    await new Promise((resolve) => setTimeout(resolve, Number(pause)));
  }
}
await Promise.all(tags.map(write));
client.disconnect();
process.exit(0);
