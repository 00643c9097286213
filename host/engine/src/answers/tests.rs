use serde_json::{Value, json};
use tollgate_admission::namespaces::NoNamespaces;

use super::*;
use crate::bindings::review::Part;
use crate::bindings::types::{Denial, Verdict};

/// A review of an object.
fn subject(object: &Value) -> Subject {
    let request = crate::testing::request(object);
    Subject {
        object: request.object.clone(),
        request: Arc::new(request),
    }
}

fn answers(bytes: u64) -> Answers {
    Answers::new(&AnswerMemory::new(bytes))
}

fn get(at: &str) -> Question {
    Question::Get(Part::Object, at.into())
}

fn kept(message: Option<&str>, fuel: u64) -> Kept {
    let verdict = match message {
        None => Verdict::Allow,
        Some(message) => Verdict::Deny(Denial {
            message: message.to_owned(),
            code: None,
            reason: None,
            causes: Vec::new(),
        }),
    };
    Kept {
        answer: RawAnswer::Verdict(verdict),
        warnings: Vec::new(),
        annotations: Vec::new(),
        grounds: Grounds::default(),
        fuel,
        memory_bytes: 0,
    }
}

/// The transcript of a call that asks these questions about this object.
fn transcript(subject: &Subject, questions: &[Question]) -> Transcript {
    let mut transcript = Transcript::default();
    for question in questions {
        let told = question.ask(subject, &nowhere(), u64::MAX);
        let told = told.expect("the answer is short");
        transcript.adds(0, || (question.clone(), told));
    }
    transcript
}

fn nowhere() -> NoNamespaces {
    NoNamespaces::because("a test needs none")
}

// === impl Answers ===

impl Answers {
    fn keeps(&self, subject: &Subject, questions: &[Question], kept: Kept) {
        let plugin = PluginName::parse("a").expect("it is a name");
        let transcript = transcript(subject, questions);
        self.keep(&plugin, Phase::Validate, false, transcript, kept);
    }

    fn recalls(&self, subject: &Subject) -> Option<u64> {
        let kept = self.recall(Phase::Validate, subject, &nowhere(), false)?;
        Some(kept.fuel)
    }
}

#[test]
fn call_gets_the_answer_of_one_that_was_told_the_same() {
    let answers = answers(1 << 20);
    let blue = subject(&json!({"metadata": {"labels": {"team": "blue"}, "name": "one"}}));
    let red = subject(&json!({"metadata": {"labels": {"team": "red"}, "name": "one"}}));
    let team = get("/metadata/labels/team");
    answers.keeps(&blue, std::slice::from_ref(&team), kept(None, 1));
    assert_eq!(answers.recalls(&red), None);
    answers.keeps(&red, &[team, get("/metadata/name")], kept(Some("red"), 2));
    assert_eq!(
        (answers.recalls(&blue), answers.recalls(&red)),
        (Some(1), Some(2))
    );
    // Only what was asked counts.
    for (labels, name, expected) in [
        (json!({"team": "blue"}), "two", Some(1)),
        (json!({"team": "blue", "tier": "web"}), "one", Some(1)),
        (json!({"team": "red"}), "two", None),
        (json!({"team": ["blue"]}), "one", None),
        (json!({}), "one", None),
        (json!({"team": null}), "one", None),
    ] {
        let other = subject(&json!({"metadata": {"labels": labels, "name": name}}));
        assert_eq!(answers.recalls(&other), expected, "{labels} {name}");
    }
}

#[test]
fn phases_and_grounds_are_kept_apart() {
    let answers = answers(1 << 20);
    let pod = subject(&json!({}));
    answers.keeps(&pod, &[], kept(None, 1));
    for (phase, with_grounds, expected) in [
        (Phase::Validate, false, true),
        (Phase::Validate, true, false),
        (Phase::Mutate, false, false),
        (Phase::Mutate, true, false),
    ] {
        let found = answers.recall(phase, &pod, &nowhere(), with_grounds);
        assert_eq!(found.is_some(), expected, "{phase:?} {with_grounds}");
    }
}

#[test]
fn values_differ_as_plugins_see_them() {
    let values = [
        json!(null),
        json!(false),
        json!(0),
        json!(1),
        json!(1.5),
        json!(1e300),
        json!("1"),
        json!(""),
        json!([]),
        json!([1]),
        json!({}),
        json!({"a": 1}),
    ];
    for (kept_index, one) in values.iter().enumerate() {
        let answers = answers(1 << 20);
        answers.keeps(&subject(&json!({"a": one})), &[get("/a")], kept(None, 1));
        for (index, other) in values.iter().enumerate() {
            let found = answers.recalls(&subject(&json!({"a": other})));
            assert_eq!(found.is_some(), index == kept_index, "{one} {other}");
        }
    }
}

