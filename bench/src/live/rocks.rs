//! RocksDB (Debian's librocksdb), tuned to 200 MB: three write buffers of 32 MB (vectors, sorted
//! when flushed, where nothing is read meanwhile). Blocks are uncompressed and have 4 KiB, the
//! block cache has 8 MB (the system's cache holds the files). Bloom filters have 10 bits a key
//! except for the last level; indexes and filters are in memory. Two background threads, two parts
//! of a compaction at once, batches of 1,000. The log, where there is one, is left to the system to
//! write.
//!
//! The options live as long as the process: a few, created once.

use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{BATCH_RECORDS, Engine, number};
use crate::peers::rocks_sys::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Universal,
    Leveled,
}

/// How increments are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counting {
    GetAndPut,
    MergeOperator,
}

pub struct Rocks {
    db: *mut Db,
    batch: *mut WriteBatch,
    pending: usize,
    write: *mut WriteOptions,
    read: *mut ReadOptions,
    counting: Counting,
    /// When background work was last seen.
    last_running: Cell<Instant>,
}

/// After so long without background work there is none to come.
const IDLE: Duration = Duration::from_millis(500);

/// RocksDB whose increments are operands of its merge operator for 64-bit counters.
pub struct Merging;

impl Merging {
    pub fn create(path: &Path) -> Result<Rocks> {
        Rocks::open(path, Style::Universal, false, Counting::MergeOperator, true)
    }
}

fn options(style: Style, counting: Counting) -> *mut Options {
    // Safety: plain setters on fresh objects, handed over to `options`.
    unsafe {
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_max_open_files(options, -1);
        rocksdb_options_set_max_background_jobs(options, 2);
        rocksdb_options_set_max_subcompactions(options, 2);
        rocksdb_options_set_write_buffer_size(options, 32 << 20);
        rocksdb_options_set_max_write_buffer_number(options, 3);
        rocksdb_options_set_optimize_filters_for_hits(options, 1);
        match style {
            Style::Leveled => {
                rocksdb_options_set_max_bytes_for_level_base(options, 256 << 20);
                rocksdb_options_set_target_file_size_base(options, 64 << 20);
            }
            Style::Universal => {
                rocksdb_options_set_compaction_style(options, UNIVERSAL);
                let universal = rocksdb_universal_compaction_options_create();
                rocksdb_options_set_universal_compaction_options(options, universal);
            }
        }
        if counting == Counting::MergeOperator {
            rocksdb_options_set_uint64add_merge_operator(options);
        }
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_block_size(table, 4096);
        rocksdb_block_based_options_set_format_version(table, 5);
        rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(8 << 20));
        rocksdb_block_based_options_set_filter_policy(
            table,
            rocksdb_filterpolicy_create_bloom_full(10.0),
        );
        rocksdb_options_set_block_based_table_factory(options, table);
        options
    }
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

impl Rocks {
    /// For upserts: write buffers are vectors. `log`: write-ahead log on.
    pub fn create(path: &Path, style: Style, log: bool) -> Result<Self> {
        Self::open(path, style, log, Counting::GetAndPut, true)
    }

    /// For counting by get and put: write buffers are skip lists, as they are read all the time.
    pub fn counting(path: &Path) -> Result<Self> {
        Self::open(path, Style::Universal, false, Counting::GetAndPut, false)
    }

