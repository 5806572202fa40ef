// Writes to and reads the live table `t` of a cluster with ioredis until standard input ends, and prints what each
// command was told, a JSON object a line. Nothing is sent again by the client.
import Redis from "ioredis";

const [port, name, seed, keys] = process.argv.slice(2);
const client = new Redis.Cluster([{ port: Number(port), host: "127.0.0.1" }], {
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  retryDelayOnTryAgain: 0,
  clusterRetryStrategy: () => 200,
  redisOptions: { connectTimeout: 2000, commandTimeout: 8000, autoResendUnfulfilledCommands: false },
});
client.on("error", () => {});

let over = false;
process.stdin.on("end", () => (over = true)).resume();

// A generator with a seed: mulberry32.
let state = [...`${seed} ${name}`].reduce((sum, letter) => (Math.imul(sum, 31) + letter.charCodeAt(0)) | 0, 7);
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};
const draw = (count) => Math.floor(random() * count);

const commands = {
  get: (key) => client.get(key),
  set: (key, value) => client.set(key, value),
  incr: (key) => client.incr(key),
  del: (key) => client.del(key),
};

for (let count = 1; !over; count++) {
  const counts = random() < 0.25;
  const key = `t:${counts ? "n" : "r"}${draw(Number(keys))}`;
  const kind = (counts ? ["incr", "get"] : ["get", "get", "set", "del"])[draw(counts ? 2 : 4)];
  const args = { set: [`${name}-${count}`], incr: [1] }[kind] ?? [];
  // The clock has milliseconds: the moments are put apart, not together.
  const begin = Date.now() / 1000;
  const told = await commands[kind](key, ...args).then(
    (result) => ({ result }),
    (error) => ({ error: error.message }),
  );
  console.log(JSON.stringify({ kind, key, args, begin, end: (Date.now() + 1) / 1000, ...told }));
  await new Promise((resolve) => setTimeout(resolve, 10));
}
client.disconnect();
process.exit(0);
