//! Logging: structured lines on standard error, without any content of objects.
//!
//! A process has one subscriber and one panic hook, so only this module changes process-wide state. The binary calls
//! [`install`] once. The library never calls it.

mod json;

use std::{env, fmt, io::IsTerminal, panic, str::FromStr};

use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::{SubscriberInitExt, TryInitError},
};

use json::JsonLines;

/// The environment variable with the log filter. It is read if no filter is given.
pub const FILTER_VARIABLE: &str = "TOLLGATE_LOG";

/// The default filter: info for the host, and warnings and errors for the libraries.
const DEFAULT_FILTER: &str = "info,hyper=warn,wasmtime=warn,cranelift=warn";

/// Filter that silences the TLS library's warnings about clients.
///
/// The library warns once per connection, with text from the client. Anybody who reaches the port could fill the log
/// with it. Tollgate counts failed handshakes and reports them once a minute.
const QUIET_TLS_LIBRARY: &str = "rustls=error";

/// The TLS library's target. A filter that names it is used unchanged.
const TLS_LIBRARY: &str = "rustls";

/// The levels of a filter.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A line that cannot be written is lost. A report about it would go to standard error, fail too, and panic.
const LOG_INTERNAL_ERRORS: bool = false;

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Text for a terminal.
    Text,
}

/// An error while setting up logging.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be parsed.
    #[error(
        "the log filter from {origin} is not valid: expected a level (error, warn, info, debug, trace) or target=level pairs joined by commas, such as info,tollgate=debug"
    )]
    Filter {
        /// The origin of the filter: `--log` or the environment variable.
        origin: &'static str,
        /// The parser's error.
        source: ParseError,
    },
    /// A word of the filter is neither a level nor a pair.
    #[error(
        "the log filter from {origin} is not valid: {word} is no level{}: expected error, warn, info, debug, trace or off, or \
         target=level pairs joined by commas, such as info,plugin=debug",
        .meant.map(|level| format!(", did you mean {level}?")).unwrap_or_default()
    )]
    Level {
        /// The origin of the filter: `--log` or the environment variable.
        origin: &'static str,
        /// The word.
        word: String,
        /// The level that was probably meant.
        meant: Option<&'static str>,
    },
    /// Something else in this process has already set up logging.
    #[error("logging was already set up in this process")]
    Installed(#[source] TryInitError),
}

/// The error for a word that is not a log format.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected json or text")]
pub struct UnknownLogFormat;

/// Sets up logging and the panic hook for the whole process.
///
/// `filter` is the value of `--log`. Without it, `TOLLGATE_LOG` applies, and without that `info`.
///
/// # Errors
///
/// When the filter cannot be parsed, or when logging was already set up.
pub fn install(format: LogFormat, filter: Option<&str>) -> Result<(), TelemetryError> {
    let filter = self::filter(filter, env::var(FILTER_VARIABLE).ok().as_deref())?;
    match format {
        LogFormat::Json => subscriber_json(filter, std::io::stderr).try_init(),
        LogFormat::Text => tracing_subscriber::registry()
            .with(filter)
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(std::io::stderr().is_terminal())
                    .log_internal_errors(LOG_INTERNAL_ERRORS)
                    .with_writer(std::io::stderr),
            )
            .try_init(),
    }
    .map_err(TelemetryError::Installed)?;
    panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(|location| {
            let file = without_build_path(location.file());
            format!("{file}:{}:{}", location.line(), location.column())
        });
        tracing::error!(location, message = panic_text(panic.payload()), "panicked");
    }));
    Ok(())
}

/// Returns a source file's path within its crate, such as `h2-0.4.12/src/lib.rs`. The part before that is a folder on
/// the machine that built the binary.
fn without_build_path(file: &str) -> &str {
    if !file.starts_with('/') {
        return file;
    }
    let source = file.rfind("/src/").unwrap_or(file.len());
    let crates = file[..source].rfind('/').map_or(0, |slash| slash + 1);
    &file[crates..]
}

