/*
 * Write Tollgate admission plugins in C.
 *
 * A plugin is one C file and this SDK's tollgate.c. Neither needs a C library. The C file defines `tollgate_manifest`,
 * `tollgate_configure`, and `tollgate_validate`, `tollgate_mutate` or both. These macros export them:
 *
 *     TOLLGATE_VALIDATOR
 *     TOLLGATE_MUTATOR
 *
 * The SDK frees no memory, because each call has its own instance, and all its memory ends with the call. Every call
 * starts from the memory that `tollgate_configure` leaves. When memory runs out, the call ends as a fault.
 *
 * Most types have the memory layout of the component model's canonical ABI. Do not reorder members.
 */
#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__wasm32__) && !defined(TOLLGATE_TEST)
#error "a plugin is compiled for wasm32: clang --target=wasm32-unknown-unknown, or zig cc -target wasm32-freestanding"
#endif

/* Text in UTF-8 with its length, without a zero at its end. */
typedef struct {
    const char *at;
    size_t length;
} tollgate_text;

/* The text of a literal. The compiler counts its length, and refuses anything that is not a literal. */
#define TOLLGATE_TEXT(literal) ((tollgate_text)TOLLGATE_LITERAL(literal))
/* The same for the initialiser of a static variable: `.name = TOLLGATE_LITERAL("replica-limit")`. */
#define TOLLGATE_LITERAL(literal) {"" literal, sizeof(literal) - 1}

/* The text of a literal that is a JSON Pointer or a pattern. One that begins with no slash does not compile. */
#define TOLLGATE_POINTER(literal) ((tollgate_text)TOLLGATE_POINTER_LITERAL(literal))
/* The same for the initialiser of a static variable. */
#define TOLLGATE_POINTER_LITERAL(literal) {"" literal, sizeof(literal) - 1 + TOLLGATE_BEGINS_WITH_SLASH(literal)}

/* Zero, if it compiles. Only clang takes a character of a literal for a constant, and it compiles all plugins. */
#if defined(__clang__)
#define TOLLGATE_BEGINS_WITH_SLASH(literal)                                                                            \
    (0 * sizeof(struct {                                                                                               \
         char unused;                                                                                                  \
         _Static_assert(sizeof(literal) == 1 || (literal)[0] == '/', "a JSON Pointer begins with a slash");            \
     }))
/* Refuses a call whose pointer is known to be malformed while it is compiled. */
#define TOLLGATE_CHECKS(pointer)                                                                                       \
    __attribute__((diagnose_if((pointer).length > 0 && (pointer).at[0] != '/', "a JSON Pointer begins with a slash", "error"))) \
    TOLLGATE_COUNTED(pointer)
/* Refuses a call with a literal whose length was counted by hand, and wrong. */
#define TOLLGATE_COUNTED(text)                                                                                         \
    __attribute__((diagnose_if(__builtin_strlen((text).at) != (text).length,                                           \
                               "the length is not that of the literal; write TOLLGATE_TEXT", "error")))
#else
#define TOLLGATE_BEGINS_WITH_SLASH(literal) 0
#define TOLLGATE_CHECKS(pointer)
#define TOLLGATE_COUNTED(text)
#endif

/* A text that may be absent. */
typedef struct {
    bool is_there;
    tollgate_text text;
} tollgate_option;

typedef struct {
    const tollgate_text *at;
    size_t count;
} tollgate_texts;

/* The line of the policy, for the text of a fault. */
#define TOLLGATE_HERE __FILE__, __LINE__

/* ---- Texts ---- */

bool tollgate_equal(tollgate_text one, tollgate_text other)
    TOLLGATE_COUNTED(one) TOLLGATE_COUNTED(other);
/* Whether a text is a literal: `TOLLGATE_IS(type, "LoadBalancer")`. */
#define TOLLGATE_IS(text, literal) tollgate_equal((text), TOLLGATE_TEXT(literal))
bool tollgate_begins_with(tollgate_text text, tollgate_text beginning)
    TOLLGATE_COUNTED(text) TOLLGATE_COUNTED(beginning);
/* The place of a character, or the length if there is none. */
size_t tollgate_find(tollgate_text text, char character);
/* Returns the part from one place to before another. */
tollgate_text tollgate_cut(tollgate_text text, size_t from, size_t to);
/* Joins several texts. */
tollgate_text tollgate_join(size_t count, const tollgate_text *parts);
#define TOLLGATE_JOIN(...)                                                                                             \
    tollgate_join(sizeof((tollgate_text[]){__VA_ARGS__}) / sizeof(tollgate_text), (tollgate_text[]){__VA_ARGS__})
