//! Reads plots back from a page, as it was written or as a browser gives it out, and compares them with the JSON.
//!
//! Whatever is drawn in a series group has to turn back, from pixels, into the values of the JSON: each pixel lies less
//! than half a pixel (and a hair, for the arithmetic) from where the value belongs.

#![allow(dead_code, reason = "every test takes what it needs")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::Value;

/// One drawing.
pub struct Drawing {
    pub id: String,
    pub class: String,
    pub text: String,
    pub x: Scale,
    pub y: Scale,
}

/// From a value to a pixel.
pub struct Scale {
    value: (f64, f64),
    pixel: (f64, f64),
    is_logarithmic: bool,
}

/// One line of a drawing, in pixels.
pub struct Line {
    pub name: String,
    pub vertices: Vec<(f64, f64)>,
    pub dots: Vec<(f64, f64)>,
}

impl Scale {
    fn pixel_of(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let (low, high) = (scaled(self.value.0), scaled(self.value.1));
        self.pixel.0 + (scaled(value) - low) / (high - low) * (self.pixel.1 - self.pixel.0)
    }

    pub fn value_at(&self, pixel: f64) -> f64 {
        let share = (pixel - self.pixel.0) / (self.pixel.1 - self.pixel.0);
        let (low, high) = self.value;
        if self.is_logarithmic { low * (high / low).powf(share) } else { low + share * (high - low) }
    }
}

/// The value of an attribute in the text of a tag.
pub fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name} in {tag}"));
    rest.split_once('"').unwrap().0
}

fn number(tag: &str, name: &str) -> f64 {
    attribute(tag, name).parse().unwrap()
}

/// All drawings of a page.
pub fn drawings(html: &str) -> Vec<Drawing> {
    html.split("<svg").skip(1).map(|piece| Drawing::of(piece.split_once("</svg>").unwrap().0)).collect()
}

impl Drawing {
    fn of(text: &str) -> Self {
        let (tag, _) = text.split_once('>').unwrap();
        let log = attribute(tag, "data-log");
        let scale = |ends: [&str; 2], pixels: [&str; 2], axis: char| Scale {
            value: (number(tag, ends[0]), number(tag, ends[1])),
            pixel: (number(tag, pixels[0]), number(tag, pixels[1])),
            is_logarithmic: log.contains(axis),
        };
        Self {
            id: attribute(tag, "data-plot").to_owned(),
            class: attribute(tag, "class").to_owned(),
            x: scale(["data-x0", "data-x1"], ["data-left", "data-right"], 'x'),
            y: scale(["data-y0", "data-y1"], ["data-bottom", "data-top"], 'y'),
            text: text.to_owned(),
        }
    }

    pub fn lines(&self) -> Vec<Line> {
        let groups = self.text.split("<g ").skip(1).filter(|group| group.starts_with("class=\"series "));
        groups
            .map(|group| {
                let group = group.split_once("</g>").unwrap().0;
                let pairs = group.split("<polyline").skip(1).flat_map(|tag| {
                    attribute(tag, "points").split_whitespace().map(|pair| {
                        let (x, y) = pair.split_once(',').unwrap();
                        (x.parse().unwrap(), y.parse().unwrap())
                    })
                });
                let dots = group.split("<circle").skip(1).map(|tag| (number(tag, "cx"), number(tag, "cy")));
                let name = attribute(&format!(" {group}"), "data-series").to_owned();
                Line { name, vertices: pairs.collect(), dots: dots.collect() }
            })
            .collect()
    }

    /// Marks: name, axis, value.
    pub fn marks(&self) -> Vec<(String, f64)> {
        let groups = self.text.split("<g class=\"mark\"").skip(1);
        groups.map(|group| (attribute(group, "data-mark").to_owned(), number(group, "data-value"))).collect()
    }

    fn assert_near(&self, line: &str, pixels: &[(f64, f64)], values: &[(f64, f64)]) {
        assert_eq!(pixels.len(), values.len(), "{} {line}", self.id);
        for ((px, py), (x, y)) in pixels.iter().zip(values) {
            for (scale, pixel, value) in [(&self.x, *px, *x), (&self.y, *py, *y)] {
                let off = (scale.pixel_of(value) - pixel).abs();
                assert!(off <= 0.5 + 1e-6, "{} {line}: {value} is {off} pixels off {pixel}", self.id);
                let (a, b) = (scale.value_at(pixel - 0.501), scale.value_at(pixel + 0.501));
                let slack = (a - b).abs() * 1e-3;
                assert!(
                    a.min(b) - slack <= value && value <= a.max(b) + slack,
                    "{} {line}: {value} not in {a} … {b}",
                    self.id
                );
            }
        }
    }

