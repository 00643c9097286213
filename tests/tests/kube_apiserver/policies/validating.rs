//! What a ValidatingAdmissionPolicy answers: expressions, messages, parameters, rights, warnings and annotations.

use serde_json::{Value, json};

use super::case::{
    Case, Request, create, delete, map, namespace, namespace_of, on, sized, update, validating,
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = deployments();
    cases.extend(namespaces());
    cases.extend(messages());
    cases.extend(annotations());
    cases.extend(params());
    cases.extend(conditions());
    cases.extend(rights());
    cases.extend(costs());
    cases
}

fn validation(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

/// A policy for Deployments, tried on five.
fn on_deployments(name: &'static str, spec: Value) -> Case {
    let mut labelled = sized(name, "labelled", 1);
    labelled["metadata"]["labels"] = json!({"team": "a"});
    labelled["metadata"]["annotations"] = json!({"team": "a"});
    validating(name, spec)
        .matching(on("apps", &["deployments"]))
        .creates([
            sized(name, "small", 1),
            sized(name, "large", 6),
            sized(name, "large-one", 6),
            sized(name, "none", 0),
            labelled,
        ])
}

fn deployments() -> Vec<Case> {
    let replicas = "object.spec.replicas <= 5";
    let team = "object.metadata.annotations['team'] == 'a'";
    let params = on_deployments(
        "params",
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{
                "expression": "object.spec.replicas <= int(params.data.max)",
                "messageExpression": "'at most ' + params.data.max",
            }],
        }),
    );
    let mut surge = sized("int-or-string", "text", 1);
    surge["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = json!("10%");
    let mut counted = sized("int-or-string", "number", 1);
    counted["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = json!(5);
    let mut exposed = sized("ports", "exposed", 1);
    exposed["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 80}, {"containerPort": 8080, "name": "web"}]);
    vec![
        on_deployments("plain", validation(replicas)),
        on_deployments(
            "message",
            json!({"validations": [{"expression": replicas, "message": "too many", "reason": "Forbidden"}]}),
        ),
        on_deployments(
            "composed",
            json!({
                "variables": [{"name": "n", "expression": "object.spec.replicas"}],
                "validations": [{"expression": "variables.n <= 5", "messageExpression": "'%d of %s'.format([variables.n, object.metadata.name])"}],
            }),
        ),
        on_deployments("missing", validation(team)),
        on_deployments(
            "ignored",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": team}]}),
        ),
        on_deployments(
            "warned",
            json!({
                "validations": [{"expression": replicas, "message": "a <few> & more"}],
                "auditAnnotations": [{"key": "replicas", "valueExpression": "string(object.spec.replicas)"}],
            }),
        )
        .actions(&["Warn", "Audit"]),
        on_deployments(
            "conditions",
            json!({
                "matchConditions": [{"name": "large", "expression": "object.spec.replicas > 5"}],
                "validations": [{"expression": "object.metadata.name.startsWith('large-')", "reason": "RequestEntityTooLarge"}],
            }),
        ),
        on_deployments(
            "variables",
            json!({
                "variables": [{"name": "team", "expression": "object.metadata.labels['team']"}],
                "validations": [{"expression": "variables.team == 'a'"}],
            }),
        ),
        on_deployments(
            "libraries",
            validation(
                "object.spec.template.spec.containers.all(i, c, quantity(string(object.spec.replicas) + 'Gi').isLessThan(quantity('6G')) && c.image.find(':[0-9]+$') != '')",
            ),
        ),
        on_deployments(
            "lists",
            validation("object.spec.template.spec.containers[object.spec.replicas].name == 'app'"),
        ),
        params
            .existing([map("params", "limits", json!({"max": "5"}))])
            .binding(json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}})),
        validating(
            "ports",
            validation(
                "object.spec.template.spec.containers.size() > 0 && object.spec.template.spec.containers.all(c, !has(c.ports) || c.ports.all(p, p.containerPort < 1024))",
            ),
        )
        .matching(on("apps", &["deployments"]))
        .creates([sized("ports", "closed", 1), exposed]),
        validating(
            "int-or-string",
            validation(
                "type(object.spec.strategy.rollingUpdate.maxSurge) == int ? object.spec.strategy.rollingUpdate.maxSurge > 7 : object.spec.strategy.rollingUpdate.maxSurge == '10%'",
            ),
        )
        .matching(on("apps", &["deployments"]))
        .creates([surge, counted]),
    ]
}