    fn open(
        path: &Path,
        style: Style,
        log: bool,
        counting: Counting,
        vectors: bool,
    ) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let options = options(style, counting);
        // Safety: fresh objects; the name outlives the call.
        unsafe {
            if vectors {
                rocksdb_options_set_memtable_vector_rep(options);
                rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
            }
            let db = checked(|e| rocksdb_open(options, name.as_ptr(), e))?;
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_disable_WAL(write, i32::from(!log));
            Ok(Self {
                db,
                batch: rocksdb_writebatch_create(),
                pending: 0,
                write,
                read: rocksdb_readoptions_create(),
                counting,
                last_running: Cell::new(Instant::now()),
            })
        }
    }

    fn gathered(&mut self) -> Result<()> {
        self.pending += 1;
        if self.pending == BATCH_RECORDS {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<()> {
        self.pending = 0;
        // Safety: the database and the batch are open.
        unsafe {
            checked(|e| rocksdb_write(self.db, self.write, self.batch, e))?;
            rocksdb_writebatch_clear(self.batch);
        }
        Ok(())
    }

    fn property(&self, name: &std::ffi::CStr) -> u64 {
        let mut value = 0;
        // Safety: the name ends in zero, the answer goes to a local.
        unsafe { rocksdb_property_int(self.db, name.as_ptr(), &mut value) };
        value
    }

    fn find(&self, key: u64) -> Result<Option<u64>> {
        let key = key.to_be_bytes();
        // Safety: the key outlives the call, the slice is destroyed once it was read.
        unsafe {
            let found = checked(|e| rocksdb_get_pinned(self.db, self.read, key.as_ptr(), 8, e))?;
            if found.is_null() {
                return Ok(None);
            }
            let mut bytes = 0;
            let value = rocksdb_pinnableslice_value(found, &mut bytes);
            let value = number(std::slice::from_raw_parts(value, bytes));
            rocksdb_pinnableslice_destroy(found);
            value.map(Some)
        }
    }
}

impl Engine for Rocks {
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let (key, value) = (key.to_be_bytes(), value.to_le_bytes());
        // Safety: the batch copies what it is given.
        unsafe { rocksdb_writebatch_put(self.batch, key.as_ptr(), 8, value.as_ptr(), 8) };
        self.gathered()
    }

    fn increment(&mut self, key: u64) -> Result<()> {
        let wire = key.to_be_bytes();
        match self.counting {
            Counting::MergeOperator => {
                let one = 1u64.to_le_bytes();
                // Safety: the batch copies what it is given.
                unsafe { rocksdb_writebatch_merge(self.batch, wire.as_ptr(), 8, one.as_ptr(), 8) };
                self.gathered()
            }
            Counting::GetAndPut => {
                let value = (self.find(key)?.unwrap_or(0) + 1).to_le_bytes();
                // Safety: the call copies what it is given.
                unsafe {
                    checked(|e| {
                        rocksdb_put(self.db, self.write, wire.as_ptr(), 8, value.as_ptr(), 8, e)
                    })
                }
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.write_batch()?;
        // Safety: the database is open; these options wait.
        unsafe { checked(|e| rocksdb_flush(self.db, rocksdb_flushoptions_create(), e)) }
    }

    fn is_busy(&self) -> bool {
        let running = [
            c"rocksdb.num-running-compactions",
            c"rocksdb.num-running-flushes",
            c"rocksdb.mem-table-flush-pending",
        ];
        if running.into_iter().any(|name| self.property(name) > 0) {
            self.last_running.set(Instant::now());
            return true;
        }
        // It may say so for good, with nothing that it would do.
        let pending = self.property(c"rocksdb.compaction-pending") > 0;
        pending && self.last_running.get().elapsed() < IDLE
    }

    fn optimize(&mut self) -> Result<()> {
        // Safety: the whole range; the database is open.
        unsafe {
            let compact = rocksdb_compactoptions_create();
            rocksdb_compact_range_opt(self.db, compact, null(), 0, null(), 0);
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        // Safety: keys and values are read before the iterator moves on.
        unsafe {
            let options = rocksdb_readoptions_create();
            rocksdb_readoptions_set_fill_cache(options, 0);
            rocksdb_readoptions_set_readahead_size(options, 2 << 20);
            let iterator = rocksdb_create_iterator(self.db, options);
            rocksdb_iter_seek_to_first(iterator);
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = rocksdb_iter_key(iterator, &mut key_bytes);
                let value = rocksdb_iter_value(iterator, &mut value_bytes);
                let key = std::slice::from_raw_parts(key, key_bytes);
                let value = std::slice::from_raw_parts(value, value_bytes);
                if !visit(number(key)?.swap_bytes(), number(value)?) {
                    break;
                }
                rocksdb_iter_next(iterator);
            }
            checked(|e| rocksdb_iter_get_error(iterator, e))?;
            rocksdb_iter_destroy(iterator);
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        self.find(key)
    }
}
