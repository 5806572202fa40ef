//! Keys as they are given on the command line: text, or the hex digits of any bytes.

use clap::Args;
use forebay_engine::{from_hex, to_hex, write_hex};
use forebay_run::row::write_json_bytes;

/// How keys are given.
#[derive(Debug, Clone, Copy, Args)]
pub struct KeyForm {
    /// Keys are given, and printed, as hex digits: 00ff, 0x00ff. Hyphens are ignored, so that UUIDs
    /// can be given as they are
    #[arg(long)]
    pub hex: bool,
}

impl KeyForm {
    /// Returns the bytes of a given key.
    pub fn parse(self, text: &str) -> anyhow::Result<Vec<u8>> {
        if !self.hex {
            return Ok(text.as_bytes().to_vec());
        }
        let digits = text.strip_prefix("0x").unwrap_or(text).replace('-', "");
        match from_hex(&digits) {
            Some(key) => Ok(key),
            None => wrong!(
                "'{text}' is no key in hex: give two digits a byte, as in 00ff, or leave --hex out"
            ),
        }
    }

    /// Appends a key for people.
    pub fn write(self, key: &[u8], out: &mut Vec<u8>) {
        match self.hex {
            true => write_hex(key, out),
            false => out.extend_from_slice(key),
        }
    }

    /// Appends a key as JSON.
    pub fn write_json(self, key: &[u8], out: &mut Vec<u8>) {
        match self.hex {
            true => write_json_bytes(to_hex(key).as_bytes(), out),
            false => write_json_bytes(key, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_with_and_without_a_prefix_and_dashes() {
        let hex = KeyForm { hex: true };
        for text in ["00ff2f", "0x00FF2f", "00-ff2f"] {
            assert_eq!(hex.parse(text).unwrap(), b"\x00\xff/", "{text}");
        }
        assert_eq!(hex.parse("").unwrap(), b"");
        for bad in ["0", "0g", "0x0", "x", "é", "00 ff"] {
            let problem = hex.parse(bad).unwrap_err().to_string();
            assert!(
                problem.contains(bad) && problem.contains("00ff"),
                "{problem}"
            );
        }
        assert_eq!(KeyForm { hex: false }.parse("00ff").unwrap(), b"00ff");
    }
}
