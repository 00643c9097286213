//! When changes are let through: windows that come back every week, and dates on which none of them counts.
//!
//! All times are those of one time zone. A time that a change of the clocks skips is as much later; of one that comes
//! twice the first counts.

use std::fmt;
use std::time::SystemTime;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tollgate_sdk::prelude::*;

/// A window as the settings have it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    #[serde(default = "Day::all")]
    days: Vec<Day>,
    from: String,
    to: String,
}

/// Dates without windows, as the settings have them; the last one is among them.
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

/// The windows and freezes, read and checked. There is at least one window.
pub(crate) struct Schedule {
    zone: TimeZone,
    weekly: Vec<Weekly>,
    frozen: Vec<Frozen>,
}

/// Why a change is not let through.
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
    /// The first moment that is no longer frozen.
    until: Timestamp,
    reason: Option<String>,
}

/// The calendar ends in the year 9999, and after a freeze a window has to open.
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
                // The day ends where the next one begins.
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

    /// Whether changes have to wait; none while a window is open.
    pub(crate) fn closed(&self, now: SystemTime) -> Option<Closed<'_>> {
        let now = Timestamp::try_from(now).expect("the clock shows a year of the calendar");
        let opens = self.opens(now);
        (opens.timestamp() > now).then(|| Closed {
            opens,
            freeze: self.freeze(now),
        })
    }

    /// The first moment that is not before another one, lies in a window and is not frozen.
    fn opens(&self, mut moment: Timestamp) -> Zoned {
        // Each turn leaves a freeze for good.
        loop {
            let opens = self.next_window(moment);
            match self.freeze(opens.timestamp()) {
                Some(freeze) => moment = freeze.until,
                None => return opens,
            }
        }
    }

    /// The first moment that is not before another one and lies in a window.
    fn next_window(&self, moment: Timestamp) -> Zoned {
        let moment = moment.to_zoned(self.zone.clone());
        // A window of the day before may reach over midnight. And a change of the clocks may leave nothing of a window
        // of one hour; then it is the next week's.
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
    /// The first moment of the window of a day that is not before another one; none when there is no window on that day,
    /// or when it is over.
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
    // jiff takes 09:5 as well.
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