/// A policy for Namespaces, tried on two.
fn on_namespaces(name: &'static str, spec: Value) -> Case {
    let names = ["a", "b"].map(|end| format!("{}-{end}", namespace_of(name)));
    let objects = names.map(|one| namespace(name, &one));
    validating(name, spec)
        .matching(on("", &["namespaces"]))
        .creates(objects)
}

fn namespaces() -> Vec<Case> {
    let with_params = |expression: &str, policy: &str| {
        json!({
            "failurePolicy": policy,
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": expression}],
        })
    };
    let of_kind = |kind: &str| {
        json!({
            "paramKind": {"apiVersion": "v1", "kind": kind},
            "validations": [{"expression": "object.metadata.name.endsWith(params.metadata.labels.end) && params.kind == 'Secret' && params.apiVersion == 'v1'"}],
        })
    };
    let mut secret = map("secret-params", "ends", json!({"end": "Yg=="}));
    secret["kind"] = json!("Secret");
    secret["metadata"]["labels"] = json!({"end": "b"});
    let mut same = map("map-params", "ends", json!({}));
    same["metadata"]["labels"] = json!({"end": "b"});
    let ends = |case: &str| {
        json!({"paramRef": {
            "name": "ends", "namespace": namespace_of(case), "parameterNotFoundAction": "Deny",
        }})
    };
    let unguarded = "object.metadata.name.startsWith(params.metadata.name)";
    vec![
        on_namespaces("by-name", validation("object.metadata.name.endsWith('-a')")),
        on_namespaces(
            "by-reason",
            json!({"validations": [{"expression": "object.metadata.name.endsWith('-a')", "reason": "RequestEntityTooLarge"}]}),
        ),
        on_namespaces("by-request", validation("request.name.endsWith('-a')")),
        on_namespaces(
            "absent",
            validation("object.absent == 'a' || object.metadata.name == 'c'"),
        ),
        on_namespaces(
            "absent-ignored",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.absent == 'a'"}]}),
        ),
        // Without a `paramRef`, there is no parameter.
        on_namespaces("no-params", with_params(unguarded, "Fail")),
        on_namespaces("no-params-ignored", with_params(unguarded, "Ignore")),
        on_namespaces(
            "no-params-has",
            with_params(
                "has(params.metadata) && has(params.metadata.name) && object.metadata.name.endsWith(params.metadata.name)",
                "Fail",
            ),
        ),
        on_namespaces(
            "no-params-has-or",
            with_params(
                "(has(params.metadata) && object.metadata.name.endsWith(params.metadata.name)) || object.metadata.name.endsWith('-a')",
                "Fail",
            ),
        ),
        on_namespaces(
            "no-params-null",
            with_params(
                "params != null && object.metadata.name.endsWith(params.metadata.name)",
                "Fail",
            ),
        ),
        on_namespaces(
            "no-params-null-or",
            with_params(
                "(params != null && object.metadata.name.startsWith(params.metadata.name)) || object.metadata.name.endsWith('-a')",
                "Fail",
            ),
        ),
        on_namespaces(
            "no-params-optional",
            with_params("params.?data.?end.orValue('-a') == '-b'", "Fail"),
        ),
        on_namespaces("secret-params", of_kind("Secret"))
            .existing([secret])
            .binding(ends("secret-params")),
        on_namespaces("map-params", of_kind("ConfigMap"))
            .existing([same])
            .binding(ends("map-params")),
        // A Namespace is not in a namespace, so that a reference without one has no parameter.
        on_namespaces(
            "no-namespace",
            with_params("params.data.max == '5'", "Fail"),
        )
        .binding(json!({"paramRef": {"name": "ends", "parameterNotFoundAction": "Allow"}})),
    ]
}