#[test]
fn every_question_tells_objects_apart() {
    let one = json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "c": 1}});
    let others = [
        json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}], "c": 1}}),
        json!({"spec": {"containers": [{"name": "a", "image": "x"}], "c": 1}}),
        json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"image": "x"}], "c": 1}}),
        json!({"spec": {"containers": {}, "c": 1}}),
        json!({"spec": {"containers": [], "d": 1}}),
        json!({}),
    ];
    let object = Part::Object;
    for (question, same) in [
        (get("/spec/containers"), vec![0, 2]),
        (Question::GetJson(object, "/spec/containers".into()), vec![]),
        (
            Question::GetJson(object, "/spec/c".into()),
            vec![0, 1, 2, 3],
        ),
        (
            Question::GetMany(
                object,
                ["/spec/c".into(), "/spec/containers/0/image".into()].into(),
            ),
            vec![1, 2],
        ),
        (Question::Keys(object, "/spec".into()), vec![0, 1, 2, 3]),
        // The fuel of a search is that of all containers, with or without an image.
        (
            Question::Select(object, "/spec/containers/*/image".into()),
            vec![],
        ),
        (Question::Select(object, "/spec/c".into()), vec![0, 1, 2, 3]),
        (
            Question::Get(Part::OldObject, "/spec".into()),
            (0..6).collect(),
        ),
        (
            Question::Select(Part::Options, "/*".into()),
            (0..6).collect(),
        ),
    ] {
        let answers = answers(1 << 20);
        answers.keeps(
            &subject(&one),
            std::slice::from_ref(&question),
            kept(None, 1),
        );
        assert_eq!(answers.recalls(&subject(&one)), Some(1), "{question:?}");
        for (index, other) in others.iter().enumerate() {
            let found = answers.recalls(&subject(other));
            assert_eq!(
                found.is_some(),
                same.contains(&index),
                "{question:?} {other}"
            );
        }
    }
}

#[test]
fn comparing_an_answer_is_like_asking_again() {
    let texts = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "1.0",
        "1e300",
        "9007199254740993",
        "\"\"",
        "\"a\"",
        "\"b\"",
        "[]",
        "[1]",
        "{}",
        r#"{"a":1}"#,
    ];
    let text = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
    let mut values: Vec<Value> = texts.into_iter().map(text).collect();
    values.push(json!("x".repeat(10_000)));
    let reviews = values.iter().map(|value| subject(&json!({"at": value})));
    let reviews: Vec<Subject> = reviews.chain([subject(&json!({}))]).collect();
    let many = |at: [&str; 2]| Question::GetMany(Part::Object, at.map(Box::from).into());
    let mut same = 0;
    for question in [
        get("/at"),
        get("/at/0"),
        get("at"),
        many(["/at", "/other"]),
        many(["/other", "/at/a"]),
        Question::Get(Part::OldObject, "/at".into()),
        Question::Get(Part::Request, "/operation".into()),
        Question::Get(Part::Namespace, "".into()),
        Question::Keys(Part::Object, "/at".into()),
    ] {
        for earlier in &reviews {
            let Some(told) = question.ask(earlier, &nowhere(), u64::MAX) else {
                continue;
            };
            for now in &reviews {
                let asked = question.ask(now, &nowhere(), u64::MAX);
                if let Some(is_told) = question.is_told(&told, now, &nowhere()) {
                    assert_eq!(
                        is_told,
                        asked.as_ref() == Some(&told),
                        "{question:?} {told:?} {asked:?}"
                    );
                    same += usize::from(is_told);
                }
            }
        }
    }
    assert!(same > reviews.len());
    assert_eq!(
        get("/at").is_told(&Told::Json(None), &reviews[0], &nowhere()),
        None
    );
}

#[test]
fn long_texts_are_neither_kept_nor_compared() {
    let long = "a".repeat(20_000);
    let pod = subject(&json!({"a": long, "b": {"c": long, "d": [1, 2]}, "e": vec![0; 20_000]}));
    for question in [
        get("/a"),
        Question::GetMany(Part::Object, ["/a".into()].into()),
        Question::GetJson(Part::Object, "".into()),
        Question::GetJson(Part::Object, "/b".into()),
        Question::GetJson(Part::Object, "/e".into()),
        Question::Select(Part::Object, "/e/*".into()),
    ] {
        assert_eq!(question.ask(&pod, &nowhere(), 1000), None, "{question:?}");
    }
    let mut transcript = Transcript::default();
    transcript.adds(20_000, || unreachable!("it is too long"));
    assert!(!transcript.is_complete(1));
}

#[test]
fn transcript_lacks_calls_that_are_not_written_down() {
    let mut transcript = transcript(&subject(&json!({})), &[get("/a")]);
    assert!(transcript.is_complete(1) && !transcript.is_complete(2));
    transcript.says();
    assert!(transcript.is_complete(2));
}

