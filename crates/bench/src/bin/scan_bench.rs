//! Scans of 1…16 of 16 columns at several page sizes, beside row-order reading and the ideal: figure 2 of the
//! RARE-join paper, on this device. The ground for the default page size, the merge gap and the read-ahead window.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin scan_bench -- --directory <on the disk>
//! ```
//!
//! Row order reads every mini-page of every page, as a store of whole rows must: the scan of 16 columns. Ideal is the
//! bytes of the columns divided by the bandwidth of plain sequential reads of the same file, measured in alternation.
//! Where fio is installed, it reads the same file beside scans of all columns and beside rows fetched by id.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use clap::Parser;
use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::{fio, runner};
use nandina_device::{Device, DeviceOptions, FileClass, IoAccount, OpenMode, Request};
use nandina_storage::{
    FetchOptions, IfExists, Mode, PageNumber, RowId, ScanFigures, ScanOptions, Store, Table, TableDefinition,
    WriteOptions,
};

const COLUMNS: usize = 16;
const PROJECTED: [usize; 9] = [1, 2, 3, 4, 6, 8, 10, 12, 16];
const GAPS_KIB: [u64; 7] = [0, 4, 8, 16, 32, 64, 128];
const WINDOWS_KIB: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];
const FIO_RANDOM_DEPTH: usize = 128;
const BATCH_ROWS: usize = 64 << 10;
/// At which page size gap and window are looked at: where mini-pages are small, both matter most.
const TUNING_PAGE_KIB: [usize; 2] = [64, 256];

/// Time scans of some columns, by page size.
#[derive(Debug, Parser)]
#[command(name = "scan_bench")]
struct Arguments {
    /// A folder to make and to remove, on the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("scan-bench"))]
    directory: PathBuf,
    /// Size of the table.
    #[arg(long, default_value_t = 1.0)]
    gib: f64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Threads that scan.
    #[arg(long, default_value_t = 2)]
    readers: usize,
    /// Page sizes in KiB.
    #[arg(long = "pages", value_delimiter = ',', default_value = "32,64,128,256,512,1024")]
    page_kib: Vec<usize>,
    /// Markdown file for the results.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// SVG file for the plot.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// What was measured at one page size: the best of all rounds, which other work on the machine disturbs least.
struct Figures {
    page_kib: usize,
    import_mib_per_second: f64,
    raw_mib_per_second: f64,
    /// First columns of the table, by `PROJECTED`.
    first: Vec<Scanned>,
    /// Columns spread evenly over the table, by `PROJECTED`.
    spread: Vec<Scanned>,
    fetched: Fetched,
    /// Sequential reads of 1 MiB by fio, in MiB per second.
    fio_mib_per_second: f64,
    /// Random reads by fio in requests per second, each as large as those of fetching.
    fio_random_per_second: f64,
}

/// Single rows by their ids.
#[derive(Clone, Copy)]
struct Fetched {
    rows_per_second: f64,
    request_bytes: u64,
    mean_queue_depth: f64,
}

#[derive(Clone, Copy)]
struct Scanned {
    millis: f64,
    figures: ScanFigures,
}

fn main() {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.directory).unwrap();
    let device = Device::open(&arguments.directory, DeviceOptions::default()).unwrap();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let rows = (arguments.gib * (1u64 << 30) as f64) as usize / (COLUMNS * 8) / BATCH_ROWS * BATCH_ROWS;
    let mut all = Vec::new();
    let mut tuning = String::new();
    for &page_kib in &arguments.page_kib {
        let (table, import_seconds) = import(&store, page_kib, rows);
        all.push(measure(&device, &table, page_kib, &arguments, import_seconds));
        if TUNING_PAGE_KIB.contains(&page_kib) {
            tune(&table, page_kib, &arguments, &mut tuning);
        }
        store.drop_table("t").unwrap();
    }
    let report = report(&all, rows, &device, &arguments) + &tuning;
    println!("{report}");
    if let Some(path) = &arguments.markdown {
        runner::write(path, &report).unwrap();
    }
    if let Some(path) = &arguments.svg {
        plot(&all, rows, path);
    }
    drop((store, device));
    std::fs::remove_dir_all(&arguments.directory).unwrap();
}