/// Returns the text of a panic if it is a literal in the source.
///
/// A formatted text is withheld, because it may quote a Secret. For example, slicing a string at the wrong place quotes
/// the string.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> &'static str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("(withheld: it may quote an object)")
}

fn filter(flag: Option<&str>, variable: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let (origin, text) = match (flag, variable.filter(|text| !text.is_empty())) {
        (Some(text), _) => ("--log", text),
        (None, Some(text)) => (FILTER_VARIABLE, text),
        (None, None) => ("the default", DEFAULT_FILTER),
    };
    let filter = EnvFilter::builder()
        .parse(text)
        .map_err(|source| TelemetryError::Filter { origin, source })?;
    if let Some((word, meant)) = misspelt_level(text) {
        let word = word.to_owned();
        return Err(TelemetryError::Level {
            origin,
            word,
            meant,
        });
    }
    if text.contains(TLS_LIBRARY) {
        return Ok(filter);
    }
    let directive = QUIET_TLS_LIBRARY
        .parse()
        .map_err(|source| TelemetryError::Filter { origin, source })?;
    Ok(filter.add_directive(directive))
}

/// Finds a word without `=` that is no level, and the level that was probably meant.
///
/// The parser takes such a word for a target, whatever it is. The log would then have everything from that target, and
/// nothing else.
fn misspelt_level(text: &str) -> Option<(&str, Option<&'static str>)> {
    let words = text.split(',').map(str::trim);
    let mut words = words.filter(|word| !word.is_empty() && !word.contains(['=', ':', '[']));
    let word = words.find(|word| {
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let is_number = matches!(word.as_bytes(), [b'0'..=b'5']);
        !is_level && !is_number
    })?;
    let first = word.get(..1).unwrap_or_default();
    let mut levels = LEVELS.iter().copied();
    let meant = levels.find(|level| first.eq_ignore_ascii_case(&level[..1]));
    Some((word, meant))
}

fn subscriber_json<W>(filter: EnvFilter, writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::registry().with(filter).with(
        tracing_subscriber::fmt::layer()
            .event_format(JsonLines)
            .log_internal_errors(LOG_INTERNAL_ERRORS)
            .with_writer(writer),
    )
}

// === impl LogFormat ===

