/* Follows instructions in the object under review, for the conformance suite. */

#include "tollgate.h"

static tollgate_text what_to_do(void) {
    tollgate_value value;
    bool is_there = tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/do"), &value);
    return is_there && value.kind == TOLLGATE_STRING ? value.text : (tollgate_text){0};
}

__attribute__((noinline)) static int act(tollgate_text what, volatile int depth) {
    if (TOLLGATE_IS(what, "throw")) {
        TOLLGATE_ABORT(TOLLGATE_TEXT("boom"));
    }
    if (TOLLGATE_IS(what, "crash")) {
        TOLLGATE_ASSERT(depth == 1);
    }
    while (TOLLGATE_IS(what, "loop")) {
        depth++;
    }
    while (TOLLGATE_IS(what, "memory")) {
        tollgate_allocate(1 << 20);
    }
    if (TOLLGATE_IS(what, "recurse")) {
        volatile char frame[256];
        frame[0] = (char)depth;
        return act(what, depth + 1) + frame[0];
    }
    return depth;
}

void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors) {
    (void)errors;
    tollgate_text name, value;
    while (tollgate_json_member(&settings, &name)) {
        if (tollgate_json_string(&settings, &value)) {
            act(value, 0);
        }
    }
}

static tollgate_text truth(bool truth) { return truth ? TOLLGATE_TEXT("true") : TOLLGATE_TEXT("false"); }

