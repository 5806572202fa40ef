//! The part of RocksDB's C interface (rocksdb/c.h of Debian's librocksdb 7.8) that the contenders
//! use.

use std::ffi::{c_char, c_double, c_int, c_uchar};

macro_rules! opaque {
    ($($name:ident),*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}

opaque!(
    Db,
    Options,
    BlockOptions,
    CuckooOptions,
    FilterPolicy,
    SliceTransform,
    ReadOptions,
    WriteOptions,
    FlushOptions,
    EnvOptions,
    IngestOptions,
    CompactOptions,
    UniversalOptions,
    Cache,
    Iter,
    SstWriter,
    WriteBatch,
    Pinned,
    ColumnFamily
);

/// An `enum` value of the option `compaction_style`.
pub const UNIVERSAL: c_int = 1;
/// An `enum` value of the options `bottommost_level_compaction`: even files already at the bottom.
pub const FORCE: c_uchar = 2;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_options_create() -> *mut Options;
    pub fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub fn rocksdb_options_set_allow_mmap_reads(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_max_open_files(options: *mut Options, files: c_int);
    pub fn rocksdb_options_set_disable_auto_compactions(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub fn rocksdb_options_set_target_file_size_base(options: *mut Options, bytes: u64);
    pub fn rocksdb_options_set_max_background_jobs(options: *mut Options, jobs: c_int);
    pub fn rocksdb_options_set_memtable_vector_rep(options: *mut Options);
    pub fn rocksdb_options_set_allow_concurrent_memtable_write(
        options: *mut Options,
        value: c_uchar,
    );
    pub fn rocksdb_options_set_level0_slowdown_writes_trigger(options: *mut Options, files: c_int);
    pub fn rocksdb_options_set_level0_stop_writes_trigger(options: *mut Options, files: c_int);
    pub fn rocksdb_options_set_max_subcompactions(options: *mut Options, count: u32);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, count: c_int);
    pub fn rocksdb_options_set_optimize_filters_for_hits(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_max_bytes_for_level_base(options: *mut Options, bytes: u64);
    pub fn rocksdb_options_set_compaction_style(options: *mut Options, style: c_int);
    pub fn rocksdb_options_set_universal_compaction_options(
        options: *mut Options,
        universal: *mut UniversalOptions,
    );
    pub fn rocksdb_universal_compaction_options_create() -> *mut UniversalOptions;
    pub fn rocksdb_options_set_uint64add_merge_operator(options: *mut Options);
    pub fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub fn rocksdb_block_based_options_set_block_cache(
        options: *mut BlockOptions,
        cache: *mut Cache,
    );
    pub fn rocksdb_options_set_prefix_extractor(
        options: *mut Options,
        transform: *mut SliceTransform,
    );
    pub fn rocksdb_options_set_block_based_table_factory(
        options: *mut Options,
        table: *mut BlockOptions,
    );
    pub fn rocksdb_options_set_cuckoo_table_factory(
        options: *mut Options,
        table: *mut CuckooOptions,
    );
    pub fn rocksdb_options_set_plain_table_factory(
        options: *mut Options,
        key_bytes: u32,
        bloom_bits_per_key: c_int,
        hash_table_ratio: c_double,
        index_sparseness: usize,
    );
    pub fn rocksdb_slicetransform_create_fixed_prefix(bytes: usize) -> *mut SliceTransform;
    pub fn rocksdb_block_based_options_create() -> *mut BlockOptions;
    pub fn rocksdb_block_based_options_set_block_size(options: *mut BlockOptions, bytes: usize);
    pub fn rocksdb_block_based_options_set_format_version(
        options: *mut BlockOptions,
        version: c_int,
    );
    pub fn rocksdb_block_based_options_set_no_block_cache(
        options: *mut BlockOptions,
        value: c_uchar,
    );
    pub fn rocksdb_block_based_options_set_filter_policy(
        options: *mut BlockOptions,
        policy: *mut FilterPolicy,
    );
    pub fn rocksdb_block_based_options_set_index_type(options: *mut BlockOptions, kind: c_int);
    pub fn rocksdb_block_based_options_set_data_block_index_type(
        options: *mut BlockOptions,
        kind: c_int,
    );
    pub fn rocksdb_block_based_options_set_data_block_hash_ratio(
        options: *mut BlockOptions,
        ratio: c_double,
    );
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> *mut FilterPolicy;
    pub fn rocksdb_cuckoo_options_create() -> *mut CuckooOptions;
    pub fn rocksdb_cuckoo_options_set_hash_ratio(options: *mut CuckooOptions, ratio: c_double);

    pub fn rocksdb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub fn rocksdb_open_for_read_only_column_families(
        options: *const Options,
        name: *const c_char,
        families: c_int,
        names: *const *const c_char,
        family_options: *const *const Options,
        handles: *mut *mut ColumnFamily,
        error_if_wal_file_exists: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub fn rocksdb_close(db: *mut Db);
    pub fn rocksdb_property_int(db: *mut Db, name: *const c_char, out: *mut u64) -> c_int;

    pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub fn rocksdb_readoptions_set_verify_checksums(options: *mut ReadOptions, value: c_uchar);
    pub fn rocksdb_readoptions_set_fill_cache(options: *mut ReadOptions, value: c_uchar);
    pub fn rocksdb_readoptions_set_readahead_size(options: *mut ReadOptions, bytes: usize);
    pub fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iter;
    pub fn rocksdb_iter_destroy(iterator: *mut Iter);
    pub fn rocksdb_iter_valid(iterator: *const Iter) -> c_uchar;
    pub fn rocksdb_iter_seek_to_first(iterator: *mut Iter);
    pub fn rocksdb_iter_next(iterator: *mut Iter);
    pub fn rocksdb_iter_key(iterator: *const Iter, bytes: *mut usize) -> *const u8;
    pub fn rocksdb_iter_value(iterator: *const Iter, bytes: *mut usize) -> *const u8;
    pub fn rocksdb_iter_get_error(iterator: *const Iter, error: *mut *mut c_char);
    pub fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub fn rocksdb_batched_multi_get_cf(
        db: *mut Db,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        keys: usize,
        key_list: *const *const u8,
        key_bytes: *const usize,
        values: *mut *mut Pinned,
        errors: *mut *mut c_char,
        sorted_input: bool,
    );
    pub fn rocksdb_pinnableslice_value(pinned: *const Pinned, bytes: *mut usize) -> *const u8;
    pub fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);

    pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub fn rocksdb_writeoptions_disable_WAL(options: *mut WriteOptions, value: c_int);
    pub fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub fn rocksdb_writebatch_clear(batch: *mut WriteBatch);
    pub fn rocksdb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    );
    pub fn rocksdb_writebatch_merge(
        batch: *mut WriteBatch,
        key: *const u8,
        key_bytes: usize,
        operand: *const u8,
        operand_bytes: usize,
    );
    pub fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_write(
        db: *mut Db,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub fn rocksdb_flush(db: *mut Db, options: *const FlushOptions, error: *mut *mut c_char);
    pub fn rocksdb_compactoptions_create() -> *mut CompactOptions;
    pub fn rocksdb_compactoptions_set_bottommost_level_compaction(
        options: *mut CompactOptions,
        value: c_uchar,
    );
    pub fn rocksdb_compact_range_opt(
        db: *mut Db,
        options: *mut CompactOptions,
        start: *const u8,
        start_bytes: usize,
        limit: *const u8,
        limit_bytes: usize,
    );

    pub fn rocksdb_envoptions_create() -> *mut EnvOptions;
    pub fn rocksdb_sstfilewriter_create(
        env: *const EnvOptions,
        options: *const Options,
    ) -> *mut SstWriter;
    pub fn rocksdb_sstfilewriter_open(
        writer: *mut SstWriter,
        name: *const c_char,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_sstfilewriter_put(
        writer: *mut SstWriter,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_sstfilewriter_finish(writer: *mut SstWriter, error: *mut *mut c_char);
    pub fn rocksdb_sstfilewriter_destroy(writer: *mut SstWriter);
    pub fn rocksdb_ingestexternalfileoptions_create() -> *mut IngestOptions;
    pub fn rocksdb_ingestexternalfileoptions_set_move_files(
        options: *mut IngestOptions,
        value: c_uchar,
    );
    pub fn rocksdb_ingest_external_file(
        db: *mut Db,
        files: *const *const c_char,
        count: usize,
        options: *const IngestOptions,
        error: *mut *mut c_char,
    );
}
