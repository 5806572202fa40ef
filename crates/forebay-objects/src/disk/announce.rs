//! After a change of a pointer, updates the document of all tables and notifies the nodes that it
//! names.

use bytes::Bytes;
use forebay_engine::{Pointer, TableName};

use super::Shared;
use crate::announcing::Announcing;
use crate::notify::notify_nodes;
use crate::tables_document::TABLES;

impl Shared {
    /// Updates the document. The pointer has changed whether this succeeds or not.
    pub fn announce(&self, table: &str, content: &Bytes) {
        let (Ok(table), Ok(pointer)) = (TableName::new(table), Pointer::parse(content)) else {
            return;
        };
        let announcing = Announcing {
            objects: &self.parts.objects,
            clock: &*self.parts.clock,
            random: &*self.parts.random,
        };
        match announcing.pointer(&table, &pointer) {
            Ok(document) => notify_nodes(&self.parts.objects, &document, None),
            Err(error) => self.parts.memory.notices.lock().push(format!(
                "the pointer of table {table} has moved, but {TABLES}, by which nodes see that at once, was not \
                 written: {error}. They find it by themselves, looking at one table after the other; the next \
                 swap or push of the table writes it again"
            )),
        }
    }
}
