//! The layers of a plot, each drawn by `plotters` for itself: the backend writes flat elements, and only elements drawn
//! apart can be put into groups.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Axis, DRAWN, Frame, INK, MOST_DOTS, Mark, Place, Plot, Series};
use crate::error::{ReportError, Result};
use crate::html::Html;

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

/// The backend divides sizes of text by this.
const TEXT_FACTOR: f64 = 1.24;

/// Radii of dots, and of the rings around them.
const DOT: i32 = 6;
const RING: i32 = 13;

impl Plot {
    /// The elements of one drawing.
    pub(super) fn layer(&self, frame: Frame, draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<Html> {
        let failed = |message: String| ReportError::Plot { plot: self.title.clone(), message };
        let mut svg = String::new();
        let canvas =
            SVGBackend::with_string(&mut svg, (frame.width as u32, frame.height as u32)).into_drawing_area();
        draw(&canvas).and_then(|()| canvas.present().map_err(said)).map_err(failed)?;
        drop(canvas);
        // Its own <svg …> and </svg>.
        let inner = svg.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</svg>"));
        let (elements, _) = inner.ok_or_else(|| failed("the drawing has no end".to_owned()))?;
        Ok(Html::drawn(elements.to_owned()))
    }

    fn coordinates<'a>(
        &self,
        canvas: &Canvas<'a>,
        frame: Frame,
    ) -> DrawingArea<SVGBackend<'a>, Cartesian2d<Axis, Axis>> {
        let pixels = (frame.left..frame.right_edge(), frame.lower_edge()..frame.top);
        canvas.clone().apply_coord_spec(Cartesian2d::new(self.x.clone(), self.y.clone(), pixels))
    }

    pub(super) fn draw_axes(&self, canvas: &Canvas<'_>, frame: Frame) -> Drawn {
        let grid = INK.mix(0.15);
        for (tick, y) in self.y_ticks(frame) {
            let line = vec![(frame.left, y), (frame.right_edge(), y)];
            canvas.draw(&PathElement::new(line, grid)).map_err(said)?;
            let at = (frame.left - 12, y);
            write(canvas, frame, self.y.tick_label(tick), at, HPos::Right, VPos::Center)?;
        }
        let mut written_to = i32::MIN;
        for (tick, x) in self.x_ticks(frame) {
            let line = vec![(x, frame.lower_edge()), (x, frame.lower_edge() + 8)];
            canvas.draw(&PathElement::new(line, INK.mix(0.6))).map_err(said)?;
            let label = self.x.tick_label(tick);
            let half = frame.text_width(&label) / 2;
            // Steps of unlike labels: what would touch the one before is left out.
            if x - half > written_to {
                write(canvas, frame, label, (x, frame.lower_edge() + 16), HPos::Center, VPos::Top)?;
                written_to = x + half + frame.text / 2;
            }
        }
        let corner = [
            (frame.left, frame.top),
            (frame.left, frame.lower_edge()),
            (frame.right_edge(), frame.lower_edge()),
        ];
        canvas.draw(&PathElement::new(corner.to_vec(), INK.mix(0.6))).map_err(said)
    }

    pub(super) fn draw_series(&self, canvas: &Canvas<'_>, frame: Frame, series: &Series) -> Drawn {
        let area = self.coordinates(canvas, frame);
        let ink = DRAWN.iter().cycle().nth(series.colour).copied().unwrap_or(INK);
        let points = self.drawable(series);
        if points.len() <= MOST_DOTS {
            for &point in &points {
                area.draw(&Circle::new(point, DOT, ink.filled())).map_err(said)?;
            }
        }
        area.draw(&PathElement::new(points, ink.stroke_width(2))).map_err(said)
    }

    /// The ring and the name at the end of a line, apart from its points.
    pub(super) fn draw_extras(
        &self,
        canvas: &Canvas<'_>,
        frame: Frame,
        series: &Series,
        label_y: i32,
    ) -> Drawn {
        let area = self.coordinates(canvas, frame);
        if let Some(ringed) = series.ringed.filter(|(x, y)| self.x.has(*x) && self.y.has(*y)) {
            area.draw(&Circle::new(ringed, RING, INK.stroke_width(2))).map_err(said)?;
        }
        let Some(last) = self.drawable(series).last().copied() else { return Ok(()) };
        if series.end_label.is_empty() {
            return Ok(());
        }
        let at = (area.map_coordinate(&last).0 + 16, label_y);
        write(canvas, frame, &series.end_label, at, HPos::Left, VPos::Center)
    }

    pub(super) fn draw_area(&self, canvas: &Canvas<'_>, frame: Frame, series: &Series) -> Drawn {
        let area = self.coordinates(canvas, frame);
        let ink = DRAWN.iter().cycle().nth(series.colour).copied().unwrap_or(INK);
        let mut outline = self.drawable(series);
        if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
            outline.extend([(last.0, self.y.low), (first.0, self.y.low)]);
            area.draw(&Polygon::new(outline, ink.mix(0.16).filled())).map_err(said)?;
        }
        Ok(())
    }

    pub(super) fn draw_mark(&self, canvas: &Canvas<'_>, frame: Frame, mark: &Mark) -> Drawn {
        let area = self.coordinates(canvas, frame);
        let (line, at, horizontal, vertical) = match mark.at {
            Place::Height(value) => {
                let y = area.map_coordinate(&(self.x.low, value)).1;
                let line = [(frame.left, y), (frame.right_edge(), y)];
                // Below a line that has no room above.
                let is_high = y < frame.top + frame.text + 8;
                let (label_y, vertical) = if is_high { (y + 8, VPos::Top) } else { (y - 10, VPos::Bottom) };
                (line, (frame.right_edge() - 8, label_y), HPos::Right, vertical)
            }
            Place::Width(value) => {
                let x = area.map_coordinate(&(value, self.y.low)).0;
                let line = [(x, frame.top), (x, frame.lower_edge())];
                let has_room = x + 10 + frame.text_width(&mark.name) < frame.width;
                let (label_x, side) = if has_room { (x + 10, HPos::Left) } else { (x - 10, HPos::Right) };
                (line, (label_x, frame.lower_edge() - 12), side, VPos::Bottom)
            }
        };
        canvas.draw(&PathElement::new(line.to_vec(), INK.stroke_width(2))).map_err(said)?;
        write(canvas, frame, &mark.name, at, horizontal, vertical)
    }

    fn drawable(&self, series: &Series) -> Vec<(f64, f64)> {
        series.points.iter().copied().filter(|(x, y)| self.x.has(*x) && self.y.has(*y)).collect()
    }

    /// Labelled values and their pixels.
    fn x_ticks(&self, frame: Frame) -> Vec<(f64, i32)> {
        use plotters::coord::ranged1d::Ranged as _;
        let room = frame.right_edge() - frame.left;
        // As many as fit if all are as long as the longest.
        let fits = |most: usize| {
            let longest =
                self.x.ticks(most).iter().map(|tick| frame.text_width(&self.x.tick_label(*tick))).max();
            self.x.ticks(most).len() as i32 * (longest.unwrap_or(0) + frame.text) <= room
        };
        let most = (2..=12).rev().find(|most| fits(*most)).unwrap_or(2);
        let limits = (frame.left, frame.right_edge());
        self.x.ticks(most).into_iter().map(|tick| (tick, self.x.map(&tick, limits))).collect()
    }

    fn y_ticks(&self, frame: Frame) -> Vec<(f64, i32)> {
        use plotters::coord::ranged1d::Ranged as _;
        let most = (frame.lower_edge() - frame.top) / (frame.text * 9 / 4);
        let limits = (frame.lower_edge(), frame.top);
        self.y.ticks(most.max(2) as usize).into_iter().map(|tick| (tick, self.y.map(&tick, limits))).collect()
    }

    /// Where to write the names at the ends of lines: at their last points, but not on each other.
    pub(super) fn end_label_heights(&self, frame: Frame) -> Vec<i32> {
        use plotters::coord::ranged1d::Ranged as _;
        let place = |series: &Series| {
            let (_, y) = self.drawable(series).last().copied()?;
            (!series.end_label.is_empty()).then(|| self.y.map(&y, (frame.lower_edge(), frame.top)))
        };
        let mut wanted: Vec<(usize, i32)> = self
            .series
            .iter()
            .enumerate()
            .filter_map(|(number, series)| Some((number, place(series)?)))
            .collect();
        wanted.sort_by_key(|(number, y)| (*y, *number));
        let apart = frame.text + 2;
        // Down, each below the one before; then, from the bottom, up again where that left the drawing.
        let mut lowest = i32::MIN / 2;
        for (_, y) in &mut wanted {
            *y = (*y).max(lowest + apart);
            lowest = *y;
        }
        let mut highest = frame.height - frame.text;
        for (_, y) in wanted.iter_mut().rev() {
            *y = (*y).min(highest);
            highest = *y - apart;
        }
        let mut heights = vec![0; self.series.len()];
        #[allow(clippy::indexing_slicing, reason = "series are numbered here")]
        for (number, y) in wanted {
            heights[number] = y;
        }
        heights
    }
}

impl Frame {
    fn right_edge(self) -> i32 {
        self.width - self.right
    }

    fn lower_edge(self) -> i32 {
        self.height - self.bottom
    }

    /// About as wide as a text is in the fonts that pages are read in.
    fn text_width(self, text: &str) -> i32 {
        text.chars().count() as i32 * self.text * 56 / 100
    }
}

fn write(
    canvas: &Canvas<'_>,
    frame: Frame,
    text: impl Into<String>,
    at: (i32, i32),
    h: HPos,
    v: VPos,
) -> Drawn {
    let style =
        ("sans-serif", f64::from(frame.text) * TEXT_FACTOR).into_font().color(&INK).pos(Pos::new(h, v));
    canvas.draw(&Text::new(text.into(), at, style)).map_err(said)
}

fn said(error: impl Display) -> String {
    error.to_string()
}
