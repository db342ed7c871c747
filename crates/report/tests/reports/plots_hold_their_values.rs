//! What is drawn turns back into the figures of the JSON, and the same figures give the same page.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::drawn;
use crate::made_up;

use drawn::{assert_device_page, assert_query_page, drawings, embedded_json};
use nandina_report::{Page, QueryReport, Sample, device_page, query_page};
use serde_json::Value;

fn json(page: &Page) -> Value {
    serde_json::from_str(&page.json).unwrap()
}

#[test]
fn every_plotted_point_of_a_device_is_that_of_the_json() {
    let profile = made_up::with_a_cache_that_gives_out();
    let page = device_page(&profile).unwrap();
    // Two drawings of writing on and on, for wide and for narrow pages.
    assert_eq!(assert_device_page(&page.html, &json(&page)), profile.reads.pages().len() + 2 + 2);
    // Through text, as reading a number may round it.
    let written = serde_json::to_string(&profile).unwrap();
    assert_eq!(json(&page)["profile"], serde_json::from_str::<Value>(&written).unwrap());
    let sustained = profile.sustained.unwrap();
    for drawing in drawings(&page.html).iter().filter(|drawing| drawing.id == "sustained-writes") {
        let values: Vec<f64> = drawing.marks().into_iter().map(|(_, value)| value).collect();
        let expected = [
            sustained.burst_bytes_per_second,
            sustained.sustained_bytes_per_second,
            sustained.gave_out_after_bytes.unwrap() as f64,
        ];
        assert_eq!(values, expected);
    }
}

#[test]
fn depths_that_were_not_measured_are_said_and_not_drawn() {
    let profile = made_up::quickly_measured();
    let page = device_page(&profile).unwrap();
    for costs in profile.reads.pages() {
        let id = format!("read-cost-{}", costs.page_bytes);
        let drawings = drawings(&page.html);
        let drawing = drawings.iter().find(|drawing| drawing.id == id).unwrap();
        assert_eq!(drawing.lines().len(), costs.measured_depths);
        let stop = costs.stopped_by.unwrap();
        assert!(page.html.contains(&format!("depth {} cost", stop.depth)));
    }
    let assumed = device_page(&made_up::assumed()).unwrap();
    assert_eq!(assert_device_page(&assumed.html, &json(&assumed)), 9 + 2);
    assert!(assumed.html.contains("Assumed to gain nothing beyond depth 16."));
}

#[test]
fn every_plotted_point_of_a_query_is_that_of_the_json() {
    let report = made_up::spilling_join();
    let page = query_page(&report).unwrap();
    assert_eq!(assert_query_page(&page.html, &json(&page)), 4 * 2);
    assert_eq!(page.json, serde_json::to_string_pretty(&report).unwrap());
    let limits: Vec<f64> =
        drawings(&page.html).iter().flat_map(|drawing| drawing.marks()).map(|(_, value)| value).collect();
    assert_eq!(limits, [report.memory_limit_bytes as f64; 2]);
}

#[test]
fn one_look_and_zeros_are_points_too() {
    let alone = Sample { seconds: 0.5, ..Sample::default() };
    let report = QueryReport { timeline: vec![alone], elapsed_seconds: 1.0, ..QueryReport::default() };
    let page = query_page(&report).unwrap();
    assert_eq!(assert_query_page(&page.html, &json(&page)), 8);
    assert!(
        drawings(&page.html).iter().all(|drawing| drawing.lines().iter().all(|line| line.dots.len() == 1))
    );
}

#[test]
fn of_many_looks_the_drawn_ones_are_among_them() {
    let report = made_up::hours();
    let page = query_page(&report).unwrap();
    let drawings = drawings(&page.html);
    assert_eq!(drawings.len(), 8);
    for drawing in &drawings {
        for line in drawing.lines() {
            assert!((100..=1200).contains(&line.vertices.len()), "{} {}", drawing.id, line.vertices.len());
        }
    }
    // The highest of all looks is drawn at the same place as if all were.
    let most = report.timeline.iter().map(|sample| sample.temp_bytes).max().unwrap();
    let temporary = drawings.iter().find(|drawing| drawing.id == "timeline-temporary").unwrap();
    let highest = temporary.lines()[0].vertices.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    assert!((temporary.y.value_at(highest) / most as f64 - 1.0).abs() < 0.01);
}

#[test]
fn pages_carry_their_json() {
    let device = device_page(&made_up::assumed()).unwrap();
    assert_eq!(embedded_json(&device.html), json(&device));
    let query = query_page(&made_up::spilling_join()).unwrap();
    assert_eq!(embedded_json(&query.html), json(&query));
}

#[test]
fn the_same_figures_give_the_same_page() {
    let profile = made_up::with_a_cache_that_gives_out();
    assert_eq!(device_page(&profile).unwrap(), device_page(&profile.clone()).unwrap());
    let report = made_up::hours();
    assert_eq!(query_page(&report).unwrap(), query_page(&report.clone()).unwrap());
}
