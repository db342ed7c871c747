//! `CALIBRATE` and `SHOW DEVICE`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use nandina_device::calibration::Progress as CalibrationProgress;
use nandina_device::profile::DeviceProfile;

use crate::calibrate;
use crate::error::{Error, Result};
use crate::files::names;
use crate::media::Media;
use crate::progress::ToldShare;
use crate::query::{Answer, Query};
use crate::set_on_drop::SetOnDrop;

/// Starts a statement; without a folder it is about where temporary files go.
pub(crate) fn start(
    media: Arc<Media>,
    temp_directory: &Path,
    statement: calibrate::Statement,
) -> Result<Query> {
    let (calibrate::Statement::Calibrate { directory, .. } | calibrate::Statement::Show { directory }) =
        &statement;
    let directory = match directory {
        Some(directory) => names::absolute_path(directory)?,
        None => temp_directory.to_path_buf(),
    };
    let device = media.directory(&directory).map_err(|error| Error::setting(error.to_string()))?;
    let calibrate::Statement::Calibrate { full, .. } = statement else {
        return Query::finished(Answer::Rows, device_table(&device.profile(), media.complaint(&device))?);
    };
    let schema = device_table(&device.profile(), None)?.schema();
    let told = ToldShare::default();
    let share = told.clone();
    let work = async move {
        let stop = Arc::new(AtomicBool::new(false));
        let _stop_when_dropped = SetOnDrop(Arc::clone(&stop));
        let measured = tokio::task::spawn_blocking(move || {
            let database = media.database_folder();
            let mut go_on = |progress: CalibrationProgress| {
                share.tell(progress.share);
                !stop.load(Ordering::Relaxed)
            };
            let found = calibrate::calibrate_with(&device, database.as_deref(), full, &mut go_on)?;
            media.learn(&found.profile);
            device_table(&found.profile, None)
        });
        measured.await.map_err(|error| Error::Query { message: error.to_string() })?
    };
    Ok(Query::working(Answer::Rows, schema, None, work).telling(told))
}

/// The profile of a device, as a table.
fn device_table(profile: &DeviceProfile, complaint: Option<String>) -> Result<RecordBatch> {
    let complaint = complaint.map(|complaint| ("note".to_owned(), complaint));
    let (what, value): (Vec<String>, Vec<String>) =
        calibrate::device_facts(profile).into_iter().chain(complaint).unzip();
    Ok(RecordBatch::try_from_iter([
        ("what", Arc::new(StringArray::from(what)) as ArrayRef),
        ("value", Arc::new(StringArray::from(value))),
    ])?)
}