static void read_all(void) {
    tollgate_value big, text, null, absent;
    tollgate_texts keys;
    tollgate_text exact;
    TOLLGATE_ASSERT(tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/big"), &big) && big.kind == TOLLGATE_INTEGER);
    TOLLGATE_ASSERT(tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/text"), &text) && text.kind == TOLLGATE_STRING);
    bool is_null = tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/null"), &null) && null.kind == TOLLGATE_NULL;
    bool is_there = tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/absent"), &absent);
    TOLLGATE_ASSERT(tollgate_keys(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/members"), &keys) && keys.count == 2);
    TOLLGATE_ASSERT(tollgate_get_json(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/exact"), &exact));
    tollgate_text space = TOLLGATE_TEXT(" ");
    tollgate_warn(TOLLGATE_JOIN(tollgate_of_integer(big.integer), space, text.text, space, truth(is_null), space,
                                truth(is_there), TOLLGATE_TEXT(" ["), keys.at[0], space, keys.at[1],
                                TOLLGATE_TEXT("] "), exact));
    tollgate_value operation;
    tollgate_get(TOLLGATE_REQUEST, TOLLGATE_TEXT("/operation"), &operation);
    tollgate_annotate(TOLLGATE_TEXT("operation"), operation.text);
}

static void read_many(void) {
    tollgate_found_list found = TOLLGATE_GET_MANY(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/big"),
                                                  TOLLGATE_TEXT("/data/absent"), TOLLGATE_TEXT("/data/text"));
    TOLLGATE_ASSERT(found.count == 3 && found.at[0].is_there && found.at[2].is_there);
    tollgate_text space = TOLLGATE_TEXT(" ");
    tollgate_warn(TOLLGATE_JOIN(tollgate_of_integer(found.at[0].value.integer), space, truth(found.at[1].is_there),
                                space, found.at[2].value.text));
}

static tollgate_text datum(tollgate_text member) {
    tollgate_value value;
    bool is_there = tollgate_get(TOLLGATE_OBJECT, tollgate_child(TOLLGATE_TEXT("/data"), member), &value);
    return is_there && value.kind == TOLLGATE_STRING ? value.text : (tollgate_text){0};
}

static void show(const tollgate_cluster_object *object) {
    tollgate_json found, rules;
    tollgate_text hosts = {0}, host, label = TOLLGATE_TEXT("-");
    if (tollgate_json_at(object->fields, TOLLGATE_TEXT("/spec/rules"), &rules)) {
        for (size_t index = 0; tollgate_json_element(&rules); index++) {
            tollgate_text at = TOLLGATE_JOIN(TOLLGATE_TEXT("/spec/rules/"), tollgate_of_integer((int64_t)index),
                                             TOLLGATE_TEXT("/host"));
            if (tollgate_json_at(object->fields, at, &found) && tollgate_json_string(&found, &host)) {
                hosts = hosts.length == 0 ? host : TOLLGATE_JOIN(hosts, TOLLGATE_TEXT(" "), host);
            }
            tollgate_json_skip(&rules);
        }
    }
    if (tollgate_json_at(object->fields, TOLLGATE_TEXT("/metadata/labels/a~1b"), &found)) {
        tollgate_json_string(&found, &label);
    }
    bool has_uid = tollgate_json_at(object->fields, TOLLGATE_TEXT("/metadata/uid"), &found);
    tollgate_text namespace = object->namespace.is_there ? object->namespace.text : TOLLGATE_TEXT("-");
    tollgate_warn(TOLLGATE_JOIN(namespace, TOLLGATE_TEXT("/"), object->name, TOLLGATE_TEXT(" ["), hosts,
                                TOLLGATE_TEXT("] "), label, TOLLGATE_TEXT(" "), truth(has_uid)));
}

/* Reads the lookup that the object names, and warns with what it finds. */
static void look_up(tollgate_text what) {
    tollgate_text lookup = datum(TOLLGATE_TEXT("lookup")), name = datum(TOLLGATE_TEXT("namespace")), why;
    tollgate_option namespace = {name.length > 0, name};
    if (TOLLGATE_IS(what, "get")) {
        tollgate_cluster_object object;
        bool is_there;
        if (tollgate_cluster_get(lookup, namespace, datum(TOLLGATE_TEXT("name")), &is_there, &object, &why) !=
            TOLLGATE_ANSWERED) {
            TOLLGATE_ABORT(why);
        }
        if (is_there) {
            show(&object);
        } else {
            tollgate_warn(TOLLGATE_TEXT("none"));
        }
        return;
    }
    tollgate_cluster_objects objects =
        TOLLGATE_IS(what, "find") ? tollgate_cluster_find(lookup, datum(TOLLGATE_TEXT("index")), datum(TOLLGATE_TEXT("key")))
                         : tollgate_cluster_list(lookup, namespace);
    while (tollgate_cluster_next(&objects)) {
        show(&objects.object);
    }
    if (objects.result == TOLLGATE_ANSWERED) {
        return;
    }
    if (!TOLLGATE_IS(what, "lookup")) {
        TOLLGATE_ABORT(objects.why);
    }
    tollgate_warn(objects.result == TOLLGATE_NOT_GRANTED ? TOLLGATE_TEXT("not granted")
                                                         : TOLLGATE_TEXT("not synchronised"));
}

/* Asks about the right that the object names, and warns with the answer. `rights` warns with the kind of a failure. */
static void ask(tollgate_text what) {
    tollgate_action action = {
        .verb = datum(TOLLGATE_TEXT("verb")),
        .group = datum(TOLLGATE_TEXT("group")),
        .resource = datum(TOLLGATE_TEXT("resource")),
        .subresource = datum(TOLLGATE_TEXT("subresource")),
        .namespace = datum(TOLLGATE_TEXT("namespace")),
        .name = datum(TOLLGATE_TEXT("name")),
        .path = datum(TOLLGATE_TEXT("path")),
    };
    tollgate_service_account account = {datum(TOLLGATE_TEXT("accountNamespace")), datum(TOLLGATE_TEXT("account"))};
    tollgate_decision decision;
    tollgate_text why;
    tollgate_access_result result =
        tollgate_access_check(&action, account.name.length > 0 ? &account : NULL, &decision, &why);
    if (result == TOLLGATE_ACCESS_ANSWERED) {
        tollgate_warn(TOLLGATE_JOIN(truth(decision.allowed), TOLLGATE_TEXT(" "), decision.reason));
        return;
    }
    if (!TOLLGATE_IS(what, "rights")) {
        TOLLGATE_ABORT(why);
    }
    tollgate_warn(result == TOLLGATE_ACCESS_NOT_GRANTED ? TOLLGATE_TEXT("not granted") : TOLLGATE_TEXT("unavailable"));
}

/* Asks about the images that the object names, and warns with each answer. */
static void verify(void) {
    static const char *const kinds[] = {
        [TOLLGATE_IMAGE_UNAVAILABLE] = "unavailable", [TOLLGATE_IMAGE_MALFORMED] = "malformed",
        [TOLLGATE_IMAGE_NOT_GRANTED] = "not granted", [TOLLGATE_IMAGE_NOT_FOUND] = "not found",
        [TOLLGATE_IMAGE_UNSIGNED] = "unsigned",       [TOLLGATE_IMAGE_UNTRUSTED] = "untrusted",
    };
    tollgate_nodes images = tollgate_select(TOLLGATE_OBJECT, TOLLGATE_POINTER("/data/images/*"));
    tollgate_image_request *requests = tollgate_allocate(images.count * sizeof *requests);
    for (size_t index = 0; index < images.count; index++) {
        requests[index] = (tollgate_image_request){images.at[index].value.text, datum(TOLLGATE_TEXT("policy"))};
    }
    const tollgate_image_answer *answers = tollgate_images_verify(images.count, requests);
    for (size_t index = 0; index < images.count; index++) {
        tollgate_image_answer answer = answers[index];
        if (answer.result == TOLLGATE_IMAGE_VERIFIED) {
            tollgate_text signers = {0};
            for (size_t signer = 0; signer < answer.signers.count; signer++) {
                signers = TOLLGATE_JOIN(signers, TOLLGATE_TEXT(" "), answer.signers.at[signer]);
            }
            tollgate_warn(TOLLGATE_JOIN(TOLLGATE_TEXT("verified "), truth(answer.pinned), TOLLGATE_TEXT(" "),
                                        truth(answer.last_known_good), signers, TOLLGATE_TEXT(" "), answer.digest));
            continue;
        }
        tollgate_text kind = {kinds[answer.result], 0};
        while (kind.at[kind.length] != '\0') {
            kind.length++;
        }
        tollgate_warn(TOLLGATE_JOIN(kind, TOLLGATE_TEXT(" "), answer.digest.length > 0 ? answer.digest : TOLLGATE_TEXT("-"),
                                    TOLLGATE_TEXT(" "), answer.reason));
    }
}

const tollgate_denial *tollgate_validate(void) {
    tollgate_text what = what_to_do();
    if (TOLLGATE_IS(what, "deny")) {
        tollgate_denial *denial = tollgate_deny(TOLLGATE_TEXT("no"));
        tollgate_deny_with_code(denial, 422);
        tollgate_blame(denial, tollgate_child(TOLLGATE_TEXT("/data"), TOLLGATE_TEXT("a/b")), TOLLGATE_TEXT("wrong"));
        return denial;
    }
    if (TOLLGATE_IS(what, "wrong pointer")) {
        return tollgate_if_blamed(NULL);
    }
    if (TOLLGATE_IS(what, "no answer") || TOLLGATE_IS(what, "wrong answer")) {
        return NULL;
    }
    if (TOLLGATE_IS(what, "read")) {
        read_all();
    }
    if (TOLLGATE_IS(what, "read many")) {
        read_many();
    }
    if (TOLLGATE_IS(what, "namespace")) {
        tollgate_value team;
        tollgate_get(TOLLGATE_NAMESPACE, TOLLGATE_TEXT("/metadata/labels/team"), &team);
    }
    if (TOLLGATE_IS(what, "whole")) {
        tollgate_text json;
        TOLLGATE_ASSERT(tollgate_get_json(TOLLGATE_OBJECT, (tollgate_text){0}, &json));
        tollgate_warn(truth(json.length > 1 << 20));
    }
    if (TOLLGATE_IS(what, "pointer")) {
        /* A variable, because a literal without its slash does not compile. */
        tollgate_text malformed = TOLLGATE_TEXT("data");
        tollgate_value value;
        tollgate_get(TOLLGATE_OBJECT, malformed, &value);
    }
    if (TOLLGATE_IS(what, "escape")) {
        tollgate_value value;
        tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/a~b"), &value);
    }
    if (TOLLGATE_IS(what, "log")) {
        tollgate_log(TOLLGATE_INFO, TOLLGATE_TEXT("hello"));
    }
    if (TOLLGATE_IS(what, "get") || TOLLGATE_IS(what, "find") || TOLLGATE_IS(what, "list") || TOLLGATE_IS(what, "lookup")) {
        look_up(what);
    }
    if (TOLLGATE_IS(what, "may") || TOLLGATE_IS(what, "rights")) {
        ask(what);
    }
    if (TOLLGATE_IS(what, "verify")) {
        verify();
    }
    act(what, 0);
    return TOLLGATE_ALLOW;
}

const tollgate_mutation *tollgate_mutate(void) {
    tollgate_text what = what_to_do();
    if (TOLLGATE_IS(what, "patch")) {
        tollgate_mutation *patch = tollgate_patch();
        tollgate_set(patch, TOLLGATE_POINTER("/metadata/annotations/a~1b"), tollgate_quoted(TOLLGATE_TEXT("ü\"\n")));
        tollgate_set(patch, TOLLGATE_POINTER("/data/done"), TOLLGATE_TEXT("true"));
        tollgate_remove(patch, TOLLGATE_TEXT("/data/text"));
        return patch;
    }
    if (TOLLGATE_IS(what, "pointer")) {
        tollgate_text malformed = TOLLGATE_TEXT("data/text");
        tollgate_mutation *patch = tollgate_patch();
        tollgate_remove(patch, malformed);
        return patch;
    }
    if (TOLLGATE_IS(what, "merge")) {
        return tollgate_merge(TOLLGATE_TEXT("{\"data\":{\"text\":null,\"done\":true}}"));
    }
    if (TOLLGATE_IS(what, "throw") || TOLLGATE_IS(what, "loop")) {
        act(what, 0);
    }
    return TOLLGATE_UNCHANGED;
}

static const tollgate_rule rules[] = {{
    .operations = TOLLGATE_LITERALS("*"),
    .api_groups = TOLLGATE_LITERALS("*"),
    .api_versions = TOLLGATE_LITERALS("*"),
    .resources = TOLLGATE_LITERALS("*/*"),
}};

const tollgate_manifest_record tollgate_manifest = {
    .name = TOLLGATE_LITERAL("actor"),
    .version = TOLLGATE_LITERAL("0.1.0"),
    .rules = {rules, 1},
};

TOLLGATE_VALIDATOR
TOLLGATE_MUTATOR
