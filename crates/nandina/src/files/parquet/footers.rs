//! Footers of files that are being read: one copy of each, however many readers there are.
//!
//! The description of a file of hundreds of row groups takes megabytes. DataFusion keeps those of files that were read, as
//! many as fit into a share of the limit; of one that does not fit every reader would have a copy of its own, and a query
//! with several scans in several lanes many. They are not reserved. Readers that look at page indexes still make
//! copies, with the indexes in them, where DataFusion's cache does not have those.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path;
use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaData;

/// The footers that a reader holds.
#[derive(Default)]
pub(crate) struct Footers {
    by_path: Mutex<HashMap<Path, Arc<Slot>>>,
}

/// Locked while the footer is read: a reader that comes meanwhile waits for that.
type Slot = tokio::sync::Mutex<Option<Footer>>;

struct Footer {
    of: ObjectMeta,
    metadata: Weak<ParquetMetaData>,
}

impl Footer {
    /// The footer, if a reader still holds it and it is that of `file`, as far as one can tell.
    fn if_it_is_of(&self, file: &ObjectMeta) -> Option<Arc<ParquetMetaData>> {
        self.metadata.upgrade().filter(|_| self.of == *file)
    }
}

impl Footers {
    /// The footer of `file`, by `read` unless a reader holds it.
    pub async fn of<E>(
        &self,
        file: &ObjectMeta,
        read: impl Future<Output = Result<Arc<ParquetMetaData>, E>>,
    ) -> Result<Arc<ParquetMetaData>, E> {
        let slot = self.slot(&file.location);
        let mut known = slot.lock().await;
        if let Some(metadata) = known.as_ref().and_then(|known| known.if_it_is_of(file)) {
            return Ok(metadata);
        }
        let metadata = read.await?;
        *known = Some(Footer { of: file.clone(), metadata: Arc::downgrade(&metadata) });
        Ok(metadata)
    }

    fn slot(&self, path: &Path) -> Arc<Slot> {
        let mut by_path = self.by_path.lock();
        if let Some(slot) = by_path.get(path) {
            return Arc::clone(slot);
        }
        // Those that no reader holds or waits for go when there is a new one.
        by_path.retain(|_, slot| {
            let is_held = |known: &Option<Footer>| {
                known.as_ref().is_some_and(|known| known.metadata.strong_count() > 0)
            };
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|known| is_held(&known))
        });
        Arc::clone(by_path.entry(path.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use datafusion::object_store::ObjectMeta;
    use parquet::file::metadata::FileMetaData;
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::*;

    fn file(name: &str, size: u64) -> ObjectMeta {
        let last_modified = Default::default();
        ObjectMeta { location: Path::from(name), last_modified, size, e_tag: None, version: None }
    }

    fn footer() -> Arc<ParquetMetaData> {
        let schema = Type::group_type_builder("schema").build().unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        Arc::new(ParquetMetaData::new(FileMetaData::new(1, 0, None, None, schema, None), Vec::new()))
    }

    /// Whether `of` reads.
    async fn reads(footers: &Footers, file: &ObjectMeta) -> (bool, Arc<ParquetMetaData>) {
        let was_read = Cell::new(false);
        let read = async {
            was_read.set(true);
            Ok::<_, ()>(footer())
        };
        let metadata = footers.of(file, read).await.unwrap();
        (was_read.get(), metadata)
    }

    #[tokio::test]
    async fn a_footer_that_somebody_holds_is_not_read_again() {
        let footers = Footers::default();
        let (was_read, first) = reads(&footers, &file("a", 9)).await;
        assert!(was_read);
        let (was_read, second) = reads(&footers, &file("a", 9)).await;
        assert!(!was_read && Arc::ptr_eq(&first, &second));
        assert!(reads(&footers, &file("a", 10)).await.0, "of another version of the file");
        assert!(reads(&footers, &file("b", 9)).await.0);
    }

    #[tokio::test]
    async fn a_footer_goes_with_its_last_reader() {
        let footers = Footers::default();
        drop(reads(&footers, &file("a", 9)).await);
        assert!(reads(&footers, &file("a", 9)).await.0);
        let (_, held) = reads(&footers, &file("b", 9)).await;
        reads(&footers, &file("c", 9)).await;
        let mut known: Vec<String> = footers.by_path.lock().keys().map(ToString::to_string).collect();
        known.sort_unstable();
        assert_eq!(known, ["b", "c"]);
        drop(held);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_tried_again() {
        let footers = Footers::default();
        let failed = footers.of(&file("a", 9), async { Err("no such file") }).await;
        assert_eq!(failed.unwrap_err(), "no such file");
        assert!(reads(&footers, &file("a", 9)).await.0);
    }
}
