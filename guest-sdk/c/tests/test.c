/* Tests of the SDK with the compiler of this machine and a host in memory. Prints each failed check, and returns 1. */

#define TOLLGATE_TEST
#include "../src/tollgate.c"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The host ---- */

static jmp_buf ended;
static char said[512];
static uint32_t said_line;

/* The object: {"metadata": {"annotations": null}, "spec": {"list": [1, 2], "type": "LoadBalancer"}} */
static bool object_has(tollgate_text pointer, tollgate_value *value) {
    *value = (tollgate_value){.kind = TOLLGATE_MEMBERS, .length = 1};
    if (TOLLGATE_IS(pointer, "/metadata") || TOLLGATE_IS(pointer, "/spec")) {
        return true;
    }
    if (TOLLGATE_IS(pointer, "/metadata/annotations")) {
        *value = (tollgate_value){.kind = TOLLGATE_NULL};
        return true;
    }
    if (TOLLGATE_IS(pointer, "/spec/list")) {
        *value = (tollgate_value){.kind = TOLLGATE_ARRAY, .length = 2};
        return true;
    }
    return false;
}

void host_get(uint32_t part, const char *at, size_t length, void *area) {
    tollgate_found *found = area;
    found->is_there = part == TOLLGATE_OBJECT && object_has((tollgate_text){at, length}, &found->value);
}

void host_get_json(uint32_t part, const char *at, size_t length, void *area) {
    (void)part, (void)at, (void)length;
    *(tollgate_option *)area = (tollgate_option){0};
}

void host_get_many(uint32_t part, const tollgate_text *at, size_t count, void *area) {
    (void)part, (void)at, (void)count;
    *(tollgate_found_list *)area = (tollgate_found_list){0};
}

void host_keys(uint32_t part, const char *at, size_t length, void *area) {
    (void)part, (void)at, (void)length;
    *(bool *)area = false;
}

void host_select(uint32_t part, const char *at, size_t length, void *area) {
    (void)part, (void)at, (void)length;
    *(tollgate_nodes *)area = (tollgate_nodes){0};
}

void host_warn(const char *at, size_t length) { (void)at, (void)length; }
void host_annotate(const char *key, size_t key_length, const char *value, size_t value_length) {
    (void)key, (void)key_length, (void)value, (void)value_length;
}
void host_log(uint32_t level, const char *at, size_t length) { (void)level, (void)at, (void)length; }

void host_abort(const char *at, size_t length, uint32_t known, const char *file, size_t file_length, uint32_t line,
                uint32_t column) {
    (void)known, (void)file, (void)file_length, (void)column;
    snprintf(said, sizeof said, "%.*s", (int)length, at);
    said_line = line;
    longjmp(ended, 1);
}

/* No test looks up an object of the cluster. */
void host_cluster_get(const char *lookup, size_t lookup_length, uint32_t is_namespaced, const char *namespace,
                      size_t namespace_length, const char *name, size_t name_length, void *area) {
    (void)lookup, (void)lookup_length, (void)is_namespaced, (void)namespace, (void)namespace_length, (void)name;
    (void)name_length, (void)area;
    abort();
}
void host_cluster_find(const char *lookup, size_t lookup_length, const char *index, size_t index_length,
                       const char *key, size_t key_length, uint32_t is_after, const char *after, size_t after_length,
                       void *area) {
    (void)lookup, (void)lookup_length, (void)index, (void)index_length, (void)key, (void)key_length, (void)is_after;
    (void)after, (void)after_length, (void)area;
    abort();
}
void host_cluster_list(const char *lookup, size_t lookup_length, uint32_t is_namespaced, const char *namespace,
                       size_t namespace_length, uint32_t is_after, const char *after, size_t after_length, void *area) {
    (void)lookup, (void)lookup_length, (void)is_namespaced, (void)namespace, (void)namespace_length, (void)is_after;
    (void)after, (void)after_length, (void)area;
    abort();
}

