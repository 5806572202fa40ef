//! RocksDB (Debian's librocksdb), its three table formats, read only, mapped, nothing compressed.
//! No checksums are verified while reading, values are pinned instead of copied, batches use its
//! batched MultiGet.
//!
//! - block: 4 KiB blocks with a hash index in each, a full Bloom filter of 10 bits a key. Index and
//!   filter are in memory; there is no block cache (mapped blocks are used in place). Built by the
//!   SST file writer, two files by two threads over sorted keys, then ingested by moving.
//! - plain: hash index over whole keys (0.75), Bloom filter of 10 bits a key.
//! - cuckoo: hash ratio 0.9. It and the plain table take no ingested files: sorted batches without
//!   a log into vector memtables, flushed, then compacted into one file.
//!
//! The options live as long as the process: a few, created once.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Result, bail};

use super::rocks_sys::*;
use super::{Session, Stages, Store};
use crate::dataset::Dataset;
use crate::measure::BATCH;

/// A table format: what sets it in the options.
pub trait Format: Sync {
    fn set(options: *mut Options, key_bytes: usize);
}

pub struct BlockFormat;
pub struct PlainFormat;
pub struct CuckooFormat;

pub type Block = Rocks<BlockFormat>;
pub type Plain = Rocks<PlainFormat>;
pub type Cuckoo = Rocks<CuckooFormat>;

impl Format for BlockFormat {
    fn set(options: *mut Options, _key_bytes: usize) {
        // Safety: fresh option objects, handed over to `options`.
        unsafe {
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_size(table, 4096);
            rocksdb_block_based_options_set_format_version(table, 5);
            rocksdb_block_based_options_set_no_block_cache(table, 1);
            rocksdb_block_based_options_set_filter_policy(
                table,
                rocksdb_filterpolicy_create_bloom_full(10.0),
            );
            rocksdb_block_based_options_set_index_type(table, 0);
            rocksdb_block_based_options_set_data_block_index_type(table, 1);
            rocksdb_block_based_options_set_data_block_hash_ratio(table, 0.75);
            rocksdb_options_set_block_based_table_factory(options, table);
        }
    }
}

impl Format for PlainFormat {
    fn set(options: *mut Options, key_bytes: usize) {
        // Safety: as above.
        unsafe {
            let prefix = rocksdb_slicetransform_create_fixed_prefix(key_bytes);
            rocksdb_options_set_prefix_extractor(options, prefix);
            rocksdb_options_set_plain_table_factory(options, key_bytes as u32, 10, 0.75, 16);
        }
    }
}

impl Format for CuckooFormat {
    fn set(options: *mut Options, _key_bytes: usize) {
        // Safety: as above.
        unsafe {
            let table = rocksdb_cuckoo_options_create();
            rocksdb_cuckoo_options_set_hash_ratio(table, 0.9);
            rocksdb_options_set_cuckoo_table_factory(options, table);
        }
    }
}

fn options<F: Format>(key_bytes: usize) -> *mut Options {
    // Safety: plain setters on a fresh object.
    unsafe {
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_allow_mmap_reads(options, 1);
        rocksdb_options_set_max_open_files(options, -1);
        rocksdb_options_set_disable_auto_compactions(options, 1);
        rocksdb_options_set_target_file_size_base(options, 1 << 40);
        rocksdb_options_set_max_background_jobs(options, 2);
        F::set(options, key_bytes);
        options
    }
}

fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Runs a call of the C interface that reports failure through its last argument.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error: *mut c_char = null_mut();
    let answer = call(&mut error);
    if !error.is_null() {
        // Safety: RocksDB sets it to a string that ends in zero.
        let text = unsafe { std::ffi::CStr::from_ptr(error) };
        bail!("rocksdb: {}", text.to_string_lossy());
    }
    Ok(answer)
}

pub fn build_block(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let order = data.sorted_by_key();
    stages.reached("sorted");
    let halves = order.split_at(order.len() / 2);
    let files = [path.join("first.sst"), path.join("second.sst")];
    let (first, second) = rayon::join(
        || write_sst(data, halves.0, &files[0]),
        || write_sst(data, halves.1, &files[1]),
    );
    first.and(second)?;
    stages.reached("written");
    let names = [c_path(&files[0])?, c_path(&files[1])?];
    let list = names.each_ref().map(|name| name.as_ptr());
    let database = c_path(path)?;
    // Safety: strings and lists outlive the calls.
    unsafe {
        let db = checked(|e| {
            rocksdb_open(
                options::<BlockFormat>(data.shape.key_bytes),
                database.as_ptr(),
                e,
            )
        })?;
        let ingest = rocksdb_ingestexternalfileoptions_create();
        rocksdb_ingestexternalfileoptions_set_move_files(ingest, 1);
        let used = usize::from(!halves.0.is_empty()) + usize::from(!halves.1.is_empty());
        let list = &list[2 - used..];
        checked(|e| rocksdb_ingest_external_file(db, list.as_ptr(), used, ingest, e))?;
        rocksdb_close(db);
    }
    Ok(())
}

fn write_sst(data: &Dataset, order: &[u32], file: &Path) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let name = c_path(file)?;
    // Safety: the writer is used by this thread alone; slices outlive the calls.
    unsafe {
        let options = options::<BlockFormat>(data.shape.key_bytes);
        let writer = rocksdb_sstfilewriter_create(rocksdb_envoptions_create(), options);
        checked(|e| rocksdb_sstfilewriter_open(writer, name.as_ptr(), e))?;
        for (_, key, value) in data.gather(order, |&number| number) {
            checked(|e| {
                rocksdb_sstfilewriter_put(
                    writer,
                    key.as_ptr(),
                    key.len(),
                    value.as_ptr(),
                    value.len(),
                    e,
                );
            })?;
        }
        // Finishing also syncs the file.
        checked(|e| rocksdb_sstfilewriter_finish(writer, e))?;
        rocksdb_sstfilewriter_destroy(writer);
    }
    Ok(())
}