fn messages() -> Vec<Case> {
    let rule = |message: Value| {
        let mut rule = json!({"expression": "object.data.size == 's'"});
        for (key, value) in message.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        json!({"validations": [rule]})
    };
    let tried = |name: &'static str, spec: Value| {
        validating(name, spec).maps(&["a"], &json!({"size": "l"}))
    };
    let long = "x".repeat(200);
    vec![
        // What a message expression cannot say, the message says.
        tried("fails", rule(json!({"messageExpression": "string(object.data.absent)", "message": "the other"}))),
        tried("fails-alone", rule(json!({"messageExpression": "string(object.data.absent)"}))),
        tried("blank", rule(json!({"messageExpression": "'  '", "message": "not blank"}))),
        tried("lines", rule(json!({"messageExpression": "'one\\ntwo'", "message": "a line"}))),
        tried("spaces", rule(json!({"messageExpression": "'  in the middle  '"}))),
        tried(
            "long",
            rule(json!({"messageExpression": format!("[{}].join('{long}')", vec!["''"; 30].join(", ")), "message": "short"})),
        ),
        tried(
            "quotes",
            rule(json!({"messageExpression": "'\"a\" and \\\\ and \\'b\\''"})),
        ),
        tried(
            "unicode",
            json!({"validations": [{"expression": "object.data.size != 'l'", "messageExpression": "'größe ' + object.data.size"}]}),
        ),
        // Each validation has its own message. The first one counts for the reason.
        tried(
            "several",
            json!({"validations": [
                {"expression": "object.data.size != 'm'", "message": "one"},
                {"expression": "object.data.size != 'l'", "message": "two", "reason": "Forbidden"},
                {"expression": "object.data.size == 's'", "message": "three", "reason": "Invalid"},
            ]}),
        ),
        tried(
            "several-warned",
            json!({"validations": [
                {"expression": "object.data.size != 'l'", "message": "one"},
                {"expression": "object.data.absent == 's'", "message": "two"},
                {"expression": "object.data.size == 's'", "message": "a \"third\" one"},
            ]}),
        )
        .actions(&["Warn"]),
        tried(
            "on-lines",
            validation("object.data.size == 's' &&\n  object.data.size != ''\n"),
        ),
        validating("optional", validation("object.?data.?size.orValue('s') == 's' && object.?metadata.?labels[?'team'] != optional.of('b')"))
            .maps(&["a"], &json!({"size": "l"}))
            .maps(&["b"], &json!({})),
    ]
}

fn annotations() -> Vec<Case> {
    let annotated = |name: &'static str, policy: &str, annotations: Value| {
        validating(
            name,
            json!({"failurePolicy": policy, "auditAnnotations": annotations}),
        )
        .maps(&["a"], &json!({"size": "l"}))
    };
    let one = |expression: &str| json!([{"key": "one", "valueExpression": expression}]);
    let failing = "'size: ' + object.data.absent";
    let mut cases = vec![
        annotated(
            "annotates",
            "Fail",
            json!([
                {"key": "size", "valueExpression": "'size ' + object.data.size"},
                {"key": "nothing", "valueExpression": "null"},
                {"key": "blank", "valueExpression": "' '"},
                {"key": "trimmed", "valueExpression": "'  in the middle '"},
            ]),
        ),
        annotated("annotates-never", "Fail", one(failing)),
        annotated("annotates-ignored", "Ignore", one(failing)),
        annotated(
            "annotates-no-params",
            "Fail",
            json!([{"key": "one", "valueExpression": "string(params.metadata.name)"}]),
        ),
    ];
    if let Some(last) = cases.pop() {
        let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let mut spec =
            json!({"paramKind": kind, "auditAnnotations": one("string(params.metadata.name)")});
        cases.push(validating(last.name, spec.clone()).maps(&["a"], &json!({})));
        spec["failurePolicy"] = json!("Ignore");
        cases.push(validating("annotates-no-params-ignored", spec).maps(&["a"], &json!({})));
    }
    let rules = json!({"validations": [
        {"expression": "object.data.size == 's'"},
        {"expression": "object.data.size != 'l'", "message": "not \"large\"", "reason": "Forbidden"},
    ]});
    for (name, actions) in [
        ("warns", &["Warn"][..]),
        ("audits", &["Audit"]),
        ("denies-and-audits", &["Deny", "Audit"]),
        ("audits-and-warns", &["Audit", "Warn"]),
    ] {
        let case = validating(name, rules.clone()).actions(actions);
        cases.push(case.maps(&["a"], &json!({"size": "l"})));
    }
    // With both, a failed expression also denies what only warns.
    cases.push(
        validating(
            "warns-and-annotates",
            json!({"validations": [{"expression": "object.data.size == 's'"}], "auditAnnotations": one(failing)}),
        )
        .actions(&["Warn"])
        .maps(&["a"], &json!({"size": "l"})),
    );
    // The values of several bindings are joined, in no particular order. Equal ones count once.
    cases.push(
        validating(
            "annotates-twice",
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "auditAnnotations": [
                    {"key": "of", "valueExpression": "string(params.data.name)"},
                    {"key": "same", "valueExpression": "string(object.data.size)"},
                ],
            }),
        )
        .existing([
            map("annotates-twice", "first", json!({"name": "1st"})),
            map("annotates-twice", "second", json!({"name": "1st"})),
        ])
        .binding(json!({"paramRef": {"name": "first", "parameterNotFoundAction": "Deny"}}))
        .binding(json!({"paramRef": {"name": "second", "parameterNotFoundAction": "Deny"}}))
        .maps(&["a"], &json!({"size": "l"})),
    );
    cases
}

