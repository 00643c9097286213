//! Draws the plots of the documentation.

use std::path::Path;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::Report;
use super::table::bytes;
use crate::measure::Subject;
use crate::plan::{BASE, BY_OBJECT, BY_PLUGINS, LATENCY, OBJECTS, PLUGINS, at, empty, plugins};
use crate::plugins::Work;
use crate::servers::Side;

/// A line of a plot.
struct Series {
    name: String,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (800, 450);
const HOST: RGBColor = RGBColor(31, 119, 180);
const NATIVE: RGBColor = RGBColor(110, 110, 110);
const OTHER: RGBColor = RGBColor(214, 100, 39);
const THIRD: RGBColor = RGBColor(44, 140, 70);

pub(super) fn draw(report: &Report, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    by_plugins(report, &folder.join("plugins.svg"))?;
    by_object(report, &folder.join("objects.svg"))?;
    latency(report, &folder.join("latency.svg"))?;
    merged(report, &folder.join("merged.svg"))
}

fn by_plugins(report: &Report, file: &Path) -> anyhow::Result<()> {
    let results = report.results(BY_PLUGINS)?;
    let line = |side: Side, name: &str, color| Series {
        name: name.to_owned(),
        color,
        points: PLUGINS
            .iter()
            .filter_map(|count| {
                let figures = results.get(&plugins(*count).on(side))?;
                Some((*count as f64, figures.cpu()))
            })
            .collect(),
    };
    let series = [
        line(
            Side::Host,
            "Tollgate, each plugin a module of its own",
            HOST,
        ),
        line(Side::Native, "the same checks compiled in", NATIVE),
    ];
    let (right, top) = bounds(&series);
    chart(
        file,
        "CPU per request against the number of plugins (5 kB Pod)",
        ("plugins that read fields", "CPU per request, µs"),
        (0.0..right, 0.0..top),
        (&plain, &plain),
        &series,
    )
}

fn by_object(report: &Report, file: &Path) -> anyhow::Result<()> {
    let line = |work: Work, side: Side, name: &str, color| Series {
        name: name.to_owned(),
        color,
        points: OBJECTS
            .iter()
            .zip(BY_OBJECT)
            .filter_map(|(size, group)| {
                let subject = at(*size, work, 1).on(side);
                let here = report.results(group).ok().and_then(|it| it.get(&subject));
                let at_base = || report.results(BY_PLUGINS).ok()?.get(&subject);
                Some((*size as f64, here.or_else(at_base)?.cpu()))
            })
            .collect(),
    };
    let everything = Work::ParsesEverything;
    let fields = Work::ReadsFields;
    let series = [
        line(
            everything,
            Side::Host,
            "Tollgate, a plugin that parses everything",
            OTHER,
        ),
        line(
            Work::Mutates,
            Side::Host,
            "Tollgate, a plugin that mutates",
            THIRD,
        ),
        line(
            fields,
            Side::Host,
            "Tollgate, a plugin that reads fields",
            HOST,
        ),
        line(fields, Side::Native, "native, reads fields", NATIVE),
    ];
    let (_, top) = bounds(&series);
    let (left, right) = (OBJECTS[0] as f64, OBJECTS[OBJECTS.len() - 1] as f64);
    chart(
        file,
        "CPU per request against the size of the object (one plugin)",
        ("size of the object", "CPU per request, µs"),
        ((left..right).log_scale(), (10.0..top * 1.5).log_scale()),
        (&|size| bytes(*size as usize), &plain),
        &series,
    )
}

/// Draws the latency by the share of slower requests, from one in ten to one in ten thousand. Rare ones are at the
/// right.
fn latency(report: &Report, file: &Path) -> anyhow::Result<()> {
    /// Steps per decade.
    const STEPS: i32 = 10;
    const DECADES: i32 = 4;
    let results = report.results(LATENCY)?;
    let curve = |histogram: &Histogram<u64>| {
        let points = (0..=STEPS * DECADES).map(|step| {
            let one_in = 10_f64.powf(f64::from(step) / f64::from(STEPS));
            let value = histogram.value_at_quantile(1.0 - 1.0 / one_in);
            (one_in, value as f64 / 1e6)
        });
        points.collect()
    };
    let line = |subject: &Subject, name: &str, color| -> anyhow::Result<Series> {
        Ok(Series {
            name: name.to_owned(),
            color,
            points: curve(&results.of(subject)?.latencies),
        })
    };
    let series = [
        line(&BASE, "Tollgate", HOST)?,
        line(&BASE.on(Side::Native), "native", NATIVE)?,
    ];
    let (_, top) = bounds(&series);
    let right = 10_f64.powi(DECADES);
    chart(
        file,
        "Latency at half of the saturating rate (5 plugins, 5 kB Pod)",
        ("requests that are slower: one in …", "latency, ms"),
        ((1.0..right).log_scale(), 0.0..top),
        (&plain, &|value| format!("{value:.1}")),
        &series,
    )
}

fn merged(report: &Report, file: &Path) -> anyhow::Result<()> {
    let results = report.results(BY_PLUGINS)?;
    let each = results.of(&empty())?.cpu();
    let counts = [1_usize, 5, 20];
    let one_call = |count: usize| -> anyhow::Result<(f64, f64)> {
        Ok((count as f64, results.of(&plugins(count))?.cpu()))
    };
    let series = [
        Series {
            name: "one merged call of Tollgate".to_owned(),
            color: HOST,
            points: counts
                .into_iter()
                .map(one_call)
                .collect::<anyhow::Result<_>>()?,
        },
        Series {
            name: "as many calls of an empty native webhook".to_owned(),
            color: NATIVE,
            points: counts
                .into_iter()
                .map(|count| (count as f64, count as f64 * each))
                .collect(),
        },
    ];
    let (right, top) = bounds(&series);
    chart(
        file,
        "One merged call against one webhook per policy (5 kB Pod)",
        ("policies", "CPU for all of them, µs"),
        (0.0..right, 0.0..top),
        (&plain, &plain),
        &series,
    )
}

/// Returns the largest values, with some room above.
fn bounds(series: &[Series]) -> (f64, f64) {
    let points = series.iter().flat_map(|series| &series.points);
    let (right, top) = points.fold((0.0_f64, 0.0_f64), |(right, top), (x, y)| {
        (right.max(*x), top.max(*y))
    });
    (right * 1.02, top * 1.1)
}

fn plain(value: &f64) -> String {
    format!("{value:.0}")
}

/// Formats a number beside an axis.
type Label<'l> = &'l dyn Fn(&f64) -> String;

fn chart<X, Y>(
    file: &Path,
    title: &str,
    (x_name, y_name): (&str, &str),
    (x, y): (X, Y),
    (x_label, y_label): (Label<'_>, Label<'_>),
    series: &[Series],
) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let drawn = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::new(file, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .x_desc(x_name)
            .y_desc(y_name)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .draw()?;
        for Series {
            name,
            color,
            points,
        } in series
        {
            let color = *color;
            chart
                .draw_series(LineSeries::new(
                    points.iter().copied(),
                    color.stroke_width(2),
                ))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2))
                });
            // A curve of many points needs no marks.
            if points.len() < 10 {
                let marks = points.iter().map(|at| Circle::new(*at, 3, color.filled()));
                chart.draw_series(marks)?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 13))
            .background_style(WHITE)
            .border_style(RGBColor(225, 225, 225))
            .draw()?;
        area.present()?;
        Ok(())
    };
    drawn().map_err(|error| anyhow::anyhow!("cannot draw {}: {error}", file.display()))
}
