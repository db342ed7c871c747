//! Writes the pages of a simulated drive and of a made-up query into a folder:
//! `cargo run -p nandina-report --example show_pages -- /tmp/pages`

#[path = "../tests/reports/made_up/mod.rs"]
mod made_up;

use std::path::PathBuf;

use nandina_report::{Page, device_page, query_page};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("give the folder to write to")?);
    std::fs::create_dir_all(&folder)?;
    let write = |name: &str, page: Page| -> std::io::Result<()> {
        std::fs::write(folder.join(format!("{name}.html")), page.html)?;
        std::fs::write(folder.join(format!("{name}.json")), page.json)
    };
    for drive in ["nvme", "disk"] {
        write(&format!("device-{drive}"), device_page(&made_up::measured(drive))?)?;
    }
    write("device-cache", device_page(&made_up::with_a_cache_that_gives_out())?)?;
    write("device-assumed", device_page(&made_up::assumed())?)?;
    write("query", query_page(&made_up::spilling_join())?)?;
    write("query-tiny", query_page(&made_up::microseconds())?)?;
    write("query-huge", query_page(&made_up::hours())?)?;
    println!("{}", folder.display());
    Ok(())
}
