//! redis-rs as a client of reading.rs: its blocking client, or the tokio client. Replicas: a random
//! one.

mod reading;

use std::panic::{AssertUnwindSafe, catch_unwind};

use reading::Reading;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_read_routing::RandomReplicaStrategy;
use redis::{AsyncCommands, Commands, ErrorKind, RedisResult};

/// The version in Cargo.toml.
const VERSION: &str = "1.8.1";

fn client(reading: &Reading) -> RedisResult<ClusterClient> {
    let builder = ClusterClientBuilder::new(reading.addresses());
    if reading.replicas() {
        builder.read_routing_strategy(RandomReplicaStrategy).build()
    } else {
        builder.build()
    }
}

fn blocking() -> RedisResult<()> {
    let reading = Reading::new("redis-rs", VERSION);
    let mut connection = client(&reading)?.get_connection()?;
    reading.run(|keys| {
        let mut read = || match keys {
            [key] => connection.get(key).map(|one| vec![one]),
            keys => connection.mget(keys),
        };
        // 1.8.1 panics if one part of a split MGET gets MOVED.
        catch_unwind(AssertUnwindSafe(&mut read)).unwrap_or_else(|_| {
            let what = "the client panicked (see its log)";
            Err((ErrorKind::Extension, "PANIC", what.to_owned()).into())
        })
    });
    Ok(())
}

fn asynchronous() -> RedisResult<()> {
    let reading = Reading::new("redis-rs, tokio", VERSION);
    let runtime = tokio::runtime::Runtime::new()?;
    let mut connection = runtime.block_on(client(&reading)?.get_async_connection())?;
    reading.run(|keys| {
        runtime.block_on(async {
            match keys {
                [key] => connection.get(key).await.map(|one| vec![one]),
                keys => connection.mget(keys).await,
            }
        })
    });
    Ok(())
}

fn main() -> RedisResult<()> {
    match std::env::args().nth(1).as_deref() {
        Some("async") => asynchronous(),
        _ => blocking(),
    }
}
