/*
 * Write Tollgate admission plugins in C.
 *
 * A plugin is one C file and this SDK's tollgate.c. Neither needs a C library. It defines `tollgate_manifest`,
 * `tollgate_configure`, `tollgate_validate` or `tollgate_mutate` or both, and says which:
 *
 *     TOLLGATE_VALIDATOR
 *     TOLLGATE_MUTATOR
 *
 * Nothing is freed: a call has an instance of its own, and all its memory ends with it. Memory that
 * `tollgate_configure` leaves is there in every call. When there is no more, the call ends as a fault.
 *
 * The layout of most types is that of the component model's canonical ABI: do not reorder members.
 */
#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__wasm32__)
#error "a plugin is compiled for wasm32: clang --target=wasm32-unknown-unknown, or zig cc -target wasm32-freestanding"
#endif

/* Text in UTF-8 with its length; no zero at its end. */
typedef struct {
    const char *at;
    size_t length;
} tollgate_text;

/* The text of a literal. */
#define TOLLGATE_TEXT(literal) ((tollgate_text){"" literal, sizeof(literal) - 1})

/* A text that may be absent. */
typedef struct {
    bool is_there;
    tollgate_text text;
} tollgate_option;

typedef struct {
    const tollgate_text *at;
    size_t count;
} tollgate_texts;

/* ---- Texts ---- */

bool tollgate_equal(tollgate_text one, tollgate_text other);
bool tollgate_begins_with(tollgate_text text, tollgate_text beginning);
/* The place of a character, or the length where it is not. */
size_t tollgate_find(tollgate_text text, char character);
/* From one place on to before another. */
tollgate_text tollgate_cut(tollgate_text text, size_t from, size_t to);
/* Several as one. */
tollgate_text tollgate_join(size_t count, const tollgate_text *parts);
#define TOLLGATE_JOIN(...)                                                                                             \
    tollgate_join(sizeof((tollgate_text[]){__VA_ARGS__}) / sizeof(tollgate_text), (tollgate_text[]){__VA_ARGS__})
tollgate_text tollgate_of_integer(int64_t integer);
/* The pointer one level below another: `token` is a member's name, which is escaped. */
tollgate_text tollgate_child(tollgate_text pointer, tollgate_text token);
/* As a JSON string with its quotes. */
tollgate_text tollgate_quoted(tollgate_text text);
/* Memory that is zero, aligned to eight bytes. It is never freed. */
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
    /* The AdmissionRequest itself without the three: /operation, /userInfo/username, … */
    TOLLGATE_REQUEST,
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
    /* TOLLGATE_NULL to TOLLGATE_MEMBERS, which is an object. */
    uint8_t kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        tollgate_text text;
        /* Elements or members. */
        uint32_t length;
    };
} tollgate_value;

/* A place and what stands there. */
typedef struct {
    /* Complete and escaped: it can be used in a patch or a denial as it is. */
    tollgate_text pointer;
    tollgate_value value;
} tollgate_node;

typedef struct {
    const tollgate_node *at;
    size_t count;
} tollgate_nodes;

/* What stands at a JSON Pointer such as /spec/replicas; false when there is nothing. A pointer that is not well formed
 * ends the call: a typo must not read as absent. */
bool tollgate_get(tollgate_part part, tollgate_text pointer, tollgate_value *value);
/* The JSON text at a pointer; false when there is nothing. */
bool tollgate_get_json(tollgate_part part, tollgate_text pointer, tollgate_text *json);
/* The member names of an object, not escaped; false when no object is there. */
bool tollgate_keys(tollgate_part part, tollgate_text pointer, tollgate_texts *keys);
/* Every place that matches: in `/spec/containers/N/image` with `*` for N, the `*` stands for any element or member. */
tollgate_nodes tollgate_select(tollgate_part part, tollgate_text pattern);
/* Shows a warning to the user who made the request. */
void tollgate_warn(tollgate_text message);
/* Records something in kube-apiserver's audit log. */
void tollgate_annotate(tollgate_text key, tollgate_text value);

typedef enum { TOLLGATE_ERROR, TOLLGATE_WARN, TOLLGATE_INFO, TOLLGATE_DEBUG, TOLLGATE_TRACE } tollgate_level;
/* To the host's log. Leave out the object's values: they may be secret. */
void tollgate_log(tollgate_level level, tollgate_text message);