impl FromStr for LogFormat {
    type Err = UnknownLogFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(UnknownLogFormat),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Json => "json",
            Self::Text => "text",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .expect("not poisoned")
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_each_event_as_flat_json_object() {
        let captured = Captured::default();
        let writer = captured.clone();
        let filter = filter(Some("info"), None).expect("a filter");
        let subscriber = subscriber_json(filter, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(uid = "u-1", "answered");
            tracing::debug!("not shown");
        });
        let bytes = captured.0.lock().expect("not poisoned").clone();
        let event: serde_json::Value = serde_json::from_slice(&bytes).expect("one JSON object");
        assert_eq!(event["uid"], "u-1");
        assert_eq!(event["message"], "answered");
        assert_eq!(event["level"], "INFO");
    }

    #[test]
    fn log_crate_records_have_target_and_no_build_path() {
        let captured = Captured::default();
        let writer = captured.clone();
        let filter = filter(Some("info"), None).expect("a filter");
        let subscriber = subscriber_json(filter, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            // tracing-log forwards records of the `log` crate in this form.
            tracing::warn!(
                log.target = "rustls::conn",
                log.module_path = "rustls::conn",
                log.file = "/build/.cargo/registry/src/registry-1/rustls-0.23.1/src/conn.rs",
                log.line = 7_u64,
                "sending fatal alert"
            );
        });
        let line = String::from_utf8(captured.0.lock().expect("not poisoned").clone());
        let line = line.expect("JSON is UTF-8");
        assert!(!line.contains("/build"), "{line}");
        let event: serde_json::Value = serde_json::from_str(&line).expect("one JSON object");
        assert_eq!(event["target"], "rustls::conn");
        assert_eq!(event["message"], "sending fatal alert");
        assert_eq!(event["level"], "WARN");
        assert_eq!(
            event.as_object().map(serde_json::Map::len),
            Some(4),
            "{line}"
        );
    }

    #[test]
    fn word_that_is_no_level_is_refused() {
        for (text, word, meant) in [
            ("warning", "warning", Some("warn")),
            ("inof", "inof", Some("info")),
            ("info,verbose", "verbose", None),
            ("7", "7", None),
            ("plugin=debug,dbug", "dbug", Some("debug")),
        ] {
            let error = filter(None, Some(text)).expect_err(text).to_string();
            assert!(error.contains(&format!("{word} is no level")), "{error}");
            assert!(error.contains(FILTER_VARIABLE), "{error}");
            let suggestion = meant.map(|level| format!("did you mean {level}?"));
            assert_eq!(
                error.contains("did you mean"),
                suggestion.is_some(),
                "{error}"
            );
            assert!(error.contains(&suggestion.unwrap_or_default()), "{error}");
        }
        for text in [
            "Warn",
            "3",
            "off",
            "info,plugin=debug",
            "tollgate::gate",
            "",
        ] {
            assert!(filter(Some(text), None).is_ok(), "{text}");
        }
    }

    #[test]
    fn strips_build_path_from_source_locations() {
        let table = [
            (
                "/build/.cargo/registry/src/registry-1949cf8c6b5b557f/h2-0.4.12/src/lib.rs",
                "h2-0.4.12/src/lib.rs",
            ),
            (
                "/rustc/0123456789abcdef/library/core/src/option.rs",
                "core/src/option.rs",
            ),
            ("/home/me/tollgate/host/src/main.rs", "host/src/main.rs"),
            ("host/src/main.rs", "host/src/main.rs"),
            ("/build/generated.rs", "generated.rs"),
        ];
        for (file, expected) in table {
            assert_eq!(without_build_path(file), expected);
        }
    }

    #[test]
    fn flag_overrides_variable_and_variable_overrides_default() {
        let shown = |flag, variable| {
            filter(flag, variable)
                .map_or_else(|error| error.to_string(), |filter| filter.to_string())
        };
        assert!(shown(Some("warn"), Some("debug")).ends_with("warn"));
        assert!(shown(None, Some("debug")).ends_with("debug"));
        assert!(shown(None, Some("")).contains("info"));
        assert!(shown(Some("tollgate=loud"), None).contains("--log"));
        assert!(shown(None, Some("a=b=c")).contains(FILTER_VARIABLE));
    }

    #[test]
    fn silences_tls_library_unless_filter_names_it() {
        let captured = |text: &str| {
            let captured = Captured::default();
            let writer = captured.clone();
            let filter = filter(Some(text), None).expect("a filter");
            let subscriber = subscriber_json(filter, move || writer.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(target: "rustls::msgs::handshake", "Illegal SNI extension");
                tracing::error!(target: "rustls::common_state", "a defect");
            });
            let bytes = captured.0.lock().expect("not poisoned").clone();
            String::from_utf8(bytes).expect("text").lines().count()
        };
        for filter in ["info", "debug", "trace", "info,hyper=warn"] {
            assert_eq!(captured(filter), 1, "{filter}");
        }
        assert_eq!(captured("info,rustls=warn"), 2);
        assert_eq!(captured("info,rustls=debug,hyper=warn"), 2);
    }

    #[test]
    fn withholds_panic_texts_that_may_quote_an_object() {
        assert_eq!(panic_text(&"a literal"), "a literal");
        let quoted: Box<dyn std::any::Any + Send> = Box::new("of hunter2".to_owned());
        assert!(!panic_text(&*quoted).contains("hunter2"));
    }

    #[test]
    fn parses_log_formats_as_printed() {
        for format in [LogFormat::Json, LogFormat::Text] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert_eq!("xml".parse::<LogFormat>(), Err(UnknownLogFormat));
    }
}