tollgate_text tollgate_of_integer(int64_t integer);
/* The pointer one level below another. `token` is a member's name, which the function escapes. */
tollgate_text tollgate_child(tollgate_text pointer, tollgate_text token);
/* The text as a JSON string with its quotes. */
tollgate_text tollgate_quoted(tollgate_text text)
    TOLLGATE_COUNTED(text);
/* Returns zeroed memory, aligned to eight bytes. The memory is never freed. */
void *tollgate_allocate(size_t size);

/* ---- The review ---- */

/* The JSON documents of a review. */
typedef enum {
    /* The object, as the plugins before this one left it. Absent on DELETE. */
    TOLLGATE_OBJECT,
    /* The object before the request. Absent on CREATE and CONNECT. */
    TOLLGATE_OLD_OBJECT,
    /* The operation's options, such as CreateOptions. */
    TOLLGATE_OPTIONS,
    /* The AdmissionRequest itself without these three: /operation, /userInfo/username, … */
    TOLLGATE_REQUEST,
    /* The Namespace of the object: apiVersion, kind and metadata with labels and annotations. Absent only for a
     * cluster-scoped object. A Namespace is in itself. If the host cannot find out about the namespace, the call ends
     * as a fault. The host's cache can lag behind the cluster by moments. */
    TOLLGATE_NAMESPACE,
} tollgate_part;

enum {
    TOLLGATE_NULL,
    TOLLGATE_BOOLEAN,
    TOLLGATE_INTEGER,
    TOLLGATE_NUMBER,
    TOLLGATE_STRING,
    TOLLGATE_ARRAY,
    TOLLGATE_MEMBERS,
};

/* One JSON value. */
typedef struct {
    /* TOLLGATE_NULL to TOLLGATE_MEMBERS. TOLLGATE_MEMBERS is an object. */
    uint8_t kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        tollgate_text text;
        /* The number of elements or members. */
        uint32_t length;
    };
} tollgate_value;

/* A value that may be absent. */
typedef struct {
    bool is_there;
    tollgate_value value;
} tollgate_found;

typedef struct {
    const tollgate_found *at;
    size_t count;
} tollgate_found_list;

/* A place in a document, and its value. */
typedef struct {
    /* Complete and escaped. Patches and denials accept it unchanged. */
    tollgate_text pointer;
    tollgate_value value;
} tollgate_node;

typedef struct {
    const tollgate_node *at;
    size_t count;
} tollgate_nodes;

/* The functions with a pointer end the call if it is malformed, with the pointer and the line of the policy. Otherwise a
 * typo would read as absent. A malformed literal does not compile, if it has no leading slash. The macros pass the line. */

/* The value at a JSON Pointer such as /spec/replicas, or false if there is nothing. */
#define tollgate_get(...) tollgate_get_at(TOLLGATE_HERE, __VA_ARGS__)
bool tollgate_get_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_value *value)
    TOLLGATE_CHECKS(pointer);
/* The JSON text at a pointer, or false if there is nothing. */
#define tollgate_get_json(...) tollgate_get_json_at(TOLLGATE_HERE, __VA_ARGS__)
bool tollgate_get_json_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_text *json)
    TOLLGATE_CHECKS(pointer);
/* The values at several pointers, in their order, with one call of the host. */
#define tollgate_get_many(...) tollgate_get_many_at(TOLLGATE_HERE, __VA_ARGS__)
tollgate_found_list tollgate_get_many_at(const char *file, uint32_t line, tollgate_part part, size_t count,
                                         const tollgate_text *pointers);
#define TOLLGATE_GET_MANY(part, ...)                                                                                   \
    tollgate_get_many((part), sizeof((tollgate_text[]){__VA_ARGS__}) / sizeof(tollgate_text),                          \
                      (tollgate_text[]){__VA_ARGS__})
/* The member names of an object, not escaped, or false if there is no object. */
#define tollgate_keys(...) tollgate_keys_at(TOLLGATE_HERE, __VA_ARGS__)
bool tollgate_keys_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_texts *keys)
    TOLLGATE_CHECKS(pointer);
/* Every place that matches: in `/spec/containers/N/image` with `*` for N, the `*` matches any element or member. */
#define tollgate_select(...) tollgate_select_at(TOLLGATE_HERE, __VA_ARGS__)
tollgate_nodes tollgate_select_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pattern)
    TOLLGATE_CHECKS(pattern);
