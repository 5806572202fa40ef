package forebay.clients;

import io.lettuce.core.LettuceVersion;
import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.Arrays;
import java.util.stream.Collectors;

/** Lettuce as a client of Reading. Replicas: ReadFrom.ANY_REPLICA, a random one. */
final class LettuceReads {
  public static void main(String[] words) throws Exception {
    Reading reading = new Reading("Lettuce", LettuceVersion.getVersion().split(".RELEASE")[0], words);
    var nodes = Arrays.stream(reading.addresses).map(one -> RedisURI.create("redis://" + one)).toList();
    var connection = RedisClusterClient.create(nodes).connect();
    if (reading.replicas) connection.setReadFrom(ReadFrom.ANY_REPLICA);
    var commands = connection.sync();
    reading.run(
        commands::get,
        keys ->
            commands.mget(keys.toArray(new String[0])).stream()
                .map(one -> one.getValueOrElse(null))
                .collect(Collectors.toList()));
  }
}
