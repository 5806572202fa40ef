//! cdb by tinycdb (Debian's libcdb), the constant database in C, mapped. Its writer streams:
//! records as they come, then the hash tables. Limit of the format: 4 GiB.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Result, bail};

use super::{Session, Stages, Store, create};
use crate::dataset::Dataset;

/// `struct cdb` of cdb.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    fd: c_int,
    file_bytes: c_uint,
    data_end: c_uint,
    memory: *const u8,
    value_at: c_uint,
    value_bytes: c_uint,
    key_at: c_uint,
    key_bytes: c_uint,
}

/// `struct cdb_make` of cdb.h.
#[repr(C)]
struct Maker {
    fd: c_int,
    position: c_uint,
    records: c_uint,
    buffer: [u8; 4096],
    buffer_at: *mut u8,
    lists: [*mut c_void; 256],
}

#[link(name = "cdb")]
unsafe extern "C" {
    fn cdb_init(cdb: *mut Handle, fd: c_int) -> c_int;
    fn cdb_free(cdb: *mut Handle);
    fn cdb_find(cdb: *mut Handle, key: *const u8, bytes: c_uint) -> c_int;
    fn cdb_get(cdb: *const Handle, bytes: c_uint, at: c_uint) -> *const u8;
    fn cdb_make_start(maker: *mut Maker, fd: c_int) -> c_int;
    fn cdb_make_add(
        maker: *mut Maker,
        key: *const u8,
        key_bytes: c_uint,
        value: *const u8,
        value_bytes: c_uint,
    ) -> c_int;
    fn cdb_make_finish(maker: *mut Maker) -> c_int;
}

pub fn build(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let file = create(&path.join("store.cdb"))?;
    // Safety: all zeroes is a valid Maker (null pointers), and cdb_make_start fills it.
    let mut maker: Box<Maker> = unsafe { Box::new(std::mem::zeroed()) };
    // Safety: the maker and the slices outlive the calls, which keep no pointer to the slices.
    unsafe {
        let mut status = cdb_make_start(&mut *maker, file.as_raw_fd());
        for (key, value) in data.iter() {
            status |= cdb_make_add(
                &mut *maker,
                key.as_ptr(),
                key.len() as c_uint,
                value.as_ptr(),
                value.len() as c_uint,
            );
        }
        status |= cdb_make_finish(&mut *maker);
        if status != 0 {
            bail!("cdb_make: {}", std::io::Error::last_os_error());
        }
    }
    stages.reached("written");
    Ok(file.sync_all()?)
}

pub struct Cdb {
    handle: Handle,
    _file: std::fs::File,
}

// Safety: the mapping is read only, and each session searches with a copy of the handle.
unsafe impl Sync for Cdb {}

impl Store for Cdb {
    type Session<'a> = Reader;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        let file = std::fs::File::open(path.join("store.cdb"))?;
        // Safety: cdb_init fills the handle; the file stays open beside it.
        unsafe {
            let mut handle: Handle = std::mem::zeroed();
            if cdb_init(&mut handle, file.as_raw_fd()) != 0 {
                bail!("cdb_init: {}", std::io::Error::last_os_error());
            }
            Ok(Self {
                handle,
                _file: file,
            })
        }
    }

    fn session(&self) -> Result<Reader> {
        Ok(Reader(self.handle))
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl Drop for Cdb {
    fn drop(&mut self) {
        // Safety: sessions hold copies, but do not outlive the measurement.
        unsafe { cdb_free(&mut self.handle) }
    }
}

pub struct Reader(Handle);

impl Session for Reader {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        // Safety: cdb_get answers a pointer into the mapping with that many bytes, or null.
        unsafe {
            if cdb_find(&mut self.0, key.as_ptr(), key.len() as c_uint) <= 0 {
                return None;
            }
            let value = cdb_get(&self.0, self.0.value_bytes, self.0.value_at);
            if value.is_null() {
                return None;
            }
            Some(visit(std::slice::from_raw_parts(
                value,
                self.0.value_bytes as usize,
            )))
        }
    }
}