fn import(store: &Store, page_kib: usize, rows: usize) -> (Table, f64) {
    let fields: Vec<Field> =
        (0..COLUMNS).map(|column| Field::new(format!("c{column}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let definition = TableDefinition::new("t", Arc::clone(&schema)).with_page_bytes(page_kib << 10);
    let started = Instant::now();
    let writer =
        store.create_table_with_rows(definition, IfExists::Replace, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    for first in (0..rows).step_by(BATCH_ROWS) {
        let value = |row: usize, column: usize| ((first + row) * COLUMNS + column) as i64 * 0x9E37_79B9;
        let columns = (0..COLUMNS)
            .map(|column| {
                Arc::new((0..BATCH_ROWS).map(|row| value(row, column)).collect::<Int64Array>()) as ArrayRef
            })
            .collect();
        lane.append_blocking(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()).unwrap();
    }
    lane.finish_blocking().unwrap();
    assert_eq!(writer.commit_blocking().unwrap().rows, rows as u64);
    (store.table("t").unwrap(), started.elapsed().as_secs_f64())
}

fn measure(
    device: &Device,
    table: &Table,
    page_kib: usize,
    arguments: &Arguments,
    import_seconds: f64,
) -> Figures {
    let projections = |spread: bool| -> Vec<Vec<usize>> {
        let stride = |count: usize| if spread { COLUMNS / count } else { 1 };
        PROJECTED.iter().map(|&count| (0..count).map(|column| column * stride(count)).collect()).collect()
    };
    let (first, spread) = (projections(false), projections(true));
    let mut raw = Vec::new();
    let mut fetched = Vec::new();
    let (mut fio_sequential, mut fio_random) = (Vec::new(), Vec::new());
    let mut times = [vec![Vec::new(); PROJECTED.len()], vec![Vec::new(); PROJECTED.len()]];
    for _ in 0..arguments.rounds {
        raw.push(raw_bandwidth(device));
        fio_sequential.extend(fio(device, arguments, "read", 1 << 20, 16));
        fetched.push(fetch(table));
        fio_random.extend(
            fetched.last().and_then(|fetched| {
                fio(device, arguments, "randread", fetched.request_bytes, FIO_RANDOM_DEPTH)
            }),
        );
        for (kind, projections) in [&first, &spread].into_iter().enumerate() {
            for (position, projection) in projections.iter().enumerate() {
                let options = ScanOptions { projection: Some(projection.clone()), ..Default::default() };
                times[kind][position].push(scan(table, options, arguments.readers));
            }
        }
    }
    let [first, spread] = times.map(|kind| kind.into_iter().map(fastest).collect());
    let import_mib_per_second = table.file_bytes() as f64 / (1 << 20) as f64 / import_seconds;
    let raw_mib_per_second = most(raw);
    let fetched = fetched.into_iter().max_by(|a, b| a.rows_per_second.total_cmp(&b.rows_per_second));
    eprintln!("pages of {page_kib} KiB: done, raw {raw_mib_per_second:.0} MiB/s");
    Figures {
        page_kib,
        import_mib_per_second,
        raw_mib_per_second,
        first,
        spread,
        fetched: fetched.expect("at least one round"),
        fio_mib_per_second: most(fio_sequential),
        fio_random_per_second: most(fio_random),
    }
}

fn scan(table: &Table, options: ScanOptions, readers: usize) -> Scanned {
    let started = Instant::now();
    let scan = table.scan(options).unwrap();
    let rows: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let mut reader = scan.reader();
                scope.spawn(move || {
                    std::iter::from_fn(|| reader.next_blocking()).map(|b| b.unwrap().num_rows()).sum()
                })
            })
            .collect();
        readers.into_iter().map(|reader| -> usize { reader.join().unwrap() }).sum()
    });
    assert_eq!(rows as u64, table.rows());
    Scanned { millis: started.elapsed().as_secs_f64() * 1e3, figures: scan.figures() }
}

/// Plain sequential reads of the table's file, 1 MiB each, 16 in flight.
fn raw_bandwidth(device: &Device) -> f64 {
    let file = device.open_file(&table_file(device), FileClass::Other, OpenMode::Read).unwrap();
    let blocks = file.len().unwrap() >> 20;
    let started = Instant::now();
    let mut batch = device.batch(None);
    let mut next = 0;
    let mut done = 0;
    while done < blocks {
        while next < blocks && next - done < 16 {
            batch.add(vec![(file.clone(), Request::read(next << 20, device.buffer(1 << 20)))]);
            next += 1;
        }
        batch.next_blocking().unwrap().unwrap();
        done += 1;
    }
    blocks as f64 / started.elapsed().as_secs_f64()
}

fn table_file(device: &Device) -> String {
    device.list().unwrap().into_iter().find(|name| name.ends_with(".pax")).unwrap()
}

/// Requests per second of fio on the table's file, those of 1 MiB being MiB per second; nothing where it is missing.
fn fio(
    device: &Device,
    arguments: &Arguments,
    pattern: &str,
    request_bytes: u64,
    depth: usize,
) -> Option<f64> {
    let file = arguments.directory.join(table_file(device));
    let file_bytes = std::fs::metadata(&file).unwrap().len();
    let (ramp_seconds, seconds) = (0.2, 0.6);
    fio::Job { file: &file, pattern, file_bytes, request_bytes, depth, ramp_seconds, seconds }.run()
}