fn params() -> Vec<Case> {
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let policy = |name: &'static str| {
        let rule = json!({"expression": "object.data.size in params.data", "messageExpression": "params.metadata.name + ' does not have ' + object.data.size"});
        validating(name, json!({"paramKind": kind, "validations": [rule]}))
    };
    let sizes = |case: &str, name: &str, labels: Value, data: Value| {
        let mut object = map(case, name, data);
        object["metadata"]["labels"] = labels;
        object
    };
    let tried = |case: Case| {
        case.maps(&["a"], &json!({"size": "s"}))
            .maps(&["b"], &json!({"size": "l"}))
    };
    let selected = |action: &str| json!({"paramRef": {"selector": {"matchLabels": {"sizes": "yes"}}, "parameterNotFoundAction": action}});
    let both = |case: &str| {
        [
            sizes(
                case,
                "one",
                json!({"sizes": "yes"}),
                json!({"s": "", "l": ""}),
            ),
            sizes(case, "two", json!({"sizes": "yes"}), json!({"s": ""})),
            sizes(case, "three", json!({"sizes": "no"}), json!({})),
        ]
    };
    let bound = |label: &str, name: &str| {
        json!({
            "paramRef": {"name": name, "parameterNotFoundAction": "Deny"},
            "matchResources": {"objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]}},
        })
    };
    let labelled = |labels: Value, name: &str, size: &str| {
        let mut object = map("bindings", name, json!({"size": size}));
        object["metadata"]["labels"] = labels;
        object
    };
    let bindings = validating(
        "bindings",
        json!({
            "paramKind": kind,
            "matchConstraints": {"objectSelector": {"matchExpressions": [{"key": "sized", "operator": "Exists"}]}},
            "validations": [{"expression": "params.data.never != 'yes' && (params.data.all == 'yes' || object.metadata.name.startsWith(params.data.begin))"}],
        }),
    );
    let custom = validating(
        "custom-params",
        json!({
            "paramKind": {"apiVersion": "policies.example.com/v1", "kind": "Limit"},
            "validations": [{"expression": "object.data.size == params.spec.size"}],
        }),
    );
    let limit = json!({
        "apiVersion": "policies.example.com/v1", "kind": "Limit", "metadata": {"name": "sizes"}, "spec": {"size": "s"},
    });
    vec![
        tried(policy("selected").existing(both("selected")).binding(selected("Deny"))),
        tried(policy("selected-nothing").binding(selected("Deny"))),
        tried(policy("selected-nothing-allowed").binding(selected("Allow"))),
        tried(policy("not-found").binding(json!({"paramRef": {"name": "absent", "parameterNotFoundAction": "Deny"}}))),
        tried(policy("not-found-allowed").binding(json!({"paramRef": {"name": "absent", "parameterNotFoundAction": "Allow"}}))),
        tried(
            policy("not-found-warned")
                .binding(json!({"validationActions": ["Warn"], "paramRef": {"name": "absent", "parameterNotFoundAction": "Deny"}})),
        ),
        tried(
            validating("not-found-ignored", json!({"failurePolicy": "Ignore", "paramKind": kind, "validations": [{"expression": "object.data.size in params.data"}]}))
                .binding(json!({"paramRef": {"name": "absent", "parameterNotFoundAction": "Deny"}})),
        ),
        // Objects in another namespace.
        tried(policy("elsewhere").binding(json!({"paramRef": {
            "selector": {}, "namespace": namespace_of("elsewhere-params"), "parameterNotFoundAction": "Deny",
        }})))
        .existing([
            namespace("none", &namespace_of("elsewhere-params")),
            map("elsewhere-params", "all", json!({"s": ""})),
        ]),
        bindings
            .existing([
                map("bindings", "never", json!({"never": "yes"})),
                map("bindings", "all", json!({"never": "no", "all": "yes"})),
                map("bindings", "some", json!({"never": "no", "all": "no", "begin": "some-"})),
            ])
            .binding(bound("never", "never"))
            .binding(bound("all", "all"))
            .binding(bound("some", "some"))
            .creates([
                labelled(json!({"sized": "", "never": ""}), "one", "s"),
                labelled(json!({"sized": "", "all": ""}), "two", "s"),
                labelled(json!({"sized": "", "some": ""}), "some-three", "s"),
                labelled(json!({"sized": "", "some": ""}), "four", "s"),
                labelled(json!({"never": ""}), "five", "s"),
                labelled(json!({"sized": ""}), "six", "s"),
            ]),
        tried(custom)
            .existing([limit])
            .binding(json!({"paramRef": {"name": "sizes", "parameterNotFoundAction": "Deny"}})),
    ]
}

