//! The query over time: I/O, queue, memory, temporary space, one below the other over the same time.

use crate::error::Result;
use crate::html::Html;
use crate::page::{figure, legend, paragraph};
use crate::plot::{Axis, Mark, Place, Plot, Series, Unit};
use crate::quantity;
use crate::query_report::{QueryReport, Sample};
use crate::table::{folded, numbers, table};

/// Samples that a plot has room for; of more, the extremes of every step are drawn.
const MOST_POINTS: usize = 1200;
/// Rows of the table; more are left to the JSON.
const MOST_ROWS: usize = 500;
const LONG_TABLE: usize = 100;
/// A limit so many times above everything is said and not drawn: it would press the line against the axis.
const FAR_LIMIT: f64 = 20.0;

/// A line: its name, colour, and what it takes from a sample.
type Line = (&'static str, usize, fn(&Sample) -> f64);

pub(super) fn content(report: &QueryReport) -> Result<Vec<Html>> {
    let mut samples: Vec<Sample> = report.timeline.clone();
    samples.retain(|sample| sample.seconds.is_finite() && sample.seconds >= 0.0);
    // Equal times keep their order.
    samples.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(last) = samples.last() else {
        let reason = "The query was not looked at while it ran, or it was over before the first look.";
        return Ok(vec![paragraph(reason)]);
    };
    let end = if report.elapsed_seconds.is_finite() { report.elapsed_seconds } else { 0.0 };
    let time = Axis::linear_to(Unit::Seconds, end.max(last.seconds));
    let bandwidth: [Line; 2] = [
        ("read", 0, |sample| sample.read_bytes_per_second),
        ("written", 1, |sample| sample.write_bytes_per_second),
    ];
    let depth: [Line; 1] = [("requests", 3, |sample| sample.queue_depth)];
    let memory: [Line; 1] = [("memory", 2, |sample| sample.memory_bytes as f64)];
    let temporary: [Line; 1] = [("temporary files", 4, |sample| sample.temp_bytes as f64)];
    let (limit, limit_words) = memory_limit(report, &samples);

    let mut parts = vec![paragraph(&looks(&samples))];
    let plots = [
        (
            "timeline-bandwidth",
            "Bandwidth",
            "bytes per second",
            Unit::BytesPerSecond,
            &bandwidth[..],
            None,
            "",
        ),
        ("timeline-depth", "Queue", "requests in flight", Unit::Number, &depth[..], None, ""),
        (
            "timeline-memory",
            "Memory",
            "bytes reserved",
            Unit::Bytes,
            &memory[..],
            limit,
            limit_words.as_str(),
        ),
        (
            "timeline-temporary",
            "Temporary space",
            "bytes of temporary files",
            Unit::Bytes,
            &temporary[..],
            None,
            "",
        ),
    ];
    for (id, heading, axes, unit, lines, limit, below) in plots {
        let plot = plot(id, heading, &time, unit, &samples, lines, limit);
        let names = lines.iter().map(|(name, colour, _)| (*colour, *name));
        let drawing = if lines.len() > 1 {
            Html::from_iter([legend("Colours of the lines", names), plot.across()?])
        } else {
            plot.across()?
        };
        parts.push(figure("across", heading, &format!("{axes} over time"), drawing, below).into());
    }
    parts.push(folded("Looks as a table", samples.len() > LONG_TABLE, [sample_table(&samples)]));
    Ok(parts)
}

/// How often the query was looked at.
fn looks(samples: &[Sample]) -> String {
    let number = quantity::counted(samples.len() as u64, "look");
    if samples.len() > MOST_POINTS {
        let steps = quantity::count((MOST_POINTS / 2) as u64);
        format!(
            "{number} at the running query; of each of {steps} steps, the lowest and the highest are drawn."
        )
    } else {
        format!("{number} at the running query. All plots have the same time axis.")
    }
}

fn plot(
    id: &str,
    heading: &str,
    time: &Axis,
    unit: Unit,
    samples: &[Sample],
    lines: &[Line],
    limit: Option<Mark>,
) -> Plot {
    let is_alone = lines.len() == 1;
    let series: Vec<Series> = lines
        .iter()
        .map(|(name, colour, value)| {
            let points: Vec<(f64, f64)> = samples
                .iter()
                .map(|sample| (sample.seconds, value(sample)))
                .filter(|point| point.1.is_finite())
                .collect();
            Series {
                name: (*name).to_owned(),
                colour: *colour,
                points: thinned(points, MOST_POINTS),
                end_label: String::new(),
                ringed: None,
                is_filled: is_alone,
            }
        })
        .collect();
    let values = series.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let limit_value = limit.iter().map(|mark| match mark.at {
        Place::Height(value) | Place::Width(value) => value,
    });
    let y = Axis::linear(unit, values.chain(limit_value));
    let most: Vec<String> = series
        .iter()
        .map(|line| {
            let most = line.points.iter().map(|point| point.1).fold(0.0, f64::max);
            format!("{} at most {}", line.name, y.tick_label(most))
        })
        .collect();
    Plot {
        id: id.to_owned(),
        title: format!("{heading} over the time of the query"),
        description: format!("{}.", most.join(", ")),
        x: time.clone(),
        y,
        series,
        marks: limit.into_iter().collect(),
    }
}

/// The line of the limit, or words about it where it is far away.
fn memory_limit(report: &QueryReport, samples: &[Sample]) -> (Option<Mark>, String) {
    let limit = report.memory_limit_bytes;
    let most = samples.iter().map(|sample| sample.memory_bytes).max().unwrap_or(0);
    let words = quantity::bytes(limit);
    if limit == 0 {
        (None, "There was no limit.".to_owned())
    } else if limit as f64 > most as f64 * FAR_LIMIT {
        (None, format!("The limit of {words} lies far above."))
    } else {
        (Some(Mark { name: format!("limit {words}"), at: Place::Height(limit as f64) }), String::new())
    }
}

/// At most so many of the points: the lowest and the highest of every step, in their order.
fn thinned(points: Vec<(f64, f64)>, most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points;
    }
    let step = points.len().div_ceil(most / 2);
    let mut kept = Vec::with_capacity(most);
    for piece in points.chunks(step) {
        let by_value = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        let lowest = piece.iter().enumerate().min_by(by_value);
        let highest = piece.iter().enumerate().max_by(by_value);
        let mut both: Vec<_> = [lowest, highest].into_iter().flatten().collect();
        both.sort_by_key(|(place, _)| *place);
        both.dedup_by_key(|(place, _)| *place);
        kept.extend(both.into_iter().map(|(_, point)| *point));
    }
    kept
}