/// Single rows of pages all over the table, one column each: every row costs a mini-page of its own, the worst case
/// of fetching by id, and what small pages are good for. In bulks, as a join does it.
fn fetch(table: &Table) -> Fetched {
    let pages = table.pages() - 1;
    let count = (pages / 2).min(20_000);
    let ids: Vec<RowId> = (0..count)
        .map(|number| RowId::new(PageNumber(number * (pages / count)), (number % 97) as u16))
        .collect();
    let account = IoAccount::new();
    let options = FetchOptions { account: Some(Arc::clone(&account)), ..Default::default() };
    // The page index comes into memory: what is measured is fetching, by many bulks after each other.
    table.fetch_blocking(&ids, &[COLUMNS - 1], &Default::default()).unwrap();
    let started = Instant::now();
    for column in 0..COLUMNS - 1 {
        for bulk in ids.chunks(8192) {
            assert_eq!(table.fetch_blocking(bulk, &[column], &options).unwrap().num_rows(), bulk.len());
        }
    }
    let rows_per_second = (count as usize * (COLUMNS - 1)) as f64 / started.elapsed().as_secs_f64();
    let io = account.statistics();
    Fetched {
        rows_per_second,
        request_bytes: (io.bytes_read / io.read_requests.max(1)).next_multiple_of(4096),
        mean_queue_depth: io.mean_queue_depth(),
    }
}

fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

fn fastest(scans: Vec<Scanned>) -> Scanned {
    scans.into_iter().min_by(|a, b| a.millis.total_cmp(&b.millis)).expect("at least one round")
}

fn ideal_millis(rows: usize, columns: usize, raw_mib_per_second: f64) -> f64 {
    (rows * columns * 8) as f64 / (1 << 20) as f64 / raw_mib_per_second * 1e3
}

fn raw(all: &[Figures]) -> f64 {
    most(all.iter().map(|figures| figures.raw_mib_per_second))
}

fn report(all: &[Figures], rows: usize, device: &Device, arguments: &Arguments) -> String {
    let mut out = String::new();
    let raw = raw(all);
    writeln!(
        out,
        "{rows} rows of {COLUMNS} int64 columns ({:.2} GiB), direct I/O, {} backend, {} readers, best of {} rounds. \
         Plain sequential reads of the same files: {raw:.0} MiB/s.\n",
        (rows * COLUMNS * 8) as f64 / (1u64 << 30) as f64,
        device.backend_name(),
        arguments.readers,
        arguments.rounds,
    )
    .unwrap();
    type Of = fn(&Figures) -> &Vec<Scanned>;
    let kinds: [(&str, Of); 2] = [("the first", |f| &f.first), ("evenly spread", |f| &f.spread)];
    for (kind, of) in kinds {
        writeln!(out, "### Milliseconds for {kind} 1…16 columns, by page size\n").unwrap();
        write!(out, "| columns | ideal |").unwrap();
        all.iter().for_each(|figures| write!(out, " {} KiB |", figures.page_kib).unwrap());
        writeln!(out, "\n|---:|---:|{}", "---:|".repeat(all.len())).unwrap();
        for (position, &columns) in PROJECTED.iter().enumerate() {
            write!(out, "| {columns} | {:.0} |", ideal_millis(rows, columns, raw)).unwrap();
            all.iter().for_each(|figures| write!(out, " {:.0} |", of(figures)[position].millis).unwrap());
            writeln!(out).unwrap();
        }
        let last = PROJECTED.len() - 1;
        write!(out, "| row order | {:.0} |", ideal_millis(rows, COLUMNS, raw)).unwrap();
        all.iter().for_each(|figures| write!(out, " {:.0} |", of(figures)[last].millis).unwrap());
        writeln!(out, "\n").unwrap();
    }
    writeln!(out, "### Other figures by page size\n").unwrap();
    writeln!(out, "| page size | bytes read for 1 column ÷ its bytes | requests | mean time ÷ ideal, 1…16 columns | import MiB/s |").unwrap();
    writeln!(out, "|---:|---:|---:|---:|---:|").unwrap();
    for figures in all {
        let one = figures.first[0].figures;
        let ratios = figures.first.iter().zip(PROJECTED);
        let mean =
            ratios.map(|(scanned, columns)| scanned.millis / ideal_millis(rows, columns, raw)).sum::<f64>();
        writeln!(
            out,
            "| {} KiB | {:.2} | {} | {:.2} | {:.0} |",
            figures.page_kib,
            one.bytes_read as f64 / (rows * 8) as f64,
            one.requests,
            mean / PROJECTED.len() as f64,
            figures.import_mib_per_second,
        )
        .unwrap();
    }
    if all.iter().any(|figures| figures.fio_mib_per_second > 0.0) {
        beside_fio(all, rows, &mut out);
    }
    out
}

