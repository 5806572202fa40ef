//! The arguments of a command, as ranges of the bytes that were read.

/// The range of an argument, from the start of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub len: usize,
}

/// A command's arguments, its name first.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Creates the arguments. REQUIRES: every span is within `bytes`.
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the argument at `index`, or an empty one if it is absent. The command table has
    /// checked the arity before.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans
            .get(index)
            .map_or(&[], |span| &self.bytes[span.start..span.start + span.len])
    }

    /// Returns the arguments from `index` on.
    pub fn skip(&self, index: usize) -> Args<'a> {
        Args {
            bytes: self.bytes,
            spans: self.spans.get(index..).unwrap_or_default(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans
            .iter()
            .map(move |span| &bytes[span.start..span.start + span.len])
    }

    /// Returns whether the argument at `index` is this word in any case.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    pub fn to_owned(&self) -> OwnedArgs {
        let mut owned = OwnedArgs {
            bytes: Vec::with_capacity(self.byte_len()),
            spans: Vec::with_capacity(self.len()),
        };
        self.iter().for_each(|arg| owned.push(arg));
        owned
    }

    /// Returns the bytes of all arguments.
    pub fn byte_len(&self) -> usize {
        self.spans.iter().map(|span| span.len).sum()
    }
}

/// Arguments that outlive the read buffer: of a queued command, or of one on another thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    pub fn borrow(&self) -> Args<'_> {
        Args {
            bytes: &self.bytes,
            spans: &self.spans,
        }
    }

    pub fn push(&mut self, arg: &[u8]) {
        self.spans.push(Span {
            start: self.bytes.len(),
            len: arg.len(),
        });
        self.bytes.extend_from_slice(arg);
    }

    /// Returns the approximate number of bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = A>>(args: I) -> Self {
        let mut owned = OwnedArgs::default();
        args.into_iter().for_each(|arg| owned.push(arg.as_ref()));
        owned
    }
}
