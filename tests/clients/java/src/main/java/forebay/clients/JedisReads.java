package forebay.clients;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import redis.clients.jedis.ClusterCommandObjects;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;

/**
 * Jedis as a client of Reading. Replicas: executeCommandToReplica, a random one, for commands of one slot. An MGET over
 * slots goes to the primaries.
 */
final class JedisReads {
  public static void main(String[] words) throws Exception {
    Reading reading = new Reading("Jedis", version(), words);
    var config = DefaultJedisClientConfig.builder();
    if (reading.replicas) config.readOnlyForRedisClusterReplicas();
    var nodes = Arrays.stream(reading.addresses).map(HostAndPort::from).collect(Collectors.toSet());
    var client = RedisClusterClient.builder().nodes(nodes).clientConfig(config.build()).build();
    ClusterCommandObjects commands = new ClusterCommandObjects(RedisProtocol.RESP3);
    if (reading.replicas) {
      reading.run(
          key -> client.executeCommandToReplica(commands.get(key)),
          keys ->
              Reading.oneSlot(keys)
                  ? client.executeCommandToReplica(commands.mget(array(keys)))
                  : client.mget(array(keys)));
    } else {
      reading.run(client::get, keys -> client.mget(array(keys)));
    }
  }

  private static String version() throws IOException {
    Properties properties = new Properties();
    try (var text = Jedis.class.getResourceAsStream("/META-INF/maven/redis.clients/jedis/pom.properties")) {
      properties.load(text);
    }
    return properties.getProperty("version");
  }

  private static String[] array(List<String> keys) {
    return keys.toArray(new String[0]);
  }
}