fn sample_table(samples: &[Sample]) -> Html {
    let columns = ["Time", "Read", "Written", "In flight", "Memory", "Temporary"].map(numbers);
    let step = samples.len().div_ceil(MOST_ROWS).max(1);
    let caption = match step {
        1 => "Every look at the running query".to_owned(),
        _ => format!("Every {step}th look at the running query; all of them are in the JSON"),
    };
    let row = |sample: &Sample| {
        vec![
            quantity::seconds(sample.seconds),
            quantity::rate(sample.read_bytes_per_second),
            quantity::rate(sample.write_bytes_per_second),
            quantity::plain(sample.queue_depth),
            quantity::bytes(sample.memory_bytes),
            quantity::bytes(sample.temp_bytes),
        ]
    };
    table(&caption, &columns, samples.iter().step_by(step).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_extremes() {
        let points: Vec<(f64, f64)> =
            (0..10_000).map(|n| (f64::from(n), f64::from(n * 7919 % 10_007))).collect();
        let kept = thinned(points.clone(), 100);
        assert!(kept.len() <= 100);
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
        let highest = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
        assert_eq!(highest(&kept), highest(&points));
        assert!(kept.iter().all(|point| points.contains(point)));
        assert_eq!(thinned(points.clone(), 10_000), points);
        assert!(thinned(vec![(0.0, 1.0); 5], 2).len() <= 2);
    }
}