fn conditions() -> Vec<Case> {
    let spec = |policy: &str, conditions: &[&str]| {
        let conditions = conditions.iter().enumerate();
        let conditions = conditions.map(
            |(index, expression)| json!({"name": format!("c{index}"), "expression": expression}),
        );
        json!({
            "failurePolicy": policy,
            "matchConditions": conditions.collect::<Vec<_>>(),
            "validations": [{"expression": "false", "message": "matched"}],
        })
    };
    let absent = "object.data.absent == 'a'";
    let tried = |name: &'static str, spec: Value| {
        validating(name, spec)
            .maps(&["a"], &json!({"size": "s"}))
            .maps(&["b"], &json!({"size": "l"}))
    };
    let existing = |case: &str| [map(case, "old", json!({"size": "s"}))];
    let old = validating(
        "old-object",
        json!({"validations": [
            {"expression": "oldObject == null || object == null || object.data.size == oldObject.data.size", "message": "changed"},
            {"expression": "object != null", "message": "deleted"},
            {"expression": "request.operation != 'CREATE' || oldObject == null", "message": "has an old object"},
        ]}),
    );
    let request = json!({
        "variables": [
            {"name": "text", "expression": "[request.operation, request.resource.group, request.resource.version, request.resource.resource, request.?subResource.orValue(''), request.kind.kind, request.name, request.?namespace.orValue(''), string(request.dryRun), request.userInfo.username, string(request.options.kind)].join(',')"},
            {"name": "objects", "expression": "(object == null ? 'none' : object.kind + ' ' + object.apiVersion) + ' ' + (oldObject == null ? 'none' : oldObject.kind + ' ' + oldObject.apiVersion)"},
        ],
        "validations": [{"expression": "false", "messageExpression": "variables.text + ' ' + variables.objects"}],
    });
    vec![
        tried("condition", spec("Fail", &["object.data.size == 'l'", "true"])),
        tried("condition-fails", spec("Fail", &[absent])),
        tried("condition-fails-ignored", spec("Ignore", &[absent])),
        tried("conditions-fail", spec("Fail", &[absent, "object.data.other == 'a'"])),
        // A condition that is false counts before one that fails.
        tried("condition-false", spec("Fail", &[absent, "object.data.size == 'l'"])),
        old.existing(existing("old-object")).requests([
            create(map("old-object", "new", json!({"size": "s"}))),
            update(map("old-object", "old", json!({"size": "s"}))),
            update(map("old-object", "old", json!({"size": "l"}))),
            delete(map("old-object", "old", json!({}))),
        ]),
        validating("request", request.clone())
            .existing(existing("request"))
            .requests([
                create(map("request", "new", json!({}))),
                update(map("request", "old", json!({}))),
                delete(map("request", "old", json!({}))),
            ]),
        validating("request-of-namespaces", request)
            .matching(on("", &["namespaces", "namespaces/status"]))
            .existing([namespace("request-of-namespaces", "cel-requested")])
            .requests([
                create(namespace("request-of-namespaces", "cel-requested-new")),
                update(namespace("request-of-namespaces", "cel-requested")),
                update(namespace("request-of-namespaces", "cel-requested")).of("status"),
            ]),
        validating(
            "namespace-object",
            json!({"validations": [{
                "expression": "namespaceObject.metadata.labels['case'] == 'other' || object.metadata.name in namespaceObject.metadata.labels",
                "messageExpression": "namespaceObject.metadata.name",
            }]}),
        )
        .maps(&["case", "a"], &json!({})),
        validating(
            "namespace-object-of-none",
            json!({"validations": [{"expression": "namespaceObject != null", "message": "none"}]}),
        )
        .matching(on("", &["namespaces"]))
        .creates([namespace("namespace-object-of-none", "cel-none")]),
    ]
}

