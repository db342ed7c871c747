//! Databases whose tables have pages of a certain size, on the disk or on a model of a drive.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt as _;
use nandina::{Database, OpenDevice, Options, Session};
use nandina_device::calibration::Calibration;
use nandina_device::{Device, DeviceOptions, IoStatistics};
use nandina_simulation::PacedDrive;
use nandina_simulation::drive::DriveModel;
use nandina_storage::{IfExists, MAIN, Mode, Store, TableDefinition, WriteOptions, qualified};

use crate::error::{BenchError, Result};

/// A table that is to be made.
#[derive(Debug, Clone)]
pub struct NewTable {
    pub name: String,
    pub schema: SchemaRef,
    pub page_bytes: usize,
}

/// Makes a table in the database of a folder, if it is not there.
pub fn make_table(folder: &Path, table: NewTable, rows: impl Iterator<Item = RecordBatch>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    let store = Store::open(Device::open(folder, DeviceOptions::default())?, Mode::Write).map_err(setup)?;
    let name = qualified(MAIN, &table.name);
    if store.table(&name).is_ok() {
        return Ok(());
    }
    let definition = TableDefinition::new(name, table.schema).with_page_bytes(table.page_bytes);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default());
    let writer = writer.map_err(setup)?;
    let mut lane = writer.lane();
    for batch in rows {
        lane.append_blocking(&batch).map_err(setup)?;
    }
    lane.finish_blocking().map_err(setup)?;
    writer.commit_blocking().map_err(setup)?;
    Ok(())
}

/// An open database, and the device below it.
pub struct Bed {
    session: Session,
    device: Device,
}

/// What a query took.
#[derive(Debug, Clone)]
pub struct Measured {
    pub seconds: f64,
    /// Until the first rows were there.
    pub first_seconds: f64,
    pub rows: u64,
    pub io: IoStatistics,
}

impl Bed {
    /// The database of a folder on the disk, or as if it was on a drive of this model. The device is measured first.
    pub fn open(folder: &Path, drive: Option<&str>, threads: usize) -> Result<Self> {
        let opened: Arc<Mutex<Option<Device>>> = Arc::default();
        let keep = Arc::clone(&opened);
        let paced = drive.map(paced).transpose()?;
        let scratch: PathBuf = folder.to_path_buf();
        let open_device = OpenDevice::with(move |directory, options| {
            let device = match &paced {
                Some(drive) => drive.open(directory, options)?,
                None => Device::open(directory, options.clone())?,
            };
            let names = scratch.canonicalize().ok();
            let names = names.as_deref().and_then(|path| path.strip_prefix(device.path()).ok()?.to_str());
            let here = device.subdirectory(names.unwrap_or_default())?;
            device.set_profile(Calibration::quick().run(&here, &mut |_| true)?);
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.clone());
            Ok(device)
        });
        let options = Options {
            open_device,
            auto_calibrate: false,
            threads: Some(threads),
            temp_directory: Some(folder.join("temp")),
            ..Options::default()
        };
        let session = Database::open(folder, options).and_then(|database| database.session());
        let session = session.map_err(|error| BenchError::Setup(error.to_string()))?;
        let device = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let device = device.ok_or_else(|| BenchError::Setup("no device was opened".to_owned()))?;
        Ok(Self { session, device })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs a query below these settings, and shows each batch of its rows to `see`; `None` if it has not ended in time.
    pub async fn run(
        &self,
        settings: &[(&str, String)],
        sql: &str,
        patience: Duration,
        see: &mut (dyn FnMut(&RecordBatch) + Send),
    ) -> Result<Option<Measured>> {
        let failed = |error: nandina::Error| BenchError::Setup(format!("{sql}: {error}"));
        // Every query reads what it needs.
        let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in settings.chain([("table_cache", "off")]) {
            self.session.run(&format!("SET {name} = '{value}'")).await.map_err(failed)?;
        }
        let before = self.device.counters().total();
        let start = Instant::now();
        let (mut first_seconds, mut rows) = (None, 0);
        let running = async {
            let mut query = self.session.sql(sql).await?;
            while let Some(batch) = query.next().await {
                let batch = batch?;
                if batch.num_rows() > 0 {
                    first_seconds.get_or_insert_with(|| start.elapsed().as_secs_f64());
                }
                rows += batch.num_rows() as u64;
                see(&batch);
            }
            Ok(())
        };
        match tokio::time::timeout(patience, running).await {
            Err(_) => return Ok(None),
            Ok(done) => done.map_err(failed)?,
        }
        let seconds = start.elapsed().as_secs_f64();
        let io = self.device.counters().total().since(&before);
        Ok(Some(Measured { seconds, first_seconds: first_seconds.unwrap_or(seconds), rows, io }))
    }
}

fn paced(name: &str) -> Result<PacedDrive> {
    let known = || format!("there is no model '{name}'; there are {}", DriveModel::NAMES.join(", "));
    let model = DriveModel::named(name).ok_or_else(|| BenchError::Setup(known()))?;
    Ok(PacedDrive { model, seed: 1, discard: true })
}

fn setup(error: nandina_storage::StorageError) -> BenchError {
    BenchError::Setup(error.to_string())
}
