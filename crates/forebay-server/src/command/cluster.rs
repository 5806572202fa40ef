//! CLUSTER: this node alone, primary of every slot.

use std::net::SocketAddr;

use forebay_run::hash::{KeyHasher, SLOTS};

use super::call::SessionCall;
use super::{Answer, CommandError};
use crate::resp::Reply;

pub fn cluster(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    let id = call.shared.run_id.as_bytes();
    // The address that the client used reaches this node for it.
    let address = call.session.client.local;
    let sub = args.get(1).to_ascii_lowercase();
    let reply = &mut *call.reply;
    match (&sub[..], args.len()) {
        (b"info", 2) => reply.verbatim(&info()),
        (b"myid", 2) => reply.bulk(id),
        (b"keyslot", 3) => reply.int(KeyHasher::new(b"").slot(args.get(2)).into()),
        (b"slots", 2) => slots(reply, id, address),
        (b"shards", 2) => shards(reply, id, address),
        (b"nodes", 2) => {
            let (id, port) = (&call.shared.run_id, address.port());
            let bus = u32::from(port) + 10_000;
            reply.verbatim(&format!(
                "{id} {address}@{bus} myself,master - 0 0 1 connected 0-{}\n",
                SLOTS - 1
            ));
        }
        _ => return Err(CommandError::unknown_subcommand("CLUSTER", args.get(1))),
    }
    Ok(())
}

fn info() -> String {
    format!(
        "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\n\
         cluster_slots_ok:{SLOTS}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n\
         cluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\n\
         cluster_my_epoch:1\r\n"
    )
}

fn slots(reply: &mut Reply, id: &[u8], address: SocketAddr) {
    reply.array(1);
    reply.array(3);
    reply.int(0);
    reply.int(i64::from(SLOTS) - 1);
    reply.array(4);
    reply.bulk(address.ip().to_string().as_bytes());
    reply.int(address.port().into());
    reply.bulk(id);
    reply.array(0);
}

fn shards(reply: &mut Reply, id: &[u8], address: SocketAddr) {
    let ip = address.ip().to_string();
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    reply.array(2);
    reply.int(0);
    reply.int(i64::from(SLOTS) - 1);
    reply.bulk(b"nodes");
    reply.array(1);
    reply.map(7);
    let texts = [
        ("id", id),
        ("ip", ip.as_bytes()),
        ("endpoint", ip.as_bytes()),
    ];
    for (name, text) in texts
        .into_iter()
        .chain([("role", &b"master"[..]), ("health", b"online")])
    {
        reply.bulk(name.as_bytes());
        reply.bulk(text);
    }
    reply.bulk(b"port");
    reply.int(address.port().into());
    reply.bulk(b"replication-offset");
    reply.int(0);
}