/* Ends the call as a fault of the plugin: the operator reads the text and the place. */
#define TOLLGATE_ABORT(text) tollgate_abort((text), TOLLGATE_TEXT(__FILE__), __LINE__)
_Noreturn void tollgate_abort(tollgate_text message, tollgate_text file, uint32_t line);
/* Ends the call unless something holds. */
#define TOLLGATE_ASSERT(condition)                                                                                     \
    ((condition) ? (void)0 : TOLLGATE_ABORT(TOLLGATE_TEXT("assertion failed: " #condition)))

/* ---- Answers ---- */

typedef struct tollgate_denial tollgate_denial;

/* What `tollgate_validate` returns when nothing speaks against the request. Nothing else allows: a null pointer is a
 * fault. */
extern const tollgate_denial *const TOLLGATE_ALLOW;

/* A denial with HTTP status 403 and no causes yet. */
tollgate_denial *tollgate_deny(tollgate_text message);
/* Blames a field; an empty pointer blames none. */
void tollgate_blame(tollgate_denial *denial, tollgate_text field, tollgate_text message);
/* Another HTTP status, 400 to 499. */
void tollgate_deny_with_code(tollgate_denial *denial, uint16_t code);
/* The denial when it blames something, TOLLGATE_ALLOW otherwise. */
const tollgate_denial *tollgate_if_blamed(const tollgate_denial *denial);

typedef struct tollgate_mutation tollgate_mutation;

/* What `tollgate_mutate` returns when the object stays as it is. A null pointer is a fault. */
extern const tollgate_mutation *const TOLLGATE_UNCHANGED;

/* A JSON Patch, RFC 6902. Without operations it changes nothing. Values are JSON text: see tollgate_quoted. */
tollgate_mutation *tollgate_patch(void);
void tollgate_add(tollgate_mutation *patch, tollgate_text path, tollgate_text json);
void tollgate_replace(tollgate_mutation *patch, tollgate_text path, tollgate_text json);
void tollgate_remove(tollgate_mutation *patch, tollgate_text path);
/* RFC 7386. */
tollgate_mutation *tollgate_merge(tollgate_text json);
/* The request is refused. */
tollgate_mutation *tollgate_mutation_deny(const tollgate_denial *denial);

/* ---- Settings ---- */

typedef struct tollgate_settings_errors tollgate_settings_errors;
/* What is wrong with a setting: what would be right. */
void tollgate_settings_error(tollgate_settings_errors *errors, tollgate_text pointer, tollgate_text message);

/* A cursor in JSON text, which is valid. */
typedef struct {
    tollgate_text text;
    size_t place;
} tollgate_json;

/* What begins at the cursor: `{`, `[`, `"`, `0` for a number, `t`, `f` or `n`. */
char tollgate_json_kind(tollgate_json *json);
/* Reads a string; false, and the value is passed over, when it is something else. */
bool tollgate_json_string(tollgate_json *json, tollgate_text *string);
/* Passes over a value. */
void tollgate_json_skip(tollgate_json *json);
/* Goes to the next member's value, at first from before the `{`; false at the end, which is passed over. */
bool tollgate_json_member(tollgate_json *json, tollgate_text *name);
/* Goes to the next element, at first from before the `[`; false at the end, which is passed over. */
bool tollgate_json_element(tollgate_json *json);

/* ---- What a plugin defines ---- */

/* Kubernetes' RuleWithOperations. */
typedef struct {
    tollgate_texts operations;
    tollgate_texts api_groups;
    tollgate_texts api_versions;
    tollgate_texts resources;
    tollgate_option scope;
} tollgate_rule;

#define TOLLGATE_TEXTS(...)                                                                                            \
    {(const tollgate_text[]){__VA_ARGS__}, sizeof((tollgate_text[]){__VA_ARGS__}) / sizeof(tollgate_text)}

/* What a plugin says of itself. */
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

/* Reads the settings, which are an object. Without errors they are accepted. */
void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors);

const tollgate_denial *tollgate_validate(void);
const tollgate_mutation *tollgate_mutate(void);

const void *tollgate_verdict_answer(const tollgate_denial *denial);
const void *tollgate_mutation_answer(const tollgate_mutation *mutation);

#define TOLLGATE_EXPORT(name) __attribute__((export_name("tollgate:admission/" name)))

#define TOLLGATE_VALIDATOR                                                                                             \
    TOLLGATE_EXPORT("validating@0.1.0#validate") const void *tollgate_export_validate(void) {                          \
        return tollgate_verdict_answer(tollgate_validate());                                                           \
    }

#define TOLLGATE_MUTATOR                                                                                               \
    TOLLGATE_EXPORT("mutating@0.1.0#mutate") const void *tollgate_export_mutate(void) {                                \
        return tollgate_mutation_answer(tollgate_mutate());                                                            \
    }

#endif
