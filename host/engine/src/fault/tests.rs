use super::*;

fn ended() -> Ended {
    Ended {
        fuel: 1000,
        cpu_time: Duration::from_millis(100),
        spent: Spent::default(),
        allowed: Duration::from_millis(500),
        output_bytes: 4096,
        refused: None,
    }
}

fn read(error: impl Into<wasmtime::Error>) -> Fault {
    Fault::read(&error.into(), &ended(), &Exhaustion::default())
}

#[test]
fn every_kind_is_listed_once() {
    let mut kinds = Fault::KINDS.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), Fault::KINDS.len());
    assert!(kinds.contains(&read(wasmtime::Error::new(fmt::Error)).kind()));
}

#[test]
fn unknown_error_is_engine_error() {
    for unknown in [
        wasmtime::Error::new(fmt::Error),
        wasmtime::Error::msg("resource limit exceeded").context(Instantiating),
    ] {
        let text = format!("{unknown:#}");
        let fault = read(unknown);
        assert_eq!(fault.kind(), "engine-error", "{fault:?}");
        assert_eq!(fault.to_string(), format!("engine error: {text}"));
        let withheld = fault.without_plugins_words().to_string();
        assert!(!withheld.contains(&text), "{withheld}");
    }
}

#[test]
fn classifies_exceptions_and_full_heaps() {
    let fault = read(wasmtime::ThrownException);
    assert_eq!(
        (fault.kind(), fault.to_string().as_str()),
        ("trap", "the plugin threw an exception that nothing caught")
    );
    let fault = read(Trap::AllocationTooLarge);
    assert_eq!(fault, Fault::Memory(Stop::Heap));
    let refused = Stop::Memory {
        wanted_bytes: 2,
        limit_bytes: 1,
    };
    let ended = Ended {
        refused: Some(refused.clone()),
        ..ended()
    };
    let fault = Fault::read(
        &Trap::AllocationTooLarge.into(),
        &ended,
        &Exhaustion::default(),
    );
    assert_eq!(fault, Fault::Memory(refused));
}

#[test]
fn recognises_stops_inside_error_contexts() {
    for (stop, kind) in [
        (Stop::Cpu, "cpu-deadline"),
        (Stop::Wall, "deadline"),
        (Stop::Output { limit_bytes: 1 }, "output-too-large"),
        (Stop::Contract("x".to_owned()), "contract-violation"),
    ] {
        let error = wasmtime::Error::from(stop).context(Instantiating);
        assert_eq!(read(error).kind(), kind);
    }
}

#[test]
fn deadline_text_shows_how_time_was_spent() {
    let fault = |spent| Fault::Deadline {
        allowed: Duration::from_millis(200),
        spent,
    };
    let spent = Spent {
        cpu: Duration::from_millis(47),
        waited: Duration::from_millis(153),
        ..Spent::default()
    };
    assert_eq!(
        fault(Some(spent)).to_string(),
        "deadline passed after 200 ms: the plugin ran for 47 ms, waited for a processor for 153 ms: other calls and \
         processes used the processors"
    );
    assert_eq!(
        fault(None).to_string(),
        "deadline passed: the call could not start within 200 ms"
    );
}

#[test]
fn place_of_an_abort_has_the_column_if_the_language_knows_it() {
    let text = |column| {
        let fault = Fault::Trap {
            code: None,
            abort: Some(Abort {
                message: "boom".to_owned(),
                location: Some(("policy.py".to_owned(), 42, column)),
            }),
        };
        fault.to_string()
    };
    assert_eq!(text(0), "the plugin aborted: boom (at policy.py:42)");
    assert_eq!(text(7), "the plugin aborted: boom (at policy.py:42:7)");
}
