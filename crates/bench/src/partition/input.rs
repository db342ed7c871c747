//! The relation that is partitioned: TPC-H `ORDERS` as a file of PAX pages, read by direct I/O.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use nandina_device::{Completion, Device, File, FileClass, IoAccount, OpenMode, Request};
use nandina_pages::{Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify};
use tpchgen::generators::OrderGenerator;
use tpchgen_arrow::OrderArrow;

use crate::error::{BenchError, Result};

/// Every page of the file has this size, so that an input buffer of any size holds whole ones.
pub const INPUT_PAGE_BYTES: usize = 64 << 10;
/// Pages per write while the file is made.
const WRITE_PAGES: usize = 64;
const GENERATED_ROWS: usize = 8192;
/// Position of `O_CUSTKEY`.
pub const KEY_COLUMN: usize = 1;

/// The file, open for reading.
#[derive(Debug)]
pub struct Input {
    file: File,
    schema: Arc<PageSchema>,
    bytes: u64,
}

impl Input {
    /// Opens the file of that scale, which is made first if need be.
    pub fn open(device: &Device, scale: f64) -> Result<Self> {
        let name = format!("orders-{scale}.pages");
        let schema = PageSchema::try_new(OrderArrow::schema_ref())?;
        if !device.exists(&name)? {
            println!("generating ORDERS at scale {scale}");
            let unfinished = format!("{name}.unfinished");
            if device.exists(&unfinished)? {
                device.remove(&unfinished)?;
            }
            generate(&device.create(&unfinished, FileClass::Other)?, &schema, scale)?;
            device.rename(&unfinished, &name)?;
        }
        let file = device.open_file(&name, FileClass::Other, OpenMode::Read)?;
        let bytes = file.len()?;
        if bytes == 0 || !bytes.is_multiple_of(INPUT_PAGE_BYTES as u64) {
            return Err(BenchError::Setup(format!("{} is damaged: remove it", file.path().display())));
        }
        Ok(Self { file, schema, bytes })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    /// Reads the relation, one input buffer after the other, and hands over page by page. Returns the time
    /// spent waiting for reads.
    pub fn scan(
        &self,
        input_buffer_bytes: usize,
        mut take: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<Duration> {
        let account = IoAccount::new();
        let step = (input_buffer_bytes / INPUT_PAGE_BYTES).max(1) * INPUT_PAGE_BYTES;
        let mut waited = Duration::ZERO;
        let mut offset = 0;
        while offset < self.bytes {
            let bytes = (step as u64).min(self.bytes - offset) as usize;
            let start = self.file.device().now();
            let request = Request::read(offset, self.file.device().buffer(bytes));
            let completions = self.file.submit_for(vec![request], &account).wait()?;
            waited += self.file.device().now() - start;
            let buffer = completions.into_iter().next().and_then(Completion::into_buffer);
            let buffer = buffer.ok_or_else(|| BenchError::Setup("a read returned nothing".to_owned()))?;
            let buffer = Buffer::from(buffer.freeze());
            for start in (0..bytes).step_by(INPUT_PAGE_BYTES) {
                let page = buffer.slice_with_length(start, INPUT_PAGE_BYTES);
                take(&Page::open(page, Arc::clone(&self.schema), Verify::Checksums)?.batch(None)?)?;
            }
            offset += bytes as u64;
        }
        Ok(waited)
    }
}

fn generate(file: &File, schema: &Arc<PageSchema>, scale: f64) -> Result<()> {
    let mut builder = PageBuilder::new(Arc::clone(schema), INPUT_PAGE_BYTES, usize::from(u16::MAX));
    let mut writer = PageWriter { file, buffer: None, filled: 0, offset: 0, pages: 0 };
    for batch in OrderArrow::new(OrderGenerator::new(scale, 1, 1)).with_batch_size(GENERATED_ROWS) {
        let batch = batch?;
        let mut rows = Rows::Range(0..batch.num_rows());
        loop {
            let taken = builder.append(&batch, rows.clone())?;
            rows = rows.skip(taken);
            if rows.is_empty() {
                break;
            }
            writer.add(&mut builder)?;
        }
    }
    writer.add(&mut builder)?;
    writer.write()?;
    file.sync()?;
    Ok(())
}

/// Collects pages for large writes.
struct PageWriter<'a> {
    file: &'a File,
    buffer: Option<nandina_device::AlignedBuffer>,
    filled: usize,
    offset: u64,
    pages: u64,
}

impl PageWriter<'_> {
    fn add(&mut self, builder: &mut PageBuilder) -> Result<()> {
        if builder.is_empty() {
            return Ok(());
        }
        let device = self.file.device();
        let buffer = self.buffer.get_or_insert_with(|| device.buffer(WRITE_PAGES * INPUT_PAGE_BYTES));
        let place = buffer.get_mut(self.filled..self.filled + INPUT_PAGE_BYTES).unwrap_or_default();
        builder.encode(PageIdentity::new(self.pages), place)?;
        self.pages += 1;
        self.filled += INPUT_PAGE_BYTES;
        if self.filled == buffer.len() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if let Some(mut buffer) = self.buffer.take() {
            buffer.truncate(self.filled);
            self.file.write_blocking(self.offset, buffer.freeze())?;
            self.offset += self.filled as u64;
            self.filled = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use nandina_device::DeviceOptions;

    #[test]
    fn the_file_holds_the_generated_rows_in_order() {
        let folder = std::env::temp_dir().join(format!("nandina-input-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let device = Device::open(&folder, DeviceOptions::default()).unwrap();
        let keys = |input: &Input, buffer_bytes| {
            let mut keys: Vec<i64> = Vec::new();
            let collect = |batch: &RecordBatch| {
                keys.extend(batch.column(KEY_COLUMN).as_primitive::<Int64Type>().values());
                Ok(())
            };
            input.scan(buffer_bytes, collect).unwrap();
            keys
        };
        let generated: Vec<i64> = OrderArrow::new(OrderGenerator::new(0.01, 1, 1))
            .flat_map(|batch| batch.unwrap().column(KEY_COLUMN).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(generated.len(), 15_000);
        let made = Input::open(&device, 0.01).unwrap();
        assert_eq!(keys(&made, 1), generated);
        let reopened = Input::open(&device, 0.01).unwrap();
        assert_eq!(keys(&reopened, 300_000), generated);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
