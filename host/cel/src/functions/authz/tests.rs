use std::cell::RefCell;

use serde_json::json;

use super::*;
use crate::{Document, Environment, Found, Scope, Source, Tree};

/// A review whose user may `get`, and whose robot may `delete`. The verb `fail` has an error, and `hang` no answer.
struct Asked {
    review: Tree,
    questions: RefCell<Vec<Question>>,
}

impl Source for Asked {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        self.review.value(document, pointer)
    }

    fn authorize(&self, question: &Question) -> std::result::Result<Decision, String> {
        self.questions.borrow_mut().push(question.clone());
        let of_robot = question.account.is_some();
        match &*question.verb {
            "hang" => Err("kube-apiserver does not answer".to_owned()),
            verb => Ok(Decision {
                allowed: (verb == "delete") == of_robot,
                reason: Arc::from("so"),
                error: (verb == "fail").then(|| Arc::from("a webhook failed")),
            }),
        }
    }
}

fn asked() -> Asked {
    let request = json!({
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "subResource": "scale",
        "requestResource": {"group": "extensions", "version": "v1beta1", "resource": "deployments"},
        "name": "web", "namespace": "shop",
    });
    Asked {
        review: Tree::new().request(&request),
        questions: RefCell::default(),
    }
}

fn evaluate(source: &Asked, expression: &str) -> std::result::Result<Value, String> {
    let environment = Environment::new().with_access(true);
    let program = environment
        .compile(expression)
        .map_err(|error| error.message)?;
    assert!(environment.asks_about_rights());
    let scope = Scope::new(source, Value::Null, &[]);
    let (result, _) = scope.evaluate(&program);
    result.map_err(|error| error.to_string())
}

#[track_caller]
fn assert_true(expression: &str) {
    assert_eq!(
        evaluate(&asked(), expression),
        Ok(Value::Bool(true)),
        "{expression}"
    );
}

#[track_caller]
fn assert_error(expression: &str, words: &str) {
    let error = evaluate(&asked(), expression).unwrap_err();
    assert!(error.contains(words), "{expression}: {error}");
}

#[test]
fn question_has_what_the_expression_says() {
    let source = asked();
    let result = evaluate(
        &source,
        "authorizer.group('apps').resource('deployments').subresource('scale').namespace('shop').name('web').check('get').allowed()",
    );
    assert_eq!(result, Ok(Value::Bool(true)));
    let expected = Question {
        account: None,
        on: On::Resource(Resource {
            group: Arc::from("apps"),
            resource: Arc::from("deployments"),
            subresource: Arc::from("scale"),
            namespace: Arc::from("shop"),
            name: Arc::from("web"),
        }),
        verb: Arc::from("get"),
    };
    assert_eq!(*source.questions.borrow(), [expected]);
}

#[test]
fn request_resource_is_what_the_user_has_written() {
    let source = asked();
    let result = evaluate(&source, "authorizer.requestResource.check('get').allowed()");
    assert_eq!(result, Ok(Value::Bool(true)));
    let questions = source.questions.borrow();
    let On::Resource(resource) = &questions[0].on else {
        panic!("{questions:?}");
    };
    // The subresource belongs to the converted resource, so it does not count beside the original one.
    let found = [
        &resource.group,
        &resource.resource,
        &resource.subresource,
        &resource.namespace,
        &resource.name,
    ];
    assert_eq!(
        found.map(|text| &**text),
        ["extensions", "deployments", "", "shop", "web"]
    );
}

#[test]
fn service_accounts_and_paths_can_be_asked_about() {
    assert_true("authorizer.path('/metrics').check('get').allowed()");
    assert_true("!authorizer.path('/metrics').check('delete').allowed()");
    let robot = "authorizer.serviceAccount('shop', 'robot.example').group('').resource('pods')";
    assert_true(&format!("{robot}.check('delete').allowed()"));
    let source = asked();
    evaluate(&source, &format!("{robot}.check('delete').allowed()")).unwrap();
    let account = source.questions.borrow()[0].account.clone();
    let expected = Account {
        namespace: Arc::from("shop"),
        name: Arc::from("robot.example"),
    };
    assert_eq!(account, Some(expected));
}

#[test]
fn decision_has_reason_and_error() {
    let pods = "authorizer.group('').resource('pods')";
    assert_true(&format!("{pods}.check('get').reason() == 'so'"));
    assert_true(&format!(
        "!{pods}.check('get').errored() && {pods}.check('get').error() == ''"
    ));
    assert_true(&format!("{pods}.check('fail').errored()"));
    assert_true(&format!(
        "{pods}.check('fail').error() == 'a webhook failed'"
    ));
}

#[test]
fn question_without_an_answer_is_an_error() {
    let source = asked();
    let error = evaluate(
        &source,
        "authorizer.path('/metrics').check('hang').allowed()",
    );
    assert_eq!(error, Err("kube-apiserver does not answer".to_owned()));
    let nobody = Tree::new();
    let environment = Environment::new().with_access(true);
    let program = environment.compile("authorizer.path('/a').check('get').allowed()");
    let (result, _) = Scope::new(&nobody, Value::Null, &[]).evaluate(&program.unwrap());
    assert!(result.is_err());
}

#[test]
fn texts_of_errors_are_those_of_kube_apiserver() {
    for (expression, words) in [
        (
            "authorizer.path(' ').check('get').allowed()",
            "path must not be empty",
        ),
        (
            "authorizer.group('').resource(' ').check('get').allowed()",
            "resource must not be empty",
        ),
        (
            "authorizer.serviceAccount('a.b', 'c').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
        (
            "authorizer.serviceAccount('a', 'C').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.group('').check('get').allowed()",
            "no matching overload",
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('a=b').check('list').allowed()",
            "fieldSelector",
        ),
    ] {
        assert_error(expression, words);
    }
}

#[test]
fn expression_may_ask_twice() {
    let ask = "authorizer.path('/metrics').check('get').allowed()";
    assert_true(&[ask; 2].join(" && "));
    assert_error(&[ask; 3].join(" && "), "cost limit exceeded");
}

#[test]
fn without_access_the_variable_does_not_exist() {
    for expression in ["authorizer.path('/')", "authorizer.requestResource"] {
        let error = Environment::new().compile(expression).unwrap_err();
        assert!(
            error.message.contains("authorizer is not available"),
            "{error}"
        );
    }
}