pub fn build_plain(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    build_by_compaction::<PlainFormat>(data, path, stages)
}

pub fn build_cuckoo(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    build_by_compaction::<CuckooFormat>(data, path, stages)
}

fn build_by_compaction<F: Format>(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let order = data.sorted_by_key();
    stages.reached("sorted");
    let database = c_path(path)?;
    // Safety: as above.
    unsafe {
        let options = options::<F>(data.shape.key_bytes);
        rocksdb_options_set_memtable_vector_rep(options);
        rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
        rocksdb_options_set_write_buffer_size(options, 256 << 20);
        rocksdb_options_set_level0_slowdown_writes_trigger(options, 1000);
        rocksdb_options_set_level0_stop_writes_trigger(options, 1000);
        let db = checked(|e| rocksdb_open(options, database.as_ptr(), e))?;
        put_all(db, data, &order)?;
        stages.reached("written");
        let compact = rocksdb_compactoptions_create();
        rocksdb_compactoptions_set_bottommost_level_compaction(compact, FORCE);
        rocksdb_compact_range_opt(db, compact, std::ptr::null(), 0, std::ptr::null(), 0);
        rocksdb_close(db);
    }
    Ok(())
}

/// Puts the records in batches, without a log, and flushes the last of them.
unsafe fn put_all(db: *mut Db, data: &Dataset, order: &[u32]) -> Result<()> {
    // Safety: the caller's database is open; slices outlive the calls.
    unsafe {
        let write = rocksdb_writeoptions_create();
        rocksdb_writeoptions_disable_WAL(write, 1);
        let batch = rocksdb_writebatch_create();
        for some in order.chunks(1000) {
            rocksdb_writebatch_clear(batch);
            for &number in some {
                let (key, value) = data.record(number as usize);
                rocksdb_writebatch_put(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            checked(|e| rocksdb_write(db, write, batch, e))?;
        }
        checked(|e| rocksdb_flush(db, rocksdb_flushoptions_create(), e))
    }
}

pub struct Rocks<F> {
    db: *mut Db,
    family: *mut ColumnFamily,
    read: *mut ReadOptions,
    format: std::marker::PhantomData<F>,
}

// Safety: RocksDB's database and options may be used by many threads at once.
unsafe impl<F: Sync> Sync for Rocks<F> {}

impl<F: Format> Store for Rocks<F> {
    type Session<'a>
        = &'a Rocks<F>
    where
        F: 'a;

    fn open(path: &Path, data: &Path) -> Result<Self> {
        let options = options::<F>(crate::dataset::Shape::read(data)?.key_bytes);
        let database = c_path(path)?;
        let mut family: *mut ColumnFamily = null_mut();
        // Safety: one column family, named and given options once.
        unsafe {
            let names = [c"default".as_ptr()];
            let each: [*const Options; 1] = [options];
            let db = checked(|e| {
                rocksdb_open_for_read_only_column_families(
                    options,
                    database.as_ptr(),
                    1,
                    names.as_ptr(),
                    each.as_ptr(),
                    &mut family,
                    0,
                    e,
                )
            })?;
            let read = rocksdb_readoptions_create();
            rocksdb_readoptions_set_verify_checksums(read, 0);
            Ok(Self {
                db,
                family,
                read,
                format: std::marker::PhantomData,
            })
        }
    }

    fn session(&self) -> Result<&Rocks<F>> {
        Ok(self)
    }

    fn index_bytes(&self) -> Option<u64> {
        let mut bytes = 0;
        // Safety: the name ends in zero, the answer goes to a local.
        let status = unsafe {
            rocksdb_property_int(
                self.db,
                c"rocksdb.estimate-table-readers-mem".as_ptr(),
                &mut bytes,
            )
        };
        (status == 0).then_some(bytes)
    }
}

/// Hands the value to `visit` and lets go of it.
unsafe fn visit_pinned<R>(pinned: *mut Pinned, visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if pinned.is_null() {
        return None;
    }
    // Safety: the slice stays where it is until destroyed.
    unsafe {
        let mut bytes = 0;
        let value = rocksdb_pinnableslice_value(pinned, &mut bytes);
        let answer = visit(std::slice::from_raw_parts(value, bytes));
        rocksdb_pinnableslice_destroy(pinned);
        Some(answer)
    }
}

impl<F: Format> Session for &Rocks<F> {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut error: *mut c_char = null_mut();
        // Safety: the key outlives the call.
        unsafe {
            let pinned =
                rocksdb_get_pinned(self.db, self.read, key.as_ptr(), key.len(), &mut error);
            visit_pinned(pinned, visit)
        }
    }

    fn get_batch(&mut self, keys: &[&[u8]; BATCH], visit: &mut impl FnMut(&[u8])) {
        let list = keys.map(<[u8]>::as_ptr);
        let bytes = keys.map(<[u8]>::len);
        let mut values: [*mut Pinned; BATCH] = [null_mut(); BATCH];
        let mut errors: [*mut c_char; BATCH] = [null_mut(); BATCH];
        // Safety: all arrays have BATCH places and outlive the call.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.db,
                self.read,
                self.family,
                BATCH,
                list.as_ptr(),
                bytes.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
            for pinned in values {
                visit_pinned(pinned, &mut *visit);
            }
        }
    }
}