/* Allows the service account `robot`, and `get` on paths. Does not answer about Secrets, and not about the verb `list`. */
void host_access_check(const void *asked, void *area) {
    const access_question *question = asked;
    access_answer *answer = area;
    *answer = (access_answer){.is_failure = true};
    if (TOLLGATE_IS(question->texts.of_path[0], "list")) {
        answer->failure.text = TOLLGATE_TEXT("ask something else");
    } else if (!question->is_path && TOLLGATE_IS(question->texts.of_resource[2], "secrets")) {
        answer->failure.kind = 1;
        answer->failure.text = TOLLGATE_TEXT("away");
    } else {
        bool is_robot = question->has_account && TOLLGATE_IS(question->account.name, "robot");
        *answer = (access_answer){.decision = {.allowed = is_robot || question->is_path, .reason = TOLLGATE_TEXT("so")}};
    }
}

/* Answers with the kind of failure that the policy names by a digit. `9` is verified. */
void host_images_verify(const tollgate_image_request *requests, size_t count, void *area) {
    static const tollgate_text signer = {"release", 7};
    image_answer *answers = tollgate_allocate(count * sizeof *answers);
    for (size_t index = 0; index < count; index++) {
        uint8_t kind = (uint8_t)(requests[index].policy.at[0] - '0');
        answers[index] = (image_answer){.is_failure = kind < 9};
        if (kind == 9) {
            answers[index].verified.digest = requests[index].image;
            answers[index].verified.pinned = true;
            answers[index].verified.signers = (tollgate_texts){&signer, 1};
            answers[index].verified.last_known_good = true;
        } else {
            answers[index].failure.kind = kind;
            answers[index].failure.texts[0] = requests[index].image;
            answers[index].failure.texts[1] = TOLLGATE_TEXT("why");
        }
    }
    *(image_answers *)area = (image_answers){answers, count};
}

/* ---- A plugin ---- */

static const tollgate_rule rules[] = {{
    .operations = TOLLGATE_LITERALS("CREATE", "UPDATE"),
    .api_groups = TOLLGATE_LITERALS(""),
    .api_versions = TOLLGATE_LITERALS("v1", "v1beta1", "v1alpha1", "v2", "v3", "v4", "v5", "v6"),
    .resources = TOLLGATE_LITERALS("services"),
}};
const tollgate_manifest_record tollgate_manifest = {.name = TOLLGATE_LITERAL("test"), .rules = {rules, 1}};
void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors) { (void)settings, (void)errors; }

/* ---- Checks ---- */

static int failures;