/* Shows a warning to the user who made the request. */
void tollgate_warn(tollgate_text message)
    TOLLGATE_COUNTED(message);
/* Adds an annotation to kube-apiserver's audit log. */
void tollgate_annotate(tollgate_text key, tollgate_text value)
    TOLLGATE_COUNTED(key) TOLLGATE_COUNTED(value);

typedef enum { TOLLGATE_ERROR, TOLLGATE_WARN, TOLLGATE_INFO, TOLLGATE_DEBUG, TOLLGATE_TRACE } tollgate_level;
/* Writes to the host's log. Leave out the object's values, because they may be secret. */
void tollgate_log(tollgate_level level, tollgate_text message)
    TOLLGATE_COUNTED(message);

/* Ends the call as a fault of the plugin. The operator reads the text and the place. */
#define TOLLGATE_ABORT(text) tollgate_abort((text), TOLLGATE_TEXT(__FILE__), __LINE__)
_Noreturn void tollgate_abort(tollgate_text message, tollgate_text file, uint32_t line);
/* Ends the call as a fault unless the condition is true. */
#define TOLLGATE_ASSERT(condition)                                                                                     \
    ((condition) ? (void)0 : TOLLGATE_ABORT(TOLLGATE_TEXT("assertion failed: " #condition)))

/* ---- The cluster ---- */

/* The capability `cluster`: objects of the cluster, from the lookups of the plugin's configuration. The host does not
 * load a plugin that calls these functions unless its configuration has `lookups`. The host follows the cluster with a
 * watch. Its answers can lag behind by moments, and two requests that are reviewed at the same time do not see each
 * other's objects. */

/* An object of the cluster, with the fields that the lookup keeps. */
typedef struct {
    /* Absent for a cluster-scoped object. */
    tollgate_option namespace;
    tollgate_text name;
    /* The kept fields at their places in the object, as JSON text: see tollgate_json_at. */
    tollgate_text fields;
} tollgate_cluster_object;

typedef enum {
    TOLLGATE_ANSWERED,
    /* The configuration has no lookup of this name, no index of this name in it, or it does not cover this namespace. */
    TOLLGATE_NOT_GRANTED,
    /* The host has not read the objects yet, or has lost its connection for too long. It must not count as "there is
     * none": a plugin that enforces ends the call with TOLLGATE_ABORT, and its failure policy decides. */
    TOLLGATE_NOT_SYNCHRONISED,
} tollgate_lookup_result;

/* One object of a lookup. Without a result, `why` is the reason for the operator, and names the lookup. If there is no
 * such object, `is_there` is false. A cluster-scoped object has no namespace: (tollgate_option){0}. */
tollgate_lookup_result tollgate_cluster_get(tollgate_text lookup, tollgate_option namespace, tollgate_text name,
                                            bool *is_there, tollgate_cluster_object *object, tollgate_text *why);

/* A loop over the objects of a lookup, ordered by namespace and name. It asks the host for one page at a time:
 *
 *     tollgate_cluster_objects ingresses = tollgate_cluster_find(lookup, index, key);
 *     while (tollgate_cluster_next(&ingresses)) {
 *         … ingresses.object.name …
 *     }
 *     if (ingresses.result != TOLLGATE_ANSWERED) {
 *         TOLLGATE_ABORT(ingresses.why);
 *     }
 */
typedef struct {
    /* The object of this turn. */
    tollgate_cluster_object object;
    /* After the loop: whether there was an answer, and otherwise the reason. */
    tollgate_lookup_result result;
    tollgate_text why;
    /* Only for this SDK. */
    struct {
        bool is_find, is_begun;
        tollgate_text lookup, index, key;
        tollgate_option namespace, after;
        const tollgate_cluster_object *at;
        size_t count;
    } state;
} tollgate_cluster_objects;

/* The objects that have a key in an index of the lookup. */
tollgate_cluster_objects tollgate_cluster_find(tollgate_text lookup, tollgate_text index, tollgate_text key);
/* All objects of a lookup, or those of one namespace. */
tollgate_cluster_objects tollgate_cluster_list(tollgate_text lookup, tollgate_option namespace);
/* Goes to the next object. Returns false after the last one, and on a failure. */
bool tollgate_cluster_next(tollgate_cluster_objects *objects);

/* ---- Rights of users ---- */

/* The capability `access`: whether the user of the request may do something in the cluster. The host does not load a
 * plugin that calls this function unless its configuration grants `access`. kube-apiserver answers, and the host remembers
 * an answer for at most ten seconds. A question that the host has to pass on starts the call anew, so a plugin asks late
 * and seldom. */

/* An action on a resource, or on a path. A text that is left out is "not set". */
typedef struct {
    /* In lower case, such as delete. */
    tollgate_text verb;
    /* The API group. Empty for the core group. */
    tollgate_text group;
    /* In lower-case plural, such as pods. Left out for an action on a path. */
    tollgate_text resource;
    /* Such as exec. */
    tollgate_text subresource;
    /* Empty for a cluster-scoped resource, and for "in all namespaces". */
    tollgate_text namespace;
    /* Empty for "all objects". */
    tollgate_text name;
    /* A path that is no resource, such as /metrics. Only verb counts beside it. */
    tollgate_text path;
} tollgate_action;

/* A service account, which counts with its groups. The configuration has to grant `serviceAccounts`. */
typedef struct {
    tollgate_text namespace;
    tollgate_text name;
} tollgate_service_account;

/* The answer of kube-apiserver. */
typedef struct {
    bool allowed;
    /* May be empty, and may name roles and bindings. */
    tollgate_text reason;
    /* What an authorizer of kube-apiserver failed at. `allowed` counts all the same. */
    tollgate_option error;
} tollgate_decision;

typedef enum {
    TOLLGATE_ACCESS_ANSWERED,
    /* The configuration does not let the plugin ask this. */
    TOLLGATE_ACCESS_NOT_GRANTED,
    /* kube-apiserver has not answered, or the host has no authorizer. It must not count as "allowed": a plugin that
     * enforces ends the call with TOLLGATE_ABORT, and its failure policy decides. */
    TOLLGATE_ACCESS_UNAVAILABLE,
} tollgate_access_result;

/* Whether the user of the request may do something, or a service account if `account` is not null. Without a decision,
 * `why` is the reason for the operator, and `decision` does not allow:
 *
 *     tollgate_action action = {.verb = TOLLGATE_TEXT("get"), .resource = TOLLGATE_TEXT("pods")};
 *     if (tollgate_access_check(&action, NULL, &decision, &why) != TOLLGATE_ACCESS_ANSWERED) {
 *         TOLLGATE_ABORT(why);
 *     }
 */
tollgate_access_result tollgate_access_check(const tollgate_action *action, const tollgate_service_account *account,
                                             tollgate_decision *decision, tollgate_text *why);

/* ---- Signed images ---- */

/* The capability `images`: whether container images are signed as a policy of the configuration requires. The host does
 * not load a plugin that calls this function unless its configuration has `images`. The host asks registries, and
 * remembers the answers for as long as the configuration says. A question that it has to pass on starts the call anew, so
 * a plugin asks about all images in one call. */

/* An image, and the policy that it must meet. */
typedef struct {
    /* The image as the object names it, such as nginx:1.29. */
    tollgate_text image;
    /* The name of a policy of the configuration. */
    tollgate_text policy;
} tollgate_image_request;

/* Only TOLLGATE_IMAGE_VERIFIED counts as verified. A plugin that enforces denies the request in every other case. */
typedef enum {
    /* A registry has not answered, and no earlier answer counts. Zeroed memory reads as this. */
    TOLLGATE_IMAGE_UNAVAILABLE,
    /* The image meets its policy. */
    TOLLGATE_IMAGE_VERIFIED,
    /* No node could pull the image, or its digest is not SHA-256. */
    TOLLGATE_IMAGE_MALFORMED,
    /* The configuration has no such policy, the policy does not cover the repository, or the registry is not listed. */
    TOLLGATE_IMAGE_NOT_GRANTED,
    /* The registry has no such tag. */
    TOLLGATE_IMAGE_NOT_FOUND,
    /* The image has no signature. */
    TOLLGATE_IMAGE_UNSIGNED,
    /* The image has signatures or attestations, and they do not meet the policy. */
    TOLLGATE_IMAGE_UNTRUSTED,
} tollgate_image_result;

/* The answer to a request. */
typedef struct {
    tollgate_image_result result;
    /* The digest that was verified, or whose signatures were examined. Empty for every result but VERIFIED, UNSIGNED and
     * UNTRUSTED. */
    tollgate_text digest;
    /* VERIFIED: whether the image names the digest itself. If not, its tag can lead to another digest by the time that a
     * node pulls it. */
    bool pinned;
    /* VERIFIED: whether a registry has not answered, and an earlier verification of this digest counts. */
    bool last_known_good;
    /* VERIFIED: the names of the signers who have signed. */
    tollgate_texts signers;
    /* Every other result: the rules that are not met, and what was found. It names no user and no credentials. */
    tollgate_text reason;
} tollgate_image_answer;

/* Verifies images, all at the same time. Returns `count` answers in the order of the requests. A call may ask about at
 * most 128 different images; further ones are NOT_GRANTED:
 *
 *     const tollgate_image_answer *answers = tollgate_images_verify(count, requests);
 *     for (size_t index = 0; index < count; index++) {
 *         if (answers[index].result != TOLLGATE_IMAGE_VERIFIED) {
 *             tollgate_blame(denial, nodes.at[index].pointer, answers[index].reason);
 *         }
 *     }
 */
const tollgate_image_answer *tollgate_images_verify(size_t count, const tollgate_image_request *requests);

/* ---- Answers ---- */

typedef struct tollgate_denial tollgate_denial;

/* The answer of `tollgate_validate` that allows the request. No other value allows, and a null pointer is a fault. */
extern const tollgate_denial *const TOLLGATE_ALLOW;

/* A denial with HTTP status 403 and no causes. */
tollgate_denial *tollgate_deny(tollgate_text message)
    TOLLGATE_COUNTED(message);
/* Adds a cause for a field. An empty pointer means no field. */
void tollgate_blame(tollgate_denial *denial, tollgate_text field, tollgate_text message)
    TOLLGATE_COUNTED(field) TOLLGATE_COUNTED(message);
/* Sets the HTTP status, 400 to 499. */
void tollgate_deny_with_code(tollgate_denial *denial, uint16_t code);
/* Returns the denial if it has causes, and TOLLGATE_ALLOW otherwise. */
const tollgate_denial *tollgate_if_blamed(const tollgate_denial *denial);

typedef struct tollgate_mutation tollgate_mutation;

/* The answer of `tollgate_mutate` if the object stays unchanged. A null pointer is a fault. */
extern const tollgate_mutation *const TOLLGATE_UNCHANGED;

/* A JSON Patch, RFC 6902. An empty patch changes nothing. Values are JSON text: see tollgate_quoted. */
tollgate_mutation *tollgate_patch(void);
#define tollgate_add(...) tollgate_add_at(TOLLGATE_HERE, __VA_ARGS__)
void tollgate_add_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json)
    TOLLGATE_CHECKS(path);
#define tollgate_replace(...) tollgate_replace_at(TOLLGATE_HERE, __VA_ARGS__)
void tollgate_replace_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json)
    TOLLGATE_CHECKS(path);
#define tollgate_remove(...) tollgate_remove_at(TOLLGATE_HERE, __VA_ARGS__)
void tollgate_remove_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path) TOLLGATE_CHECKS(path);
/* Sets a member, and creates missing objects on the way. An array's element is replaced. Reads the object as it is
 * before this patch, and knows the results of earlier calls of these two functions. */
