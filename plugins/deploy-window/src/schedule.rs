//! The times at which changes are allowed: weekly windows, and dates on which no window counts.
//!
//! All times are in one time zone. A time that a change of the clocks skips is later by the skipped time. When a time
//! occurs twice, the first one counts.

use std::fmt;
use std::time::SystemTime;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tollgate_sdk::prelude::*;

/// A window, as in the settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    #[serde(default = "Day::all")]
    days: Vec<Day>,
    from: String,
    to: String,
}

/// Dates without windows, as in the settings. The last date is included.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    from: String,
    to: String,
    reason: Option<String>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[expect(missing_docs, reason = "there is no more to say of a day")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// The parsed and checked windows and freezes. There is at least one window.
pub(crate) struct Schedule {
    zone: TimeZone,
    weekly: Vec<Weekly>,
    frozen: Vec<Frozen>,
}

/// The reason why a change is denied.
pub(crate) struct Closed<'s> {
    opens: Zoned,
    freeze: Option<&'s Frozen>,
}

struct Weekly {
    days: Vec<Weekday>,
    from: Time,
    to: Time,
}

struct Frozen {
    from: Timestamp,
    /// The first moment after the freeze.
    until: Timestamp,
    reason: Option<String>,
}

/// The last year for freezes. The calendar ends in the year 9999, and a window has to open after a freeze.
const LAST_YEAR: i16 = 9990;

// === impl Schedule ===

impl Schedule {
    pub(crate) fn read(
        time_zone: &str,
        windows: &[Window],
        freezes: Vec<Freeze>,
    ) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let zone = TimeZone::get(time_zone).unwrap_or_else(|_| {
            errors.at(
                "/timeZone",
                "is no time zone of the IANA database, such as Europe/Berlin",
            );
            TimeZone::UTC
        });
        if windows.is_empty() {
            errors.at(
                "/windows",
                "must have at least one window, or nothing could ever change",
            );
        }
        let weekly = windows.iter().enumerate().map(|(index, window)| {
            let at = pointer!["windows", index];
            if window.days.is_empty() {
                errors.at(at.child("days"), "must have at least one day");
            }
            Weekly {
                days: window.days.iter().map(|day| day.weekday()).collect(),
                from: time(&window.from, at.child("from"), &mut errors),
                // The day ends when the next one begins.
                to: match window.to.as_str() {
                    "24:00" => Time::midnight(),
                    to => time(to, at.child("to"), &mut errors),
                },
            }
        });
        let weekly = weekly.collect();
        let frozen = freezes.into_iter().enumerate().map(|(index, freeze)| {
            let at = pointer!["freezes", index];
            let from = date(&freeze.from, at.child("from"), &mut errors).unwrap_or_default();
            let to = date(&freeze.to, at.child("to"), &mut errors).unwrap_or(from);
            if to < from {
                errors.at(at.child("to"), "must not be before `from`");
            }
            Frozen {
                from: moment(&zone, from, Time::midnight()).timestamp(),
                until: moment(&zone, next(to), Time::midnight()).timestamp(),
                reason: freeze.reason,
            }
        });
        let frozen = frozen.collect();
        errors.or(Self {
            zone,
            weekly,
            frozen,
        })
    }

    /// Returns the reason to deny changes, or none while a window is open.
    pub(crate) fn closed(&self, now: SystemTime) -> Option<Closed<'_>> {
        let now = Timestamp::try_from(now).expect("the clock shows a year of the calendar");
        let opens = self.opens(now);
        (opens.timestamp() > now).then(|| Closed {
            opens,
            freeze: self.freeze(now),
        })
    }

    /// Returns the first moment from `moment` on that is in a window and not frozen.
    fn opens(&self, mut moment: Timestamp) -> Zoned {
        // Each turn leaves one freeze, and never returns to it.
        loop {
            let opens = self.next_window(moment);
            match self.freeze(opens.timestamp()) {
                Some(freeze) => moment = freeze.until,
                None => return opens,
            }
        }
    }

    /// Returns the first moment from `moment` on that is in a window.
    fn next_window(&self, moment: Timestamp) -> Zoned {
        let moment = moment.to_zoned(self.zone.clone());
        // A window of the day before may span midnight. A change of the clocks may remove a whole window of one hour.
        // Then the window of the next week counts.
        let yesterday = moment.date().yesterday().unwrap_or(Date::MIN);
        let days = std::iter::successors(Some(yesterday), |day| Some(next(*day)));
        let opening = |day: Date| {
            let weekly = self.weekly.iter();
            let openings = weekly.filter_map(|weekly| weekly.opening(&self.zone, day, &moment));
            openings.min()
        };
        days.take(16)
            .find_map(opening)
            .expect("each window opens every week or the next")
    }

    fn freeze(&self, moment: Timestamp) -> Option<&Frozen> {
        let mut frozen = self.frozen.iter();
        frozen.find(|freeze| freeze.from <= moment && moment < freeze.until)
    }
}