#[test]
fn plugin_that_answers_differently_is_run_every_time() {
    let pod = subject(&json!({"a": 1}));
    let differing: [(&[Question], Kept); 5] = [
        (&[get("/a")], kept(Some("no"), 1)),
        (&[get("/a")], kept(None, 2)),
        (&[get("/b")], kept(None, 1)),
        (&[], kept(None, 1)),
        (&[get("/a"), get("/b")], kept(None, 1)),
    ];
    for (questions, other) in differing {
        let answers = answers(1 << 20);
        answers.keeps(&pod, &[get("/a")], kept(None, 1));
        answers.keeps(&pod, &[get("/a")], kept(None, 1));
        assert!(answers.wants_transcript());
        answers.keeps(&pod, questions, other);
        assert!(!answers.wants_transcript(), "{questions:?}");
        assert_eq!(answers.recalls(&pod), None, "{questions:?}");
        assert_eq!(answers.memory.used_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(answers.memory.sharers.load(Ordering::Relaxed), 0);
        // A call that was under way ends now.
        answers.keeps(&pod, &[get("/a")], kept(None, 1));
        assert_eq!(answers.recalls(&pod), None, "{questions:?}");
    }
}

#[test]
fn known_answer_is_compared_now_and_then() {
    let answers = answers(1 << 20);
    let pod = subject(&json!({}));
    answers.keeps(&pod, &[], kept(None, 1));
    let found = (0..3 * CHECKED).filter(|_| answers.recalls(&pod).is_some());
    assert_eq!(found.count() as u64, 3 * (CHECKED - 1));
}

#[test]
fn known_answers_are_compared_during_a_pause() {
    let answers = answers(1 << 20);
    let pod = subject(&json!({}));
    answers.keeps(&pod, &[], kept(None, 1));
    answers.rest();
    assert!(!answers.wants_transcript());
    let found = (0..CHECKED).filter(|_| answers.recalls(&pod).is_some());
    assert_eq!(found.count() as u64, CHECKED - 1);
    assert!(answers.wants_transcript());
    assert!(!answers.wants_transcript());
    // The comparison finds another answer, and no answer is reused any more.
    answers.keeps(&pod, &[], kept(Some("no"), 1));
    assert_eq!(answers.recalls(&pod), None);
}

#[test]
fn memory_is_bounded_and_given_back() {
    const LIMIT: u64 = 64 << 10;
    let memory = AnswerMemory::new(LIMIT);
    let used = || memory.used_bytes.load(Ordering::Relaxed);
    let plugins: Vec<_> = (0..20).map(|_| Answers::new(&memory)).collect();
    let mut rested = 0;
    for value in 0..200 {
        let pod = subject(&json!({"a": format!("value-{value}")}));
        for plugin in &plugins {
            if plugin.wants_transcript() {
                plugin.keeps(&pod, &[get("/a")], kept(None, value));
                assert!(used() <= LIMIT, "{}", used());
            } else {
                rested += 1;
            }
        }
    }
    // Answers that help no call are not worth the work.
    assert!(rested > 1000, "{rested}");
    drop(plugins);
    assert_eq!(used(), 0);
    assert_eq!(memory.sharers.load(Ordering::Relaxed), 0);
}

#[test]
fn plugins_that_fill_the_memory_make_room_for_another() {
    let memory = AnswerMemory::new(64 << 10);
    let pod = |value: u64| subject(&json!({"a": format!("value-{value}")}));
    let early: Vec<_> = (0..LARGEST_PART).map(|_| Answers::new(&memory)).collect();
    // Each answer is of use, so nobody leaves the memory.
    let learn = |plugin: &Answers, value: u64| {
        plugin.keeps(&pod(value), &[get("/a")], kept(None, value));
        for _ in 0..3 {
            plugin.recalls(&pod(value));
        }
    };
    let mut values = 0;
    while memory.used_bytes.load(Ordering::Relaxed) + 2 * BYTES_PER_CALL < memory.limit_bytes {
        values += 1;
        assert!(values < 1000, "the memory is never full");
        for plugin in &early {
            learn(plugin, values);
        }
    }
    let late = Answers::new(&memory);
    learn(&late, 0);
    assert_eq!(late.recalls(&pod(0)), None);
    // It does not write each call down while there is no room.
    assert!(!late.wants_transcript());
    for plugin in &early {
        learn(plugin, values + 1);
        learn(plugin, values + 2);
    }
    learn(&late, 0);
    assert_eq!(late.recalls(&pod(0)), Some(0));
    let shares = |plugin: &Answers| plugin.tree.read().unwrap().bytes <= memory.part();
    assert!(early.iter().all(shares) && shares(&late));
}
