//! Tests Parquet across a network: the same rows whether columns are fetched whole or in windows.

use std::io::Read;

use ::parquet::arrow::arrow_reader::ArrowReaderMetadata;
use ::parquet::basic::Compression;
use ::parquet::file::reader::ChunkReader;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use super::*;
use crate::sources::blob::Storage;
use crate::sources::parquet::ParquetFile;
use crate::sources::parquet::chunks::{Chunks, Tail};
use crate::sources::store::{Object, Store};

/// A file in memory that is read as if it were remote.
fn far(content: Vec<u8>) -> Blob {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let runtime = Arc::new(Store::far_runtime().unwrap());
    let path = object_store::path::Path::from("a.parquet");
    let size_bytes = content.len() as u64;
    let put = objects.put(&path, content.into());
    runtime.block_on(put).unwrap();
    let store = Arc::new(Store {
        objects,
        runtime,
        far: true,
        secret: None,
    });
    let (tag, modified) = (None, chrono::DateTime::UNIX_EPOCH);
    Blob {
        storage: Storage::Stored(Object {
            store,
            path,
            tag,
            modified,
        }),
        name: "a.parquet".into(),
        size_bytes,
    }
}

#[test]
fn columns_are_the_same_whole_and_in_windows() {
    let table = super::binary::batch(0, 5_000);
    let content = super::binary::parquet(&table, Compression::UNCOMPRESSED, 2_000);
    let blob = far(content.clone());
    let metadata = ArrowReaderMetadata::load(&Tail::of(&blob).unwrap(), Default::default());
    let metadata = metadata.unwrap().metadata().clone();
    let group = metadata.row_group(1);
    let leaves = || (0..group.num_columns()).filter(|leaf| leaf % 2 == 0);
    for whole_bytes in [0, u64::MAX] {
        let chunks = Chunks::open_by(&blob, group, leaves(), whole_bytes).unwrap();
        for leaf in leaves() {
            let chunk = chunks.take(leaf).unwrap();
            let (start, length) = group.column(leaf).byte_range();
            let expected = &content[start as usize..(start + length) as usize];
            let half = length as usize / 2;
            let second = chunk.get_bytes(start + half as u64, length as usize - half);
            assert_eq!(second.unwrap(), expected[half..]);
            assert_eq!(chunk.get_bytes(start, half).unwrap(), expected[..half]);
            let mut read = vec![0; half.min(1000)];
            let mut reader = chunk.get_read(start + 3).unwrap();
            reader.read_exact(&mut read[..half.min(1000) - 3]).unwrap();
            assert_eq!(read[..half.min(1000) - 3], expected[3..half.min(1000)]);
            assert!(chunk.get_bytes(start, 1 << 40).is_err());
        }
        assert!(chunks.take(1).is_err());
    }
}

#[test]
fn a_far_text_file_is_read_ahead_and_whole() {
    let content: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut read = Vec::new();
    let blob = far(content.clone());
    let mut reader = blob.reader(5..content.len() as u64);
    reader.read_to_end(&mut read).unwrap();
    assert!(read == content[5..]);
}

/// A column of 40 MB: fetched in windows, and read in pieces.
#[test]
fn a_large_page_is_read_in_pieces() {
    let lengths = [1 << 20; 40];
    let table = super::large_values::rows(&lengths, usize::MAX);
    let plain = super::large_values::packed()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false);
    let blob = far(super::large_values::parquet(&table, plain.build()));
    let file = ParquetFile::describe(&blob).unwrap();
    let group = &file.row_groups()[0];
    let mut rows = 0;
    let read = file.read::<SourceError>(&blob, group, &[0, 1], &mut |batch| {
        let expected = table.slice(rows, batch.num_rows());
        assert!(batch.columns() == expected.columns(), "row {rows}");
        rows += batch.num_rows();
        Ok(())
    });
    read.unwrap();
    assert_eq!(rows, lengths.len());
}