fn rights() -> Vec<Case> {
    let user = "policies-alice";
    let robot = "system:serviceaccount:cel-rights-account:robot";
    let may = |user: &str, verb: &str, group: &str, resource: &str| json!({"user": user, "verb": verb, "apiGroup": group, "resource": resource});
    let tried = |name: &'static str, expression: &str, extra: Vec<Value>| {
        let own = [may(user, "create", "", "configmaps")];
        let by_alice = |one: &str| create(map(name, one, json!({}))).by(user);
        let requests: Vec<Request> = vec![by_alice("a"), create(map(name, "a", json!({})))];
        validating(name, validation(expression))
            .rights(own.into_iter().chain(extra))
            .requests(requests)
    };
    let one = "authorizer.group('apps').resource('deployments').subresource('status').namespace('default').name('one').check('create').allowed()";
    let mut named = may("policies-bert", "create", "apps", "deployments/status");
    named["name"] = json!("one");
    let bert = |name: &str| create(map(name, "a", json!({}))).by("policies-bert");
    vec![
        tried("rights-denied", one, Vec::new()),
        tried(
            "rights-granted",
            one,
            vec![named, may("policies-bert", "create", "", "configmaps")],
        )
        .requests([bert("rights-granted")]),
        tried(
            "rights-of-request",
            "authorizer.requestResource.check('wave').allowed()",
            vec![],
        ),
        tried(
            "rights-of-request-granted",
            "authorizer.requestResource.check('nod').allowed()",
            vec![may(user, "nod", "", "configmaps")],
        ),
        tried(
            "rights-account",
            "authorizer.serviceAccount('cel-rights-account', 'robot').group('').resource('pods').check('wave').allowed() && !authorizer.serviceAccount('cel-rights-account', 'other').group('').resource('pods').check('wave').allowed()",
            vec![may(robot, "wave", "", "pods")],
        ),
        tried(
            "rights-condition",
            "authorizer.path('/metrics').check('get').allowed() && !authorizer.group('').resource('secrets').check('list').errored()",
            vec![],
        ),
    ]
}

fn costs() -> Vec<Case> {
    let names = (0..60).map(|index| (format!("k{index}"), json!("v")));
    let many: Value = names.collect();
    let nested = |depth: usize| {
        let open = (0..depth).map(|index| format!("object.data.all(k{index}, "));
        let mut text: String = open.collect();
        text.push_str("true");
        text.push_str(&")".repeat(depth));
        text
    };
    let tried = |name: &'static str, spec: Value| validating(name, spec).maps(&["a"], &many);
    vec![
        tried("cost", validation(&nested(2))),
        // Loops that do not look at the values of a map, or at nothing of its entries.
        tried(
            "keys",
            validation("object.data.all(key, value, key != 'k7')"),
        ),
        tried(
            "nothing-of-entries",
            validation("object.data.all(key, object.metadata.name != 'a')"),
        ),
        tried(
            "nothing-of-values",
            validation("!object.data.exists(key, value, object.metadata.name == 'a')"),
        ),
        tried("cost-of-expression", validation(&nested(5))),
        tried(
            "cost-of-expression-ignored",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": nested(5)}]}),
        ),
        tried(
            "cost-of-condition",
            json!({"matchConditions": [{"name": "all", "expression": nested(5)}], "validations": [{"expression": "false"}]}),
        ),
        tried(
            "cost-of-message",
            json!({"validations": [{"expression": "false", "messageExpression": format!("{} ? 'all' : 'some'", nested(5)), "message": "written"}]}),
        ),
        tried(
            "cost-of-annotation",
            json!({"auditAnnotations": [{"key": "one", "valueExpression": format!("{} ? 'all' : 'some'", nested(5))}]}),
        ),
    ]
}
