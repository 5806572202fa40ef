//! Reads a batch table: single keys, many keys, ranges, a row's columns.
//!
//!     cargo run --example read -- STORE

use std::path::Path;
use std::sync::Arc;

use forebay::arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray};
use forebay::{Error, Order};

/// Reads the prices of a store, which are pushed first if there are none.
pub fn run(store: &Path) -> Result<(), Error> {
    let store = forebay::open_or_create(store)?;
    if !store.batch_tables()?.contains(&"prices".to_owned()) {
        push_some(&store)?;
    }
    let prices = store.batch("prices")?;

    if let Some(value) = prices.get("A1/2026-11-02")?
        && let Some(row) = value.as_row()
    {
        let article: &str = row.get("article")?;
        let price: f64 = row.get("price")?;
        let note: Option<&str> = row.get("note")?;
        println!("{article} costs {price} ({})", note.unwrap_or("no note"));
    }

    let found = prices.get_many(&["A1/2026-11-01", "A9/2026-11-01"])?;
    println!("{} of 2 are there", found.iter().flatten().count());

    for record in prices.range("A1/"..="A1/2026-11-02")?.rev() {
        let (key, value) = record?;
        println!("{}: {value:?}", String::from_utf8_lossy(&key));
    }
    println!("of A2: {}", prices.prefix("A2/")?.count());
    Ok(())
}

/// Returns four rows in Arrow arrays. For files, `source` would name the path.
fn push_some(store: &forebay::Store) -> Result<(), Error> {
    let article: ArrayRef = Arc::new(StringArray::from(vec!["A1", "A1", "A1", "A2"]));
    let days = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-01"];
    let day: ArrayRef = Arc::new(StringArray::from(days.to_vec()));
    let price: ArrayRef = Arc::new(Float64Array::from(vec![3.5, 3.25, 4.0, 7.0]));
    let note: ArrayRef = Arc::new(StringArray::from(vec![None, Some("new"), None, None]));
    let columns = [
        ("article", article),
        ("day", day),
        ("price", price),
        ("note", note),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let schema = batch.schema();
    let rows = RecordBatchIterator::new([Ok(batch)], schema);
    let push = store.push("prices").batches("four rows", rows);
    push.key("{article}/{day}").order(Order::Ordered).run()?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1);
    run(Path::new(store.as_deref().unwrap_or("example-store")))
}
