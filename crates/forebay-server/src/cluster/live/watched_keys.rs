//! Encodes watched keys for other nodes.
//!
//! They precede a MULTI within the frame, and have no reply:
//!
//! ```text
//! fb.watched KEY VERSION [KEY VERSION ...]
//! ```

use super::super::frame::command;
use crate::command::{CommandError, Watches};
use crate::resp::{OwnedArgs, Parser, RequestLimits};

const WATCHED: &str = "fb.watched";

/// Encodes watched keys for a frame. Each key is followed by its version.
fn framed_watches(versions: &OwnedArgs) -> Vec<u8> {
    let versions = versions.borrow();
    command(std::iter::once(WATCHED.as_bytes()).chain(versions.iter()))
}

/// Encodes a MULTI for a frame, with its watched keys. Returns it with the number of its replies.
pub fn framed_multi(commands: &[(usize, OwnedArgs)], watches: &Watches) -> (Vec<u8>, usize) {
    let mut framed = match watches.is_empty() {
        true => Vec::new(),
        false => framed_watches(&watches.versions()),
    };
    let word = |word: &'static [u8]| command(std::iter::once(word));
    framed.extend(word(b"MULTI"));
    for (_, args) in commands {
        framed.extend(command(args.borrow().iter()));
    }
    framed.extend(word(b"EXEC"));
    (framed, commands.len() + 2)
}

/// Parses the watched keys of a frame and returns them with the commands after them. `None` if
/// there are none.
pub fn parse(commands: &[u8]) -> Option<Result<(Watches, &[u8]), CommandError>> {
    let limits = RequestLimits {
        bulk_bytes: commands.len(),
        arguments: commands.len(),
        command_bytes: commands.len(),
    };
    let mut parser = Parser::default();
    let len = parser.advance(commands, &limits).ok()??;
    let (its, behind) = commands.split_at(len);
    let args = parser.args(its);
    let watches = || Watches::of_versions(&args.skip(1));
    args.is(0, WATCHED)
        .then(|| watches().map(|watches| (watches, behind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_keys_are_read_as_they_are_written() {
        let version = "0".repeat(32);
        let words: [&str; 4] = ["t:a", &version, "u:b\r\n", &version];
        let versions: OwnedArgs = words.iter().collect();
        let multi = command([&b"MULTI"[..]].into_iter());
        let sent = [framed_watches(&versions), multi.clone()].concat();
        let (watches, behind) = parse(&sent).unwrap().unwrap();
        assert_eq!(watches.versions(), versions);
        assert_eq!(behind, multi);
        assert!(parse(&multi).is_none() && parse(b"").is_none());
        for words in [&["t:a"][..], &["t:a", "x"], &["a", &version]] {
            let sent = framed_watches(&words.iter().collect());
            assert!(parse(&sent).unwrap().is_err(), "{words:?}");
        }
    }
}