#define tollgate_set(...) tollgate_set_at(TOLLGATE_HERE, __VA_ARGS__)
void tollgate_set_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json)
    TOLLGATE_CHECKS(path);
/* Adds after the last element of a list, and creates the list if it is missing. */
#define tollgate_append(...) tollgate_append_at(TOLLGATE_HERE, __VA_ARGS__)
void tollgate_append_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text list, tollgate_text json)
    TOLLGATE_CHECKS(list);
/* A merge patch, RFC 7386. */
tollgate_mutation *tollgate_merge(tollgate_text json);
/* Denies the request. */
tollgate_mutation *tollgate_mutation_deny(const tollgate_denial *denial);

/* ---- Settings ---- */

typedef struct tollgate_settings_errors tollgate_settings_errors;
/* Reports an error in a setting. The message says what a correct value would be. */
void tollgate_settings_error(tollgate_settings_errors *errors, tollgate_text pointer, tollgate_text message)
    TOLLGATE_COUNTED(pointer) TOLLGATE_COUNTED(message);

/* A cursor in valid JSON text. */
typedef struct {
    tollgate_text text;
    size_t place;
} tollgate_json;

/* The kind of the value at the cursor: `{`, `[`, `"`, `0` for a number, `t`, `f` or `n`. */
char tollgate_json_kind(tollgate_json *json);
/* Reads a string. For another value, skips it and returns false. */
bool tollgate_json_string(tollgate_json *json, tollgate_text *string);
/* Reads a number without fraction and exponent that fits into 64 bits. For another value, skips it and returns false. */
bool tollgate_json_integer(tollgate_json *json, int64_t *integer);
/* Reads true or false. For another value, skips it and returns false. */
bool tollgate_json_boolean(tollgate_json *json, bool *boolean);
/* Skips a value. */
void tollgate_json_skip(tollgate_json *json);
/* Goes to the next member's value. Starts before the `{`. At the end, skips the `}` and returns false. */
bool tollgate_json_member(tollgate_json *json, tollgate_text *name);
/* Goes to the next element. Starts before the `[`. At the end, skips the `]` and returns false. */
bool tollgate_json_element(tollgate_json *json);