    /// Compares all lines; `expected` holds name and points of each.
    pub fn assert_lines(&self, expected: &[(String, Vec<(f64, f64)>)]) {
        let lines = self.lines();
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, expected.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), "{}", self.id);
        for (line, (name, values)) in lines.iter().zip(expected) {
            self.assert_near(name, &line.vertices, values);
            if !line.dots.is_empty() {
                self.assert_near(name, &line.dots, values);
            }
        }
    }
}

fn floats(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Compares every plot of a device's page with its JSON; returns how many drawings that were.
pub fn assert_device_page(html: &str, json: &Value) -> usize {
    let drawings = drawings(html);
    let profile = &json["profile"];
    for drawing in &drawings {
        let expected: Vec<(String, Vec<(f64, f64)>)> = match drawing.id.as_str() {
            "read-bandwidth" => by_depth(json, "bytes_per_second"),
            "read-requests" => by_depth(json, "reads_per_second"),
            "sustained-writes" => vec![("writes".to_owned(), windows(&profile["sustained"]))],
            id => {
                let page_bytes = id.strip_prefix("read-cost-").and_then(|bytes| bytes.parse::<u64>().ok());
                let page_bytes = page_bytes.unwrap_or_else(|| panic!("unknown plot {id}"));
                let pages = profile["reads"]["pages"].as_array().unwrap();
                costs(pages.iter().find(|page| page["page_bytes"] == page_bytes).unwrap())
            }
        };
        drawing.assert_lines(&expected);
    }
    let cells: Vec<f64> = html
        .split("data-bytes-per-second=\"")
        .skip(1)
        .map(|cell| cell.split_once('"').unwrap().0.parse().unwrap())
        .collect();
    let rates: Vec<f64> =
        profile["writes"]["bytes_per_second"].as_array().unwrap().iter().flat_map(floats).collect();
    assert_eq!(cells, rates);
    drawings.len()
}

/// Lines of a page size: a depth each, as far as it was measured.
fn costs(page: &Value) -> Vec<(String, Vec<(f64, f64)>)> {
    let page_bytes = page["page_bytes"].as_f64().unwrap();
    let bands: Vec<f64> = floats(&page["band_pages"]).iter().map(|pages| pages * page_bytes).collect();
    let rows = page["micros"].as_array().unwrap().iter().zip(page["depths"].as_array().unwrap());
    rows.take(page["measured_depths"].as_u64().unwrap() as usize)
        .map(|(row, depth)| {
            let seconds = floats(row).into_iter().map(|micros| micros * 1e-6);
            (format!("depth {depth}"), bands.iter().copied().zip(seconds).collect())
        })
        .collect()
}

fn by_depth(json: &Value, field: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let sizes = json["reads_by_depth"].as_array().unwrap();
    sizes
        .iter()
        .map(|reads| {
            let points = reads["points"].as_array().unwrap().iter();
            let bytes = reads["page_bytes"].as_u64().unwrap();
            let name =
                if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
            (
                name,
                points
                    .map(|point| (point["depth"].as_f64().unwrap(), point[field].as_f64().unwrap()))
                    .collect(),
            )
        })
        .collect()
}

fn windows(sustained: &Value) -> Vec<(f64, f64)> {
    let window = sustained["window_bytes"].as_f64().unwrap();
    let rates = floats(&sustained["bytes_per_second"]);
    rates.into_iter().enumerate().map(|(number, rate)| ((number + 1) as f64 * window, rate)).collect()
}

/// Compares every plot of a query's page with its JSON; returns how many drawings that were.
pub fn assert_query_page(html: &str, json: &Value) -> usize {
    let drawings = drawings(html);
    let line = |name: &str, field: &str| {
        let samples = json["timeline"].as_array().unwrap().iter();
        let point = |sample: &Value| (sample["seconds"].as_f64().unwrap(), sample[field].as_f64().unwrap());
        (name.to_owned(), samples.map(point).collect::<Vec<_>>())
    };
    for drawing in &drawings {
        let expected = match drawing.id.as_str() {
            "timeline-bandwidth" => {
                vec![line("read", "read_bytes_per_second"), line("written", "write_bytes_per_second")]
            }
            "timeline-depth" => vec![line("requests", "queue_depth")],
            "timeline-memory" => vec![line("memory", "memory_bytes")],
            "timeline-temporary" => vec![line("temporary files", "temp_bytes")],
            id => panic!("unknown plot {id}"),
        };
        drawing.assert_lines(&expected);
    }
    drawings.len()
}

/// The JSON inside of a page.
pub fn embedded_json(html: &str) -> Value {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}
