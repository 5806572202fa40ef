//! Reads and writes numbers and bytes, with checks.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// A reason why bytes are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    #[error("it ends in the middle")]
    Short,
    #[error("{0} bytes too many at its end")]
    Long(usize),
    #[error("{what} is {found}, and at most {most} is allowed")]
    TooMany {
        what: &'static str,
        found: u64,
        most: u64,
    },
    #[error("there is no {what} {found}")]
    Unknown { what: &'static str, found: u8 },
    #[error("the checksum differs")]
    Checksum,
}

/// A reader from the front of bytes; the parts that it returns share the memory.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub fn take(&mut self, len: usize) -> Result<Bytes, CodecError> {
        match len <= self.0.len() {
            true => Ok(self.0.split_to(len)),
            false => Err(CodecError::Short),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let bytes = self.take(N)?;
        bytes.as_ref().try_into().map_err(|_| CodecError::Short)
    }

    pub fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count, and limits it so that memory can be reserved for it.
    pub fn count(&mut self, what: &'static str, most: usize) -> Result<usize, CodecError> {
        let found = self.u32()?;
        match found as usize <= most {
            true => Ok(found as usize),
            false => Err(CodecError::TooMany {
                what,
                found: found.into(),
                most: most as u64,
            }),
        }
    }

    /// Reads bytes that follow their length.
    pub fn bytes(&mut self, what: &'static str, most: usize) -> Result<Bytes, CodecError> {
        let len = self.count(what, most)?;
        self.take(len)
    }

    pub fn end(self) -> Result<(), CodecError> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(CodecError::Long(more)),
        }
    }
}

/// Writes bytes in the form that [`Reader::bytes`] reads. REQUIRES: less than 4 GiB.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    debug_assert!(
        u32::try_from(bytes.len()).is_ok(),
        "{} bytes have no length",
        bytes.len()
    );
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}
