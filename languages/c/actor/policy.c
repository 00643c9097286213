/* Follows instructions in the object under review, for the conformance suite. */

#include "tollgate.h"

#define IS(text, literal) tollgate_equal((text), TOLLGATE_TEXT(literal))

static tollgate_text what_to_do(void) {
    tollgate_value value;
    bool is_there = tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/data/do"), &value);
    return is_there && value.kind == TOLLGATE_STRING ? value.text : (tollgate_text){0};
}

__attribute__((noinline)) static int act(tollgate_text what, volatile int depth) {
    if (IS(what, "throw")) {
        TOLLGATE_ABORT(TOLLGATE_TEXT("boom"));
    }
    if (IS(what, "crash")) {
        TOLLGATE_ASSERT(depth == 1);
    }
    while (IS(what, "loop")) {
        depth++;
    }
    while (IS(what, "memory")) {
        tollgate_allocate(1 << 20);
    }
    if (IS(what, "recurse")) {
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

const tollgate_denial *tollgate_validate(void) {
    tollgate_text what = what_to_do();
    if (IS(what, "deny")) {
        tollgate_denial *denial = tollgate_deny(TOLLGATE_TEXT("no"));
        tollgate_deny_with_code(denial, 422);
        tollgate_blame(denial, tollgate_child(TOLLGATE_TEXT("/data"), TOLLGATE_TEXT("a/b")), TOLLGATE_TEXT("wrong"));
        return denial;
    }
    if (IS(what, "wrong pointer")) {
        return tollgate_if_blamed(NULL);
    }
    if (IS(what, "no answer") || IS(what, "wrong answer")) {
        return NULL;
    }
    if (IS(what, "read")) {
        read_all();
    }
    if (IS(what, "read many")) {
        read_many();
    }
    if (IS(what, "namespace")) {
        tollgate_value team;
        tollgate_get(TOLLGATE_NAMESPACE, TOLLGATE_TEXT("/metadata/labels/team"), &team);
    }
    if (IS(what, "whole")) {
        tollgate_text json;
        TOLLGATE_ASSERT(tollgate_get_json(TOLLGATE_OBJECT, (tollgate_text){0}, &json));
        tollgate_warn(truth(json.length > 1 << 20));
    }
    if (IS(what, "pointer")) {
        tollgate_value value;
        tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("data"), &value);
    }
    if (IS(what, "log")) {
        tollgate_log(TOLLGATE_INFO, TOLLGATE_TEXT("hello"));
    }
    act(what, 0);
    return TOLLGATE_ALLOW;
}

const tollgate_mutation *tollgate_mutate(void) {
    tollgate_text what = what_to_do();
    if (IS(what, "patch")) {
        tollgate_mutation *patch = tollgate_patch();
        tollgate_add(patch, TOLLGATE_TEXT("/metadata/annotations"), TOLLGATE_TEXT("{}"));
        tollgate_add(patch, TOLLGATE_TEXT("/metadata/annotations/a~1b"), tollgate_quoted(TOLLGATE_TEXT("ü\"\n")));
        tollgate_add(patch, TOLLGATE_TEXT("/data/done"), TOLLGATE_TEXT("true"));
        tollgate_remove(patch, TOLLGATE_TEXT("/data/text"));
        return patch;
    }
    if (IS(what, "merge")) {
        return tollgate_merge(TOLLGATE_TEXT("{\"data\":{\"text\":null,\"done\":true}}"));
    }
    if (IS(what, "throw") || IS(what, "loop")) {
        act(what, 0);
    }
    return TOLLGATE_UNCHANGED;
}

static const tollgate_rule rules[] = {{
    .operations = TOLLGATE_TEXTS({"*", 1}),
    .api_groups = TOLLGATE_TEXTS({"*", 1}),
    .api_versions = TOLLGATE_TEXTS({"*", 1}),
    .resources = TOLLGATE_TEXTS({"*/*", 3}),
}};

const tollgate_manifest_record tollgate_manifest = {
    .name = {"actor", 5},
    .version = {"0.1.0", 5},
    .rules = {rules, 1},
};

TOLLGATE_VALIDATOR
TOLLGATE_MUTATOR