/* The value at a JSON Pointer in JSON text, as a cursor, or false if there is nothing. A malformed pointer ends the
 * call. */
#define tollgate_json_at(...) tollgate_json_place_at(TOLLGATE_HERE, __VA_ARGS__)
bool tollgate_json_place_at(const char *file, uint32_t line, tollgate_text json, tollgate_text pointer, tollgate_json *found)
    TOLLGATE_CHECKS(pointer);

/* ---- Definitions of a plugin ---- */

/* Kubernetes' RuleWithOperations. */
typedef struct {
    tollgate_texts operations;
    tollgate_texts api_groups;
    tollgate_texts api_versions;
    tollgate_texts resources;
    tollgate_option scope;
} tollgate_rule;

/* A list of literals, for a rule: `.resources = TOLLGATE_LITERALS("pods", "services")`. At most eight. */
#define TOLLGATE_LITERALS(...)                                                                                         \
    {(const tollgate_text[]){TOLLGATE_EACH(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1)(__VA_ARGS__)},                         \
     sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)}
#define TOLLGATE_EACH(a, b, c, d, e, f, g, h, count, ...) TOLLGATE_EACH_##count
#define TOLLGATE_EACH_1(a) TOLLGATE_LITERAL(a)
#define TOLLGATE_EACH_2(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_1(__VA_ARGS__)
#define TOLLGATE_EACH_3(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_2(__VA_ARGS__)
#define TOLLGATE_EACH_4(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_3(__VA_ARGS__)
#define TOLLGATE_EACH_5(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_4(__VA_ARGS__)
#define TOLLGATE_EACH_6(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_5(__VA_ARGS__)
#define TOLLGATE_EACH_7(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_6(__VA_ARGS__)
#define TOLLGATE_EACH_8(a, ...) TOLLGATE_LITERAL(a), TOLLGATE_EACH_7(__VA_ARGS__)