// === impl Weekly ===

impl Weekly {
    /// Returns the first moment from `moment` on in the window of a day. None if that day has no window, or if its
    /// window is over.
    fn opening(&self, zone: &TimeZone, day: Date, moment: &Zoned) -> Option<Zoned> {
        if !self.days.contains(&day.weekday()) {
            return None;
        }
        let last_day = if self.to > self.from { day } else { next(day) };
        let from = self::moment(zone, day, self.from);
        let to = self::moment(zone, last_day, self.to);
        let opening = from.max(moment.clone());
        (opening < to).then_some(opening)
    }
}

// === impl Closed ===

impl fmt::Display for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.freeze {
            None => f.write_str("no deployment window is open")?,
            Some(Frozen { reason: None, .. }) => f.write_str("deployments are frozen")?,
            Some(Frozen {
                reason: Some(reason),
                ..
            }) => write!(f, "deployments are frozen ({reason})")?,
        }
        let opens = self.opens.strftime("%A, %Y-%m-%d at %H:%M (%Q)");
        write!(f, "; the next window opens on {opens}")
    }
}

// === impl Day ===

impl Day {
    fn all() -> Vec<Self> {
        vec![
            Self::Mon,
            Self::Tue,
            Self::Wed,
            Self::Thu,
            Self::Fri,
            Self::Sat,
            Self::Sun,
        ]
    }

    fn weekday(self) -> Weekday {
        match self {
            Self::Mon => Weekday::Monday,
            Self::Tue => Weekday::Tuesday,
            Self::Wed => Weekday::Wednesday,
            Self::Thu => Weekday::Thursday,
            Self::Fri => Weekday::Friday,
            Self::Sat => Weekday::Saturday,
            Self::Sun => Weekday::Sunday,
        }
    }
}

// === times and dates ===

fn time(text: &str, setting: Pointer, errors: &mut SettingsErrors) -> Time {
    let time = Time::strptime("%H:%M", text).ok();
    // jiff also accepts 09:5.
    time.filter(|_| text.len() == "hh:mm".len())
        .unwrap_or_else(|| {
            errors.at(setting, "must be a time of the day, such as \"09:30\"");
            Time::midnight()
        })
}

fn date(text: &str, setting: Pointer, errors: &mut SettingsErrors) -> Option<Date> {
    let date = Date::strptime("%Y-%m-%d", text).ok();
    let date = date.filter(|date| date.year() <= LAST_YEAR && text.len() == "yyyy-mm-dd".len());
    if date.is_none() {
        errors.at(setting, "must be a date, such as \"2026-12-24\"");
    }
    date
}

fn moment(zone: &TimeZone, date: Date, time: Time) -> Zoned {
    date.to_datetime(time)
        .to_zoned(zone.clone())
        .expect("the settings end long before the calendar")
}

fn next(date: Date) -> Date {
    date.tomorrow()
        .expect("the settings end long before the calendar")
}
