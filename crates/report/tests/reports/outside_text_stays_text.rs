//! SQL, names of devices and details of operators come from outside: none of it becomes markup, and no figure, however
//! odd, keeps a page from being made.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::made_up;

use nandina_device::profile::{DeviceIdentity, DeviceProfile, WriteModel};
use nandina_report::{PlanNode, QueryReport, ReportError, Sample, device_page, query_page};

const HOSTILE: &str =
    "</script></title></pre></code><script>alert('1')</script> & \"x\" <!-- ü 日本 \u{202e}]]> -->";

fn hostile_query() -> QueryReport {
    let node = |inputs| PlanNode {
        name: HOSTILE.to_owned(),
        details: HOSTILE.to_owned(),
        inputs,
        ..PlanNode::default()
    };
    QueryReport {
        sql: HOSTILE.to_owned(),
        plan: node(vec![node(vec![]), node(vec![])]),
        device: Some(HOSTILE.to_owned()),
        notes: vec![HOSTILE.to_owned()],
        ..QueryReport::default()
    }
}

/// Markup that this crate writes: one data block, and nothing of what was put in.
fn assert_harmless(html: &str) {
    assert_eq!(html.matches("<script").count(), 1);
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(html.contains("<script type=\"application/json\" id=\"data\">"));
    assert_eq!(html.matches("<!--").count(), 0);
    assert_eq!(html.matches("</pre>").count(), html.matches("<pre").count());
    assert!(!html.contains("alert('1')</script> &"), "unescaped");
    assert!(
        !html.contains('\u{202e}')
            || html.split("id=\"data\"").next().is_some_and(|page| !page.contains('\u{202e}'))
    );
    for foreign in ["http://", "https://", "src=", "@import", "url("] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(foreign), "{foreign}");
    }
}

#[test]
fn queries_cannot_write_markup() {
    let page = query_page(&hostile_query()).unwrap();
    assert_harmless(&page.html);
    assert!(page.html.contains(
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot; &lt;!-- ü 日本 \u{fffd}]]&gt;"
    ));
    assert_eq!(serde_json::from_str::<QueryReport>(&page.json).unwrap(), hostile_query());
}

#[test]
fn devices_cannot_write_markup() {
    let identity = DeviceIdentity {
        name: HOSTILE.to_owned(),
        model: HOSTILE.to_owned(),
        serial: HOSTILE.to_owned(),
        file_system: HOSTILE.to_owned(),
        ..DeviceIdentity::default()
    };
    let profile = DeviceProfile { backend: HOSTILE.to_owned(), ..DeviceProfile::assumed(identity) };
    assert_harmless(&device_page(&profile).unwrap().html);
}

#[test]
fn long_texts_are_kept_whole() {
    let sql = format!("SELECT '{}'", "äöü€🦀".repeat(20_000));
    let page = query_page(&QueryReport { sql: sql.clone(), ..QueryReport::default() }).unwrap();
    assert!(page.html.contains(&sql.replace('\'', "&#39;")));
    let title = page.html.split_once("<title>").unwrap().1.split_once("</title>").unwrap().0;
    assert!(title.chars().count() < 100, "{title}");
}

#[test]
fn odd_figures_still_make_a_page() {
    for odd in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE] {
        let sample = Sample {
            seconds: odd,
            read_bytes_per_second: odd,
            write_bytes_per_second: odd,
            queue_depth: odd,
            memory_bytes: u64::MAX,
            temp_bytes: u64::MAX,
        };
        let plan = PlanNode {
            compute_seconds: odd,
            wait_seconds: odd,
            mean_queue_depth: odd,
            rows: u64::MAX,
            peak_memory_bytes: u64::MAX,
            spilled_bytes: u64::MAX,
            scanned_bytes: u64::MAX,
            spill_read_bytes: u64::MAX,
            ..PlanNode::default()
        };
        for memory_limit_bytes in [0, 1, u64::MAX] {
            let report = QueryReport {
                elapsed_seconds: odd,
                memory_limit_bytes,
                peak_memory_bytes: u64::MAX,
                result_rows: u64::MAX,
                started_at: u64::MAX / 2,
                plan: plan.clone(),
                timeline: vec![sample, Sample { seconds: 0.25, ..sample }],
                ..QueryReport::default()
            };
            let html = query_page(&report).unwrap().html;
            let shown = html.split("<script").next().unwrap();
            assert!(!shown.contains("NaN") && !shown.contains("inf%"), "{odd}");
        }
    }
}

#[test]
fn empty_reports_say_so() {
    let html = query_page(&QueryReport::default()).unwrap().html;
    for words in ["A query of 0 s", "there was no limit", "(unnamed operator)", "was not looked at"] {
        assert!(html.contains(words), "{words}");
    }
    assert!(!html.contains("<svg"));
}

#[test]
fn plans_of_any_depth_are_flat_in_the_markup() {
    let mut plan = PlanNode::default();
    for _ in 0..200 {
        plan = PlanNode { inputs: vec![plan], name: "FilterExec".to_owned(), ..PlanNode::default() };
    }
    let html = query_page(&QueryReport { plan, ..QueryReport::default() }).unwrap().html;
    assert_eq!(html.matches("data-level=\"0\"").count(), 201, "a chain does not indent");
    let html = query_page(&made_up::hours()).unwrap().html;
    assert_eq!(html.matches("data-level=").count(), 200);
    assert!(html.contains("data-level=\"99\""));
}

#[test]
fn profiles_without_tables_are_refused_with_the_reason() {
    let mut profile = made_up::assumed();
    profile.writes = WriteModel { write_bytes: vec![], depths: vec![], bytes_per_second: vec![] };
    let error = device_page(&profile).unwrap_err();
    assert!(matches!(error, ReportError::UnsoundProfile { .. }));
    assert!(error.to_string().contains("calibrate the device again"), "{error}");
}

#[test]
fn noisy_profiles_are_shown_with_a_warning() {
    let mut profile = made_up::quickly_measured();
    profile.noise.median_spread = 0.8;
    profile.cut_short = true;
    profile.direct = false;
    profile.device.file_system = "tmpfs".to_owned();
    let html = device_page(&profile).unwrap().html;
    for words in [
        "cannot be relied on",
        "80 % apart",
        "Time ran out",
        "through the page cache",
        "is memory, not a device",
    ] {
        assert!(html.contains(words), "{words}");
    }
}