/* A list of texts. Write literals with TOLLGATE_LITERALS, which counts them. */
#define TOLLGATE_TEXTS(...)                                                                                            \
    {(const tollgate_text[]){__VA_ARGS__}, sizeof((tollgate_text[]){__VA_ARGS__}) / sizeof(tollgate_text)}

/* A plugin's description of itself. */
typedef struct {
    tollgate_text name;
    tollgate_text version;
    tollgate_text description;
    /* A JSON Schema for the settings, for people. */
    tollgate_option settings_schema;
    struct {
        const tollgate_rule *at;
        size_t count;
    } rules;
    struct {
        const tollgate_text (*at)[2];
        size_t count;
    } labels;
} tollgate_manifest_record;

extern const tollgate_manifest_record tollgate_manifest;

/* Reads the settings, which are an object. Without errors, the host accepts them. */
void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors);

const tollgate_denial *tollgate_validate(void);
const tollgate_mutation *tollgate_mutate(void);

const void *tollgate_verdict_answer(const tollgate_denial *denial);
const void *tollgate_mutation_answer(const tollgate_mutation *mutation);

#if defined(__wasm32__)
#define TOLLGATE_EXPORT(name) __attribute__((export_name("tollgate:admission/" name)))
#else
#define TOLLGATE_EXPORT(name)
#endif

#define TOLLGATE_VALIDATOR                                                                                             \
    TOLLGATE_EXPORT("validating@0.1.0#validate") const void *tollgate_export_validate(void) {                          \
        return tollgate_verdict_answer(tollgate_validate());                                                           \
    }

#define TOLLGATE_MUTATOR                                                                                               \
    TOLLGATE_EXPORT("mutating@0.1.0#mutate") const void *tollgate_export_mutate(void) {                                \
        return tollgate_mutation_answer(tollgate_mutate());                                                            \
    }

#endif
