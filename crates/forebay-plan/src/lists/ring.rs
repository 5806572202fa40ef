//! Makes a first layout from nothing, by the walk of Dynamo and Voldemort.
//!
//! Nodes have tokens on a ring, and the list of a place is that of the next distinct nodes (Spock,
//! 3.1.2).
//!
//! Tokens are not hashed but set, so that loads are even. Those of a zone are as far apart as their
//! weights require, and zones alternate. A class goes from one token to the next.

use super::board::{Board, Section};
use super::line::Extent;
use super::shares::Shares;

/// A node's token: the class that it heads, and the width of that.
struct Token {
    node: u32,
    width: f64,
}

/// Returns the classes of a ring with this many tokens for each node, in the order of the line.
pub(super) fn sections(extent: &Extent, shares: &Shares, layers: usize) -> Vec<Section> {
    let tokens = tokens(shares, layers);
    let replicas = shares.prefixes.len();
    let mut sections: Vec<Section> = Vec::with_capacity(tokens.len());
    let mut sum = 0.0;
    for (place, token) in tokens.iter().enumerate() {
        let start = extent.nearest(sum);
        sum += token.width;
        let end = if place + 1 == tokens.len() {
            extent.places()
        } else {
            extent.nearest(sum)
        };
        if end > start {
            let list = walk(&tokens, place, shares, replicas);
            sections.push(Section { start, list });
        }
    }
    Board::join(&mut sections);
    sections
}

fn tokens(shares: &Shares, layers: usize) -> Vec<Token> {
    let mut members = vec![Vec::new(); shares.sizes.len()];
    for (node, &zone) in shares.zones.iter().enumerate() {
        members[zone].push(node);
    }
    let mut tokens = Vec::new();
    for layer in 0..layers {
        let mut placed = Vec::new();
        for (zone, nodes) in members.iter().enumerate() {
            let total: f64 = nodes.iter().map(|&node| shares.prefixes[0][node]).sum();
            let stride = stride(nodes.len(), layer);
            let mut before = 0.0;
            for place in 0..nodes.len() {
                // Each layer has another order of the nodes, so that they share data with others.
                let node = nodes[(place * stride + layer * zone) % nodes.len()];
                let share = shares.prefixes[0][node];
                placed.push(((before + share / 2.0) / total, zone, node));
                before += share;
            }
        }
        placed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        tokens.extend(placed.into_iter().map(|(_, _, node)| Token {
            node: node as u32,
            width: shares.prefixes[0][node] / layers as f64,
        }));
    }
    tokens
}

/// Returns a stride that visits all of `count` nodes, different for each layer if there are so
/// many.
fn stride(count: usize, layer: usize) -> usize {
    if layer == 0 || count < 3 {
        return 1;
    }
    let wanted = (count as f64 * 0.618 / layer as f64) as usize;
    let fits = |stride: &usize| greatest_divisor(*stride, count) == 1;
    (wanted.max(2)..count).find(fits).unwrap_or(1)
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        greatest_divisor(b, a % b)
    }
}

/// Walks from a token on: each entry is the first node that the rule of zones allows.
fn walk(tokens: &[Token], from: usize, shares: &Shares, replicas: usize) -> Vec<u32> {
    let mut list = vec![tokens[from].node];
    while list.len() < replicas {
        let next = (1..tokens.len())
            .map(|step| tokens[(from + step) % tokens.len()].node)
            .find(|&node| shares.may_follow(&list, node));
        let Some(node) = next else { break };
        list.push(node);
    }
    list
}