/// Scans of all columns beside sequential reads of 1 MiB, and fetching single rows beside random reads as large as its
/// own.
fn beside_fio(all: &[Figures], rows: usize, out: &mut String) {
    writeln!(
        out,
        "\n### Beside fio\n\nfio reads the same file with io_uring and O_DIRECT: 1 MiB in order, 16 in flight, beside \
         scans of all columns; and at random, {FIO_RANDOM_DEPTH} in flight, beside single rows by id, one mini-page \
         each.\n"
    )
    .unwrap();
    writeln!(out, "| page size | fio MiB/s | scan MiB/s | ÷ fio | fetch request | fio IOPS | rows by id per second | ÷ fio | mean depth of fetching |").unwrap();
    writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|").unwrap();
    let mib = (rows * COLUMNS * 8) as f64 / (1 << 20) as f64;
    for figures in all {
        let Figures { fetched, fio_mib_per_second, fio_random_per_second, .. } = figures;
        let scan = mib / (figures.first.last().unwrap().millis / 1e3);
        writeln!(
            out,
            "| {} KiB | {fio_mib_per_second:.0} | {scan:.0} | {:.2} | {} KiB | {fio_random_per_second:.0} | {:.0} | {:.2} | {:.0} |",
            figures.page_kib,
            scan / fio_mib_per_second,
            fetched.request_bytes >> 10,
            fetched.rows_per_second,
            fetched.rows_per_second / fio_random_per_second,
            fetched.mean_queue_depth,
        )
        .unwrap();
    }
}

/// Gap and window, at one page size.
fn tune(table: &Table, page_kib: usize, arguments: &Arguments, out: &mut String) {
    let spread = |count: usize| Some((0..count).map(|column| column * COLUMNS / count).collect::<Vec<_>>());
    let time = |options: &ScanOptions| -> Scanned {
        fastest((0..arguments.rounds).map(|_| scan(table, options.clone(), arguments.readers)).collect())
    };
    writeln!(out, "\n### Merge gap, pages of {page_kib} KiB: milliseconds (requests)\n").unwrap();
    writeln!(out, "| gap | 4 of 16 columns, spread | 8 of 16 columns, spread |\n|---:|---:|---:|").unwrap();
    for gap_kib in GAPS_KIB {
        write!(out, "| {gap_kib} KiB |").unwrap();
        for columns in [4, 8] {
            let options = ScanOptions {
                projection: spread(columns),
                merge_gap_bytes: Some(gap_kib << 10),
                ..Default::default()
            };
            let scanned = time(&options);
            write!(out, " {:.0} ({}) |", scanned.millis, scanned.figures.requests).unwrap();
        }
        writeln!(out).unwrap();
    }
    writeln!(out, "\n### Read-ahead window per reader, pages of {page_kib} KiB: milliseconds\n").unwrap();
    writeln!(out, "| window | 1 of 16 columns | 4 of 16, spread | 16 of 16 |\n|---:|---:|---:|---:|")
        .unwrap();
    for window_kib in WINDOWS_KIB {
        write!(out, "| {window_kib} KiB |").unwrap();
        for columns in [1, 4, 16] {
            let options = ScanOptions {
                projection: spread(columns),
                window_bytes: Some(window_kib << 10),
                ..Default::default()
            };
            write!(out, " {:.0} |", time(&options).millis).unwrap();
        }
        writeln!(out).unwrap();
    }
}

fn plot(all: &[Figures], rows: usize, path: &Path) {
    let raw = raw(all);
    let millis = |figures: &Figures| figures.first.iter().map(|scanned| Some(scanned.millis)).collect();
    let by_page = |figures: &Figures| Series::new(format!("{} KiB", figures.page_kib), millis(figures));
    let ideal = PROJECTED.map(|columns| Some(ideal_millis(rows, columns, raw))).to_vec();
    let row_order = all.iter().map(|figures| figures.first.last().unwrap().millis).fold(f64::MAX, f64::min);
    let panel = Panel {
        title: "By page size; dashed: row order".to_owned(),
        x_label: "columns read".to_owned(),
        y_label: "milliseconds".to_owned(),
        categories: PROJECTED.map(|columns| columns.to_string()).to_vec(),
        series: all.iter().map(by_page).chain([Series::new("ideal", ideal)]).collect(),
        bound: Some(row_order),
        is_logarithmic: false,
    };
    write_svg(path, "Scan of the first k of 16 columns", &[panel], 1).unwrap();
}
