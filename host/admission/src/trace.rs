//! Traces of reviews: the context that a caller sends, and the calls of plugins that an observer is told about.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::Phase;

/// The place of a caller in its trace, as the header `traceparent` of W3C Trace Context names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace. Not zero.
    pub trace_id: [u8; 16],
    /// The id of the caller's span. Not zero.
    pub span_id: [u8; 8],
    /// Whether the caller records its span.
    pub is_sampled: bool,
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct ObservedCall {
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// The digest of the plugin's content, as `sha256:…`. None if it could not be read.
    pub digest: Option<Arc<str>>,
    /// The mode, such as `enforce`.
    pub mode: &'static str,
    /// The failure policy, such as `Fail`.
    pub failure_policy: &'static str,
    /// The export that was called.
    pub phase: Phase,
    /// The start of the call, before it waits for its turn.
    pub began: SystemTime,
    /// Wall time, with the time that the call waited for its turn.
    pub duration: Duration,
    /// CPU time.
    pub cpu_time: Duration,
    /// Fuel.
    pub fuel: u64,
    /// The kind of fault that ended the call, or `overload` if the host had no room for it.
    pub fault: Option<&'static str>,
}

/// Is told about each call of a plugin.
pub trait CallObserver: Send + Sync + 'static {
    /// A call has ended.
    fn called(&self, call: ObservedCall);
}

/// The observer of a review's calls. The default is none.
#[derive(Clone, Default)]
pub struct Observed(Option<Arc<dyn CallObserver>>);

/// A call that is under way and observed.
pub struct Watch {
    observer: Arc<dyn CallObserver>,
    began: SystemTime,
    since: Instant,
}

/// Length of the part of the header that every version has.
const PARENT_LENGTH: usize = 55;
const SAMPLED: u8 = 1;

// === impl TraceParent ===

impl TraceParent {
    /// Parses the value of `traceparent`. Returns none for a value that the specification says to ignore. A later version
    /// may have more parts, which are left out.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let known = header.get(..PARENT_LENGTH)?;
        let mut parts = known.split('-');
        let [version, trace_id, span_id, flags] =
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let [version] = hex(version)?;
        let rest = &header[PARENT_LENGTH..];
        let is_known_length = rest.is_empty() || (version != 0 && rest.starts_with('-'));
        if version == u8::MAX || !is_known_length {
            return None;
        }
        let (trace_id, span_id): ([u8; 16], [u8; 8]) = (hex(trace_id)?, hex(span_id)?);
        let [flags] = hex(flags)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        Some(Self {
            trace_id,
            span_id,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

/// Decodes lower-case hexadecimal digits of exactly `N` bytes.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

// === impl Observed ===

impl Observed {
    /// Tells an observer about every call.
    #[must_use]
    pub fn by(observer: Arc<dyn CallObserver>) -> Self {
        Self(Some(observer))
    }

    /// Whether somebody observes the calls.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a call. Returns none if nobody observes it.
    #[must_use]
    pub fn begin(&self) -> Option<Watch> {
        let observer = self.0.as_ref()?.clone();
        Some(Watch {
            observer,
            began: SystemTime::now(),
            since: Instant::now(),
        })
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}

// === impl Watch ===

impl Watch {
    /// Tells the observer. `call` gets the start and the duration of the call.
    pub fn end(self, call: impl FnOnce(SystemTime, Duration) -> ObservedCall) {
        self.observer.called(call(self.began, self.since.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn parses_header_of_the_specification() {
        let parent = TraceParent::parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!(parent.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(
            parent.span_id,
            [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
        );
        assert!(parent.is_sampled);
        let other = TraceParent::parse(&format!("00-{TRACE}-{SPAN}-02")).unwrap();
        assert!(!other.is_sampled);
        // A later version may say more.
        let later = TraceParent::parse(&format!("cc-{TRACE}-{SPAN}-01-what-the-future-brings"));
        assert_eq!(later, Some(parent));
    }

    #[test]
    fn ignores_headers_that_are_not_valid() {
        let zero_trace = "0".repeat(32);
        for header in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-011"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01.x"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zero_trace}-{SPAN}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}x-{}-01", &SPAN[1..]),
            format!("00-{}é-{SPAN}-01", &TRACE[..30]),
            "ü".repeat(55),
        ] {
            assert_eq!(TraceParent::parse(&header), None, "{header}");
        }
    }
}
