//! Opens stores for writing runs. A store in object storage reports the progress of its uploads.

use std::sync::{Arc, Mutex};

use forebay_engine::Store;
use forebay_load::progress::{Progress, Unit};
use forebay_objects::{Patience, Uploaded};

use crate::cluster_handle::is_no_store;
use crate::commands::creating::StoreCreation;
use crate::context::Context;
use crate::global::DEFAULT_STORE;
use crate::printing::human;

impl Context {
    /// Opens the store, and creates it if it does not exist and `creating` allows it. Returns
    /// whether it was created.
    pub fn open_for_push(
        &self,
        drawing: &Arc<Box<dyn Progress + Send>>,
        creating: StoreCreation,
    ) -> anyhow::Result<(Store, bool)> {
        match self.open_to_merge(drawing) {
            Err(error) if is_no_store(&error) && self.may_create(creating) => {}
            opened => return Ok((opened?, false)),
        }
        let store = match self.is_remote() {
            true => self.open_drawing(drawing, true)?,
            false => self.open_or_create_store()?,
        };
        drawing.message(&self.store_made());
        Ok((store, true))
    }

    /// Opens the store in a directory, for a live table; otherwise as [`Context::open_for_push`].
    pub fn open_for_live(&self, creating: StoreCreation) -> anyhow::Result<(Store, bool)> {
        let missing = self.is_store_missing()?;
        if missing && !self.may_create(creating) {
            self.open_store()?;
        }
        let store = self.open_or_create_store()?;
        if missing {
            self.progress().message(&self.store_made());
        }
        Ok((store, missing))
    }

    /// Returns whether the directory that --store names has no store.
    pub fn is_store_missing(&self) -> anyhow::Result<bool> {
        match self.is_remote() {
            true => Ok(false),
            false => Ok(Store::is_missing(&*self.disk, &self.store_path()?)?),
        }
    }

    /// Fails if there is no store and `creating` does not allow creating one. Writes nothing.
    pub fn check_for_push(&self, creating: StoreCreation) -> anyhow::Result<()> {
        match self.may_create(creating) {
            true => Ok(()),
            false => self.open_store().map(drop),
        }
    }

    fn may_create(&self, creating: StoreCreation) -> bool {
        match creating {
            StoreCreation::Always => true,
            StoreCreation::Never => false,
            StoreCreation::Default => self.is_embedded() || self.store_name() == DEFAULT_STORE,
        }
    }

    /// Returns the message about a store that a push has created.
    pub fn store_made(&self) -> String {
        format!(
            "there was no store at {}: made a new one (push and create with --no-create refuse that)",
            self.store_name()
        )
    }

    /// Opens the store, which must exist, for writing runs. As for a push, it waits while the
    /// object store restarts.
    pub fn open_to_merge(&self, drawing: &Arc<Box<dyn Progress + Send>>) -> anyhow::Result<Store> {
        match self.is_remote() {
            true => self.open_drawing(drawing, false),
            false => self.open_store(),
        }
    }

    fn open_drawing(
        &self,
        drawing: &Arc<Box<dyn Progress + Send>>,
        create: bool,
    ) -> anyhow::Result<Store> {
        let (store, disk) = self.open_remote(Patience::Long, create)?;
        let (drawing, drawn) = (Arc::clone(drawing), Mutex::new(None));
        disk.report_to(Box::new(move |uploaded: Uploaded| {
            let Ok(mut drawn) = drawn.lock() else { return };
            let done = uploaded.sent_bytes + uploaded.found_bytes;
            let before = *drawn.get_or_insert_with(|| {
                drawing.stage("uploading", Some(uploaded.total_bytes), Unit::Bytes);
                if uploaded.found_bytes > 0 {
                    drawing.message(&format!(
                        "an earlier push has sent {} of it",
                        human::bytes(uploaded.found_bytes)
                    ));
                }
                0
            });
            drawing.advance(done.saturating_sub(before));
            *drawn = Some(done);
        }));
        Ok(store)
    }
}