static void check(bool condition, const char *what, int line) {
    if (!condition) {
        printf("%s:%d: %s\n", __FILE__, line, what);
        failures++;
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define SAYS(expected) check(strcmp(said, (expected)) == 0, said, __LINE__)
/* Runs a statement that ends the call at this line. */
#define ENDS(statement)                                                                                                \
    do {                                                                                                               \
        said[0] = '\0';                                                                                                \
        if (setjmp(ended) == 0) {                                                                                      \
            statement;                                                                                                 \
            check(false, "did not end the call: " #statement, __LINE__);                                               \
        }                                                                                                              \
        check(said_line == __LINE__, "another line: " #statement, __LINE__);                                           \
    } while (0)

static void literals_have_the_length_of_their_text(void) {
    CHECK(TOLLGATE_IS(TOLLGATE_TEXT("LoadBalancer"), "LoadBalancer"));
    CHECK(!TOLLGATE_IS(TOLLGATE_TEXT("LoadBalancer"), "LoadBalance"));
    CHECK(!TOLLGATE_IS(TOLLGATE_TEXT("LoadBalancer"), "LoadBalancers"));
    CHECK(rules[0].operations.count == 2 && TOLLGATE_IS(rules[0].operations.at[1], "UPDATE"));
    CHECK(rules[0].api_groups.count == 1 && rules[0].api_groups.at[0].length == 0);
    CHECK(rules[0].api_versions.count == 8 && TOLLGATE_IS(rules[0].api_versions.at[7], "v6"));
    CHECK(tollgate_manifest.name.length == 4);
    static const tollgate_text places[] = {TOLLGATE_POINTER_LITERAL("/spec/type"), TOLLGATE_POINTER_LITERAL("")};
    CHECK(places[0].length == 10 && places[1].length == 0);
}

static void a_malformed_pointer_names_itself_and_the_line(void) {
    /* A variable, because clang refuses a literal. */
    tollgate_text bad = TOLLGATE_TEXT("spec/replicas");
    tollgate_text json = TOLLGATE_TEXT("1");
    tollgate_value value;
    tollgate_texts keys;
    tollgate_mutation *patch = tollgate_patch();
    ENDS(tollgate_get(TOLLGATE_OBJECT, bad, &value));
    SAYS("`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`");
    ENDS(tollgate_get_json(TOLLGATE_OBJECT, bad, &json));
    ENDS(TOLLGATE_GET_MANY(TOLLGATE_OBJECT, TOLLGATE_TEXT("/spec"), bad));
    ENDS(tollgate_keys(TOLLGATE_OBJECT, bad, &keys));
    ENDS(tollgate_select(TOLLGATE_OBJECT, bad));
    ENDS(tollgate_add(patch, bad, json));
    ENDS(tollgate_replace(patch, bad, json));
    ENDS(tollgate_remove(patch, bad));
    ENDS(tollgate_set(patch, bad, json));
    ENDS(tollgate_append(patch, bad, json));
    SAYS("`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`");
    ENDS(tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/metadata/annotations/a~2b"), &value));
    SAYS("`/metadata/annotations/a~2b` is no JSON Pointer: a `~` is followed by neither 0 nor 1; write `~0` for `~` and "
         "`~1` for `/`, or make it with tollgate_child");
    ENDS(tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/a~"), &value));
    CHECK(!tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("/~0~1"), &value));
    CHECK(!tollgate_get(TOLLGATE_OBJECT, (tollgate_text){0}, &value));
}

static void a_pointer_leads_to_a_value_in_json(void) {
    tollgate_text json = TOLLGATE_TEXT("{\"a/b\": {\"list\": [1, 22]}}");
    tollgate_json found;
    int64_t integer = 0;
    CHECK(tollgate_json_at(json, TOLLGATE_TEXT("/a~1b/list/1"), &found));
    CHECK(tollgate_json_integer(&found, &integer) && integer == 22);
    CHECK(!tollgate_json_at(json, TOLLGATE_TEXT("/a~1b/list/2"), &found));
    CHECK(!tollgate_json_at(json, TOLLGATE_TEXT("/a"), &found));
    ENDS(tollgate_json_at(json, TOLLGATE_TEXT("/a~2b"), &found));
}

static void a_tilde_is_found_at_every_place(void) {
    char bytes[40];
    for (size_t length = 0; length < sizeof bytes; length++) {
        memset(bytes, 0x7F, sizeof bytes);
        CHECK(!has_tilde(bytes, length));
        for (size_t place = 0; place < length; place++) {
            memset(bytes, 0x7D, sizeof bytes);
            bytes[place] = '~';
            CHECK(has_tilde(bytes, length));
        }
    }
}

static bool is_operation(const tollgate_mutation *patch, size_t index, uint8_t tag, const char *path, const char *json) {
    operation one = patch->operations[index];
    return index < patch->count && one.tag == tag && tollgate_equal(one.path, of_string(path)) &&
           tollgate_equal(one.value, of_string(json));
}

static void setting_makes_each_missing_parent_once(void) {
    tollgate_mutation *patch = tollgate_patch();
    tollgate_text json = TOLLGATE_TEXT("1");
    tollgate_set(patch, TOLLGATE_POINTER("/metadata/annotations/a"), json);
    tollgate_set(patch, TOLLGATE_POINTER("/metadata/annotations/b"), json);
    tollgate_set(patch, TOLLGATE_POINTER("/spec/a/b/c"), json);
    tollgate_set(patch, TOLLGATE_POINTER("/spec/list/1"), json);
    tollgate_set(patch, TOLLGATE_POINTER("/top"), json);
    CHECK(patch->count == 8);
    CHECK(is_operation(patch, 0, ADD, "/metadata/annotations", "{}"));
    CHECK(is_operation(patch, 1, ADD, "/metadata/annotations/a", "1"));
    CHECK(is_operation(patch, 2, ADD, "/metadata/annotations/b", "1"));
    CHECK(is_operation(patch, 3, ADD, "/spec/a", "{}"));
    CHECK(is_operation(patch, 4, ADD, "/spec/a/b", "{}"));
    CHECK(is_operation(patch, 5, ADD, "/spec/a/b/c", "1"));
    CHECK(is_operation(patch, 6, REPLACE, "/spec/list/1", "1"));
    CHECK(is_operation(patch, 7, ADD, "/top", "1"));
}

static void appending_makes_a_missing_list_once(void) {
    tollgate_mutation *patch = tollgate_patch();
    tollgate_text json = TOLLGATE_TEXT("3");
    tollgate_append(patch, TOLLGATE_POINTER("/spec/list"), json);
    tollgate_append(patch, TOLLGATE_POINTER("/spec/new/list"), json);
    tollgate_append(patch, TOLLGATE_POINTER("/spec/new/list"), json);
    CHECK(patch->count == 5);
    CHECK(is_operation(patch, 0, ADD, "/spec/list/-", "3"));
    CHECK(is_operation(patch, 1, ADD, "/spec/new", "{}"));
    CHECK(is_operation(patch, 2, ADD, "/spec/new/list", "[]"));
    CHECK(is_operation(patch, 3, ADD, "/spec/new/list/-", "3"));
    CHECK(is_operation(patch, 4, ADD, "/spec/new/list/-", "3"));
}

static bool reads_integer(const char *text, int64_t expected) {
    int64_t integer = 0;
    tollgate_json json = {of_string(text), 0};
    return tollgate_json_integer(&json, &integer) && integer == expected && json.place == json.text.length;
}

static void an_integer_is_read_exactly_or_not_at_all(void) {
    CHECK(reads_integer("0", 0) && reads_integer(" 42", 42) && reads_integer("-7", -7));
    CHECK(reads_integer("9223372036854775807", INT64_MAX) && reads_integer("-9223372036854775808", INT64_MIN));
    const char *others[] = {"9223372036854775808", "-9223372036854775809", "99999999999999999999", "1.0", "1e3",
                            "\"1\"",               "true",                 "null",                 "[1]", "{\"a\":1}"};
    for (size_t index = 0; index < sizeof others / sizeof others[0]; index++) {
        int64_t integer = 5;
        tollgate_json json = {of_string(others[index]), 0};
        check(!tollgate_json_integer(&json, &integer) && integer == 5, others[index], __LINE__);
        check(json.place == json.text.length, others[index], __LINE__);
    }
}

static void settings_are_read_one_after_the_other(void) {
    tollgate_json json = {TOLLGATE_TEXT("{\"most\": 12 , \"strict\": true, \"loose\": false, \"other\": \"true\"}"), 0};
    tollgate_text name;
    int64_t most = 0;
    bool strict = false, loose = true;
    CHECK(tollgate_json_member(&json, &name) && tollgate_json_integer(&json, &most) && most == 12);
    CHECK(tollgate_json_member(&json, &name) && tollgate_json_boolean(&json, &strict) && strict);
    CHECK(tollgate_json_member(&json, &name) && tollgate_json_boolean(&json, &loose) && !loose);
    CHECK(tollgate_json_member(&json, &name) && !tollgate_json_boolean(&json, &loose) && !loose);
    CHECK(!tollgate_json_member(&json, &name));
}

static void only_a_decision_allows(void) {
    tollgate_decision decision;
    tollgate_text why = {0};
    tollgate_action get = {.verb = TOLLGATE_TEXT("get"), .resource = TOLLGATE_TEXT("pods")};
    CHECK(tollgate_access_check(&get, NULL, &decision, &why) == TOLLGATE_ACCESS_ANSWERED);
    CHECK(!decision.allowed && TOLLGATE_IS(decision.reason, "so") && !decision.error.is_there);
    tollgate_service_account robot = {TOLLGATE_TEXT("shop"), TOLLGATE_TEXT("robot")};
    CHECK(tollgate_access_check(&get, &robot, &decision, &why) == TOLLGATE_ACCESS_ANSWERED && decision.allowed);
    tollgate_action metrics = {.verb = TOLLGATE_TEXT("get"), .path = TOLLGATE_TEXT("/metrics")};
    CHECK(tollgate_access_check(&metrics, NULL, &decision, &why) == TOLLGATE_ACCESS_ANSWERED && decision.allowed);
    tollgate_action secrets = {.verb = TOLLGATE_TEXT("get"), .resource = TOLLGATE_TEXT("secrets")};
    CHECK(tollgate_access_check(&secrets, &robot, &decision, &why) == TOLLGATE_ACCESS_UNAVAILABLE);
    CHECK(!decision.allowed && TOLLGATE_IS(why, "away"));
    tollgate_action list = {.verb = TOLLGATE_TEXT("list"), .resource = TOLLGATE_TEXT("pods")};
    CHECK(tollgate_access_check(&list, &robot, &decision, &why) == TOLLGATE_ACCESS_NOT_GRANTED);
    CHECK(!decision.allowed && TOLLGATE_IS(why, "ask something else"));
}

static void only_a_verified_image_counts(void) {
    static const tollgate_image_result expected[] = {
        TOLLGATE_IMAGE_MALFORMED, TOLLGATE_IMAGE_NOT_GRANTED, TOLLGATE_IMAGE_NOT_FOUND,   TOLLGATE_IMAGE_UNSIGNED,
        TOLLGATE_IMAGE_UNTRUSTED, TOLLGATE_IMAGE_UNAVAILABLE, TOLLGATE_IMAGE_UNAVAILABLE, TOLLGATE_IMAGE_VERIFIED,
    };
    tollgate_image_request requests[8];
    for (size_t index = 0; index < 8; index++) {
        tollgate_text policy = tollgate_of_integer(index == 7 ? 9 : index == 6 ? 5 : (int64_t)index);
        requests[index] = (tollgate_image_request){TOLLGATE_TEXT("nginx"), policy};
    }
    const tollgate_image_answer *answers = tollgate_images_verify(8, requests);
    for (size_t index = 0; index < 8; index++) {
        CHECK(answers[index].result == expected[index]);
        bool is_refusal = index == 3 || index == 4;
        CHECK(answers[index].digest.length == (is_refusal || index == 7 ? 5 : 0));
        CHECK(answers[index].reason.length == (index == 7 ? 0 : is_refusal ? 3 : 5));
    }
    CHECK(answers[7].pinned && answers[7].last_known_good);
    CHECK(answers[7].signers.count == 1 && TOLLGATE_IS(answers[7].signers.at[0], "release"));
    CHECK((tollgate_image_answer){0}.result != TOLLGATE_IMAGE_VERIFIED);
    requests[0].policy = TOLLGATE_TEXT("6");
    said[0] = '\0';
    if (setjmp(ended) == 0) {
        tollgate_images_verify(1, requests);
        CHECK(false);
    }
    CHECK(said[0] != '\0');
}

int main(void) {
    literals_have_the_length_of_their_text();
    a_malformed_pointer_names_itself_and_the_line();
    a_pointer_leads_to_a_value_in_json();
    a_tilde_is_found_at_every_place();
    setting_makes_each_missing_parent_once();
    appending_makes_a_missing_list_once();
    an_integer_is_read_exactly_or_not_at_all();
    settings_are_read_one_after_the_other();
    only_a_decision_allows();
    only_a_verified_image_counts();
    printf("%d check(s) failed\n", failures);
    return failures > 0;
}
