//! The table of lanes as text: what is meant, what is true and on what that rests, how fast it decodes.

use serving_sentinel::layer::LaneSnapshot;
use serving_sentinel::placement::Placement;
use serving_sentinel::telemetry::names;

const HEADINGS: [&str; COLUMNS] =
    ["LANE", "MODEL", "PLAN", "PLACEMENT", "DECODE tokens/s", "IN FLIGHT"];
const COLUMNS: usize = 6;

/// Which columns give way when the terminal is narrow, first to last.
const YIELDING: [usize; 3] = [1, 3, 0];

/// A column keeps this many characters.
const NARROWEST: usize = 6;

const GAP: &str = "  ";

/// One lane as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    cells: [String; COLUMNS],
    alarms: Vec<String>,
}

impl Row {
    pub(crate) fn of(lane: &LaneSnapshot) -> Self {
        let alarms = lane.alarms.iter().map(|alarm| names::alarm(*alarm).to_owned());
        let blind = lane.blind.iter().map(|cause| format!("blind: {}", cause.as_str()));
        Self {
            cells: [
                lane.name.to_string(),
                lane.model.as_deref().unwrap_or("-").to_owned(),
                plan(lane),
                lane.placement.as_ref().map_or_else(|| "not known yet".to_owned(), placement),
                decode(lane),
                lane.in_flight.to_string(),
            ],
            alarms: alarms.chain(blind).collect(),
        }
    }

    /// The row as one line, for where nothing can be redrawn. What comes and goes all the time is left out.
    pub(crate) fn line(&self) -> String {
        let [lane, _, plan, placement, decode, _] = &self.cells;
        let alarms =
            if self.alarms.is_empty() { "none".to_owned() } else { self.alarms.join(", ") };
        format!("{lane}: plan {plan}, placement {placement}, decode {decode}, alarms {alarms}")
    }
}

fn plan(lane: &LaneSnapshot) -> String {
    let plan = lane.plan.as_str();
    match lane.plan.minimum_share() {
        None => plan.to_owned(),
        Some(share) if share < 1.0 => format!("{plan}, {share} of it"),
        Some(_) => format!("{plan}, all"),
    }
}

fn placement(placement: &Placement) -> String {
    let (verdict, basis) = (placement.verdict.as_str(), placement.basis.as_str());
    match &placement.contradicted {
        Some(claim) => format!("{verdict} (by {basis}, not {claim})"),
        None => format!("{verdict} (by {basis})"),
    }
}

fn decode(lane: &LaneSnapshot) -> String {
    match (lane.decode_rate, lane.expected_rate) {
        (Some(rate), Some(expected)) => {
            format!("{rate:.1} of {expected:.0} ({:.2})", rate / expected)
        }
        (Some(rate), None) => format!("{rate:.1}"),
        (None, Some(expected)) => format!("- of {expected:.0}"),
        (None, None) => "-".to_owned(),
    }
}

/// How a line of the table is meant to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Heading,
    Plain,
    Alarm,
}

/// The table in at most `width` columns: a line for each lane, and one for each of its alarms.
pub(crate) fn lines(rows: &[Row], width: usize) -> Vec<(Look, String)> {
    let widths = widths(rows, width);
    let line = |cells: &[String; COLUMNS]| {
        let cells: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| fit(cell, width)).collect();
        cut(cells.join(GAP).trim_end(), width)
    };
    let mut table = vec![(Look::Heading, line(&HEADINGS.map(str::to_owned)))];
    for row in rows {
        table.push((Look::Plain, line(&row.cells)));
        table.extend(
            row.alarms.iter().map(|alarm| (Look::Alarm, cut(&format!("{GAP}! {alarm}"), width))),
        );
    }
    table
}

/// As wide as the widest cell, and narrower where that is too much.
fn widths(rows: &[Row], width: usize) -> [usize; COLUMNS] {
    let mut widths = HEADINGS.map(str::len);
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(&row.cells) {
            *widest = cell.chars().count().max(*widest);
        }
    }
    let total: usize = widths.iter().sum::<usize>() + GAP.len() * (COLUMNS - 1);
    let mut excess = total.saturating_sub(width);
    for column in YIELDING {
        let given = excess.min(widths[column].saturating_sub(NARROWEST));
        widths[column] -= given;
        excess -= given;
    }
    widths
}

fn fit(text: &str, width: usize) -> String {
    format!("{:width$}", cut(text, width))
}

/// The first characters of a text that is too long, with a sign that it goes on.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}
