#include "tollgate.h"

/* ---- Eight bytes at a time ---- */

/* Every instruction uses fuel, so bytes are copied, compared and searched eight at a time. WebAssembly reads and writes
 * eight bytes at any address. */
typedef struct {
    uint64_t word;
} __attribute__((packed, may_alias)) eight_bytes;

static inline eight_bytes eight_times(char byte) { return (eight_bytes){(unsigned char)byte * 0x0101010101010101}; }

/* Whether one of eight bytes is this one, which becomes a zero byte. Only a zero byte borrows from its highest bit. */
static inline bool has_in_eight(const char *at, char byte) {
    uint64_t combined = ((const eight_bytes *)at)->word ^ eight_times(byte).word;
    return ((combined - 0x0101010101010101) & ~combined & 0x8080808080808080) != 0;
}

static inline bool are_equal(const char *one, const char *other, size_t length) {
    for (; length >= sizeof(eight_bytes); length -= sizeof(eight_bytes)) {
        if (((const eight_bytes *)one)->word != ((const eight_bytes *)other)->word) {
            return false;
        }
        one += sizeof(eight_bytes);
        other += sizeof(eight_bytes);
    }
    while (length > 0 && *one == *other) {
        one++;
        other++;
        length--;
    }
    return length == 0;
}

/* ---- Memory ---- */

#if defined(__wasm32__)

extern unsigned char __heap_base;

enum { PAGE = 65536 };

static size_t next;

static size_t rounded(size_t size, size_t align) { return (size + align - 1) & ~(align - 1); }

void *tollgate_allocate(size_t size) {
    if (next == 0) {
        next = rounded((size_t)&__heap_base, 8);
    }
    size_t at = next;
    size_t end = at + rounded(size, 8);
    size_t there = __builtin_wasm_memory_size(0) * (size_t)PAGE;
    if (end < at) {
        TOLLGATE_ABORT(TOLLGATE_TEXT("out of memory"));
    }
    if (end > there) {
        size_t pages = (end - there + PAGE - 1) / PAGE;
        if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1) {
            TOLLGATE_ABORT(TOLLGATE_TEXT("out of memory"));
        }
    }
    next = end;
    return (void *)at;
}

/* The compiler emits calls of these functions. */
void *memcpy(void *to, const void *from, size_t size) {
    char *target = to;
    const char *source = from;
    for (; size >= sizeof(eight_bytes); size -= sizeof(eight_bytes)) {
        *(eight_bytes *)target = *(const eight_bytes *)source;
        target += sizeof(eight_bytes);
        source += sizeof(eight_bytes);
    }
    while (size-- > 0) {
        *target++ = *source++;
    }
    return to;
}

void *memset(void *to, int byte, size_t size) {
    char *target = to;
    eight_bytes eight = eight_times((char)byte);
    for (; size >= sizeof eight; size -= sizeof eight) {
        *(eight_bytes *)target = eight;
        target += sizeof eight;
    }
    while (size-- > 0) {
        *target++ = (char)byte;
    }
    return to;
}

#else

/* In a test of this SDK, the C library gives memory. */
#include <stdlib.h>
#include <string.h>

void *tollgate_allocate(size_t size) { return calloc(1, size > 0 ? size : 1); }

#endif

#if defined(__wasm32__)
__attribute__((export_name("cabi_realloc")))
#endif
void *tollgate_export_realloc(void *old, size_t old_size, size_t align,
                                                                            size_t size) {
    (void)align;
    void *block = tollgate_allocate(size);
    return old_size == 0 ? block : memcpy(block, old, old_size < size ? old_size : size);
}

/* A growing list. Its capacity doubles each time that it is full. */
static void *grown(const void *old, size_t count, size_t size) {
    bool is_full = (count & (count - 1)) == 0;
    if (!is_full) {
        return (void *)old;
    }
    void *block = tollgate_allocate((count == 0 ? 1 : 2 * count) * size);
    return count == 0 ? block : memcpy(block, old, count * size);
}

/* ---- Texts ---- */

bool tollgate_equal(tollgate_text one, tollgate_text other) {
    return one.length == other.length && are_equal(one.at, other.at, one.length);
}

bool tollgate_begins_with(tollgate_text text, tollgate_text beginning) {
    return text.length >= beginning.length && are_equal(text.at, beginning.at, beginning.length);
}

size_t tollgate_find(tollgate_text text, char character) {
    size_t index = 0;
    while (text.length - index >= sizeof(eight_bytes) && !has_in_eight(text.at + index, character)) {
        index += sizeof(eight_bytes);
    }
    while (index < text.length && text.at[index] != character) {
        index++;
    }
    return index;
}

tollgate_text tollgate_cut(tollgate_text text, size_t from, size_t to) {
    TOLLGATE_ASSERT(from <= to && to <= text.length);
    return (tollgate_text){text.at + from, to - from};
}

tollgate_text tollgate_join(size_t count, const tollgate_text *parts) {
    size_t length = 0;
    for (size_t index = 0; index < count; index++) {
        length += parts[index].length;
    }
    char *joined = tollgate_allocate(length);
    size_t place = 0;
    for (size_t index = 0; index < count; index++) {
        memcpy(joined + place, parts[index].at, parts[index].length);
        place += parts[index].length;
    }
    return (tollgate_text){joined, length};
}

tollgate_text tollgate_of_integer(int64_t integer) {
    enum { LONGEST = 20 };
    char *digits = tollgate_allocate(LONGEST);
    size_t place = LONGEST;
    uint64_t rest = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    do {
        digits[--place] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (integer < 0) {
        digits[--place] = '-';
    }
    return (tollgate_text){digits + place, LONGEST - place};
}

tollgate_text tollgate_child(tollgate_text pointer, tollgate_text token) {
    char *child = tollgate_allocate(pointer.length + 1 + 2 * token.length);
    memcpy(child, pointer.at, pointer.length);
    size_t length = pointer.length;
    child[length++] = '/';
    for (size_t index = 0; index < token.length; index++) {
        char character = token.at[index];
        if (character == '~' || character == '/') {
            child[length++] = '~';
            character = character == '~' ? '0' : '1';
        }
        child[length++] = character;
    }
    return (tollgate_text){child, length};
}

tollgate_text tollgate_quoted(tollgate_text text) {
    static const char hexadecimal[] = "0123456789abcdef";
    enum { LONGEST_ESCAPE = 6 };
    char *quoted = tollgate_allocate(2 + LONGEST_ESCAPE * text.length);
    size_t length = 0;
    quoted[length++] = '"';
    for (size_t index = 0; index < text.length; index++) {
        unsigned char byte = (unsigned char)text.at[index];
        if (byte == '"' || byte == '\\') {
            quoted[length++] = '\\';
            quoted[length++] = (char)byte;
        } else if (byte < ' ') {
            memcpy(quoted + length, "\\u00", 4);
            length += 4;
            quoted[length++] = hexadecimal[byte >> 4];
            quoted[length++] = hexadecimal[byte & 15];
        } else {
            quoted[length++] = (char)byte;
        }
    }
    quoted[length++] = '"';
    return (tollgate_text){quoted, length};
}

/* ---- The host ---- */

#if defined(__wasm32__)
#define IMPORT(interface, name)                                                                                        \
    __attribute__((import_module("tollgate:admission/" interface "@0.1.0"), import_name(name)))
#else
#define IMPORT(interface, name)
#endif

IMPORT("review", "get")
void host_get(uint32_t part, const char *at, size_t length, void *area);
IMPORT("review", "get-json")
void host_get_json(uint32_t part, const char *at, size_t length, void *area);
IMPORT("review", "get-many")
void host_get_many(uint32_t part, const tollgate_text *at, size_t count, void *area);
IMPORT("review", "keys")
void host_keys(uint32_t part, const char *at, size_t length, void *area);
IMPORT("review", "select")
void host_select(uint32_t part, const char *at, size_t length, void *area);
IMPORT("review", "warn")
void host_warn(const char *at, size_t length);
IMPORT("review", "annotate")
void host_annotate(const char *key, size_t key_length, const char *value, size_t value_length);
IMPORT("logging", "log")
void host_log(uint32_t level, const char *at, size_t length);
IMPORT("logging", "abort")
void host_abort(const char *at, size_t length, uint32_t known, const char *file, size_t file_length, uint32_t line,
                uint32_t column);

static tollgate_text of_string(const char *string) {
    size_t length = 0;
    while (string[length] != '\0') {
        length++;
    }
    return (tollgate_text){string, length};
}

/* Every read pays for it. The last eight bytes may overlap those before. */
static inline bool has_tilde(const char *at, size_t length) {
    const char *end = at + length;
    if (length < sizeof(eight_bytes)) {
        while (at < end && *at != '~') {
            at++;
        }
        return at < end;
    }
    for (; at < end - sizeof(eight_bytes); at += sizeof(eight_bytes)) {
        if (has_in_eight(at, '~')) {
            return true;
        }
    }
    return has_in_eight(end - sizeof(eight_bytes), '~');
}

__attribute__((noinline)) static void refuse_malformed(const char *file, uint32_t line, tollgate_text pointer) {
    tollgate_text problem = {0};
    if (pointer.length > 0 && pointer.at[0] != '/') {
        problem = TOLLGATE_JOIN(TOLLGATE_TEXT("it has no leading slash; write `/"), pointer, TOLLGATE_TEXT("`"));
    }
    for (size_t index = 0; index < pointer.length && problem.length == 0; index++) {
        if (pointer.at[index] == '~' &&
            (index + 1 == pointer.length || (pointer.at[index + 1] != '0' && pointer.at[index + 1] != '1'))) {
            problem = TOLLGATE_TEXT("a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`, "
                                    "or make it with tollgate_child");
        }
    }
    if (problem.length > 0) {
        tollgate_text message = TOLLGATE_JOIN(TOLLGATE_TEXT("`"), pointer, TOLLGATE_TEXT("` is no JSON Pointer: "), problem);
        tollgate_abort(message, of_string(file), line);
    }
}

/* The host also checks every pointer, but does not know the line of the policy. */
static inline void check_pointer(const char *file, uint32_t line, tollgate_text pointer) {
    if ((pointer.length > 0 && pointer.at[0] != '/') || has_tilde(pointer.at, pointer.length)) {
        refuse_malformed(file, line, pointer);
    }
}

bool tollgate_get_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_value *value) {
    check_pointer(file, line, pointer);
    tollgate_found area;
    host_get(part, pointer.at, pointer.length, &area);
    if (area.is_there) {
        *value = area.value;
    }
    return area.is_there;
}

bool tollgate_get_json_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_text *json) {
    check_pointer(file, line, pointer);
    tollgate_option area;
    host_get_json(part, pointer.at, pointer.length, &area);
    if (area.is_there) {
        *json = area.text;
    }
    return area.is_there;
}

tollgate_found_list tollgate_get_many_at(const char *file, uint32_t line, tollgate_part part, size_t count,
                                         const tollgate_text *pointers) {
    for (size_t index = 0; index < count; index++) {
        check_pointer(file, line, pointers[index]);
    }
    tollgate_found_list found;
    host_get_many(part, pointers, count, &found);
    return found;
}

bool tollgate_keys_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pointer, tollgate_texts *keys) {
    check_pointer(file, line, pointer);
    struct {
        bool is_there;
        tollgate_texts keys;
    } area;
    host_keys(part, pointer.at, pointer.length, &area);
    if (area.is_there) {
        *keys = area.keys;
    }
    return area.is_there;
}

tollgate_nodes tollgate_select_at(const char *file, uint32_t line, tollgate_part part, tollgate_text pattern) {
    check_pointer(file, line, pattern);
    tollgate_nodes nodes;
    host_select(part, pattern.at, pattern.length, &nodes);
    return nodes;
}

void tollgate_warn(tollgate_text message) { host_warn(message.at, message.length); }

void tollgate_annotate(tollgate_text key, tollgate_text value) {
    host_annotate(key.at, key.length, value.at, value.length);
}

void tollgate_log(tollgate_level level, tollgate_text message) { host_log(level, message.at, message.length); }

_Noreturn void tollgate_abort(tollgate_text message, tollgate_text file, uint32_t line) {
    host_abort(message.at, message.length, 1, file.at, file.length, line, 0);
    __builtin_trap();
}

/* ---- Rights of users ---- */

/* The arguments are too many for parameters, so they are in memory. */
typedef struct {
    uint8_t is_path;
    union {
        /* verb, group, resource, subresource, namespace, name */
        tollgate_text of_resource[6];
        /* verb, path */
        tollgate_text of_path[2];
    } texts;
    bool has_account;
    tollgate_service_account account;
} access_question;

typedef struct {
    bool is_failure;
    union {
        tollgate_decision decision;
        struct {
            uint8_t kind;
            tollgate_text text;
        } failure;
    };
} access_answer;

IMPORT("access", "check")
void host_access_check(const void *question, void *area);

tollgate_access_result tollgate_access_check(const tollgate_action *action, const tollgate_service_account *account,
                                             tollgate_decision *decision, tollgate_text *why) {
    access_question question = {0};
    if (action->path.length > 0) {
        question.is_path = 1;
        question.texts.of_path[0] = action->verb;
        question.texts.of_path[1] = action->path;
    } else {
        question.texts.of_resource[0] = action->verb;
        question.texts.of_resource[1] = action->group;
        question.texts.of_resource[2] = action->resource;
        question.texts.of_resource[3] = action->subresource;
        question.texts.of_resource[4] = action->namespace;
        question.texts.of_resource[5] = action->name;
    }
    if (account != NULL) {
        question.has_account = true;
        question.account = *account;
    }
    access_answer answer;
    host_access_check(&question, &answer);
    *decision = (tollgate_decision){0};
    if (answer.is_failure) {
        *why = answer.failure.text;
        return answer.failure.kind == 0 ? TOLLGATE_ACCESS_NOT_GRANTED : TOLLGATE_ACCESS_UNAVAILABLE;
    }
    *decision = answer.decision;
    return TOLLGATE_ACCESS_ANSWERED;
}

/* ---- Signed images ---- */

/* The kinds of failures, in the order of the contract. */
static const tollgate_image_result image_failures[] = {
    TOLLGATE_IMAGE_MALFORMED, TOLLGATE_IMAGE_NOT_GRANTED, TOLLGATE_IMAGE_NOT_FOUND,
    TOLLGATE_IMAGE_UNSIGNED,  TOLLGATE_IMAGE_UNTRUSTED,   TOLLGATE_IMAGE_UNAVAILABLE,
};

typedef struct {
    bool is_failure;
    union {
        struct {
            tollgate_text digest;
            bool pinned;
            tollgate_texts signers;
            bool last_known_good;
        } verified;
        struct {
            uint8_t kind;
            /* The reason. UNSIGNED and UNTRUSTED have a digest in front of it. */
            tollgate_text texts[2];
        } failure;
    };
} image_answer;

typedef struct {
    const image_answer *at;
    size_t count;
} image_answers;

IMPORT("images", "verify")
void host_images_verify(const tollgate_image_request *requests, size_t count, void *area);

static tollgate_image_answer image_failed(uint8_t kind, const tollgate_text *texts) {
    TOLLGATE_ASSERT(kind < sizeof image_failures / sizeof *image_failures);
    tollgate_image_answer answer = {.result = image_failures[kind]};
    if (answer.result == TOLLGATE_IMAGE_UNSIGNED || answer.result == TOLLGATE_IMAGE_UNTRUSTED) {
        answer.digest = *texts++;
    }
    answer.reason = *texts;
    return answer;
}

const tollgate_image_answer *tollgate_images_verify(size_t count, const tollgate_image_request *requests) {
    image_answers found;
    host_images_verify(requests, count, &found);
    TOLLGATE_ASSERT(found.count == count);
    tollgate_image_answer *answers = tollgate_allocate(count * sizeof *answers);
    for (size_t index = 0; index < count; index++) {
        const image_answer *one = &found.at[index];
        answers[index] = one->is_failure ? image_failed(one->failure.kind, one->failure.texts)
                                         : (tollgate_image_answer){
                                               .result = TOLLGATE_IMAGE_VERIFIED,
                                               .digest = one->verified.digest,
                                               .pinned = one->verified.pinned,
                                               .last_known_good = one->verified.last_known_good,
                                               .signers = one->verified.signers,
                                           };
    }
    return answers;
}

/* ---- The cluster ---- */

IMPORT("cluster", "get")
void host_cluster_get(const char *lookup, size_t lookup_length, uint32_t is_namespaced, const char *namespace,
                      size_t namespace_length, const char *name, size_t name_length, void *area);
IMPORT("cluster", "find")
void host_cluster_find(const char *lookup, size_t lookup_length, const char *index, size_t index_length,
                       const char *key, size_t key_length, uint32_t is_after, const char *after, size_t after_length,
                       void *area);
IMPORT("cluster", "list")
void host_cluster_list(const char *lookup, size_t lookup_length, uint32_t is_namespaced, const char *namespace,
                       size_t namespace_length, uint32_t is_after, const char *after, size_t after_length, void *area);

typedef struct {
    uint8_t kind;
    tollgate_text text;
} failure;

static tollgate_lookup_result failed(const failure *failure, tollgate_text *why) {
    *why = failure->text;
    return failure->kind == 0 ? TOLLGATE_NOT_GRANTED : TOLLGATE_NOT_SYNCHRONISED;
}

tollgate_lookup_result tollgate_cluster_get(tollgate_text lookup, tollgate_option namespace, tollgate_text name,
                                            bool *is_there, tollgate_cluster_object *object, tollgate_text *why) {
    struct {
        bool is_failure;
        union {
            struct {
                bool is_there;
                tollgate_cluster_object object;
            };
            failure failure;
        };
    } area;
    host_cluster_get(lookup.at, lookup.length, namespace.is_there, namespace.text.at, namespace.text.length, name.at,
                     name.length, &area);
    *is_there = false;
    if (area.is_failure) {
        return failed(&area.failure, why);
    }
    *is_there = area.is_there;
    if (area.is_there) {
        *object = area.object;
    }
    return TOLLGATE_ANSWERED;
}

tollgate_cluster_objects tollgate_cluster_find(tollgate_text lookup, tollgate_text index, tollgate_text key) {
    tollgate_cluster_objects objects = {0};
    objects.state.is_find = true;
    objects.state.lookup = lookup;
    objects.state.index = index;
    objects.state.key = key;
    return objects;
}

tollgate_cluster_objects tollgate_cluster_list(tollgate_text lookup, tollgate_option namespace) {
    tollgate_cluster_objects objects = {0};
    objects.state.lookup = lookup;
    objects.state.namespace = namespace;
    return objects;
}

/* Asks for the page after the last one, and returns false without one. */
static bool turn_page(tollgate_cluster_objects *objects) {
    struct {
        bool is_failure;
        union {
            struct {
                const tollgate_cluster_object *at;
                size_t count;
                tollgate_option next;
            };
            failure failure;
        };
    } area;
    if (objects->state.is_begun && !objects->state.after.is_there) {
        return false;
    }
    tollgate_text lookup = objects->state.lookup;
    tollgate_option after = objects->state.after;
    if (objects->state.is_find) {
        tollgate_text index = objects->state.index, key = objects->state.key;
        host_cluster_find(lookup.at, lookup.length, index.at, index.length, key.at, key.length, after.is_there,
                          after.text.at, after.text.length, &area);
    } else {
        tollgate_option namespace = objects->state.namespace;
        host_cluster_list(lookup.at, lookup.length, namespace.is_there, namespace.text.at, namespace.text.length,
                          after.is_there, after.text.at, after.text.length, &area);
    }
    objects->state.is_begun = true;
    objects->state.after = (tollgate_option){0};
    if (area.is_failure) {
        objects->result = failed(&area.failure, &objects->why);
        return false;
    }
    objects->state.at = area.at;
    objects->state.count = area.count;
    objects->state.after = area.next;
    return true;
}

bool tollgate_cluster_next(tollgate_cluster_objects *objects) {
    while (objects->state.count == 0) {
        if (!turn_page(objects)) {
            return false;
        }
    }
    objects->object = *objects->state.at++;
    objects->state.count--;
    return true;
}

/* ---- Denials ---- */

typedef struct {
    tollgate_option field;
    tollgate_text message;
    tollgate_option reason;
} cause;

struct tollgate_denial {
    tollgate_text message;
    bool has_code;
    uint16_t code;
    tollgate_option reason;
    cause *causes;
    size_t count;
};

static const tollgate_denial allow;
const tollgate_denial *const TOLLGATE_ALLOW = &allow;

static tollgate_option option(tollgate_text text) { return (tollgate_option){text.length > 0, text}; }

tollgate_denial *tollgate_deny(tollgate_text message) {
    tollgate_denial *denial = tollgate_allocate(sizeof *denial);
    *denial = (tollgate_denial){.message = message};
    return denial;
}

/* Memory begins at the null pointer, so an access through it does not trap. */
static void refuse_null(const tollgate_denial *denial, tollgate_text message) {
    if (denial == NULL) {
        TOLLGATE_ABORT(message);
    }
}

void tollgate_blame(tollgate_denial *denial, tollgate_text field, tollgate_text message) {
    refuse_null(denial, TOLLGATE_TEXT("tollgate_blame was given a null pointer; it takes a denial"));
    denial->causes = grown(denial->causes, denial->count, sizeof *denial->causes);
    denial->causes[denial->count++] = (cause){.field = option(field), .message = message};
}

void tollgate_deny_with_code(tollgate_denial *denial, uint16_t code) {
    refuse_null(denial, TOLLGATE_TEXT("tollgate_deny_with_code was given a null pointer; it takes a denial"));
    denial->has_code = true;
    denial->code = code;
}

const tollgate_denial *tollgate_if_blamed(const tollgate_denial *denial) {
    refuse_null(denial, TOLLGATE_TEXT("tollgate_if_blamed was given a null pointer; it takes a denial"));
    return denial->count > 0 ? denial : TOLLGATE_ALLOW;
}

const void *tollgate_verdict_answer(const tollgate_denial *denial) {
    static struct {
        uint8_t tag;
        tollgate_denial denial;
    } answer;
    refuse_null(denial, TOLLGATE_TEXT("tollgate_validate returned a null pointer; it has to return TOLLGATE_ALLOW or a denial"));
    answer.tag = denial != TOLLGATE_ALLOW;
    answer.denial = *denial;
    return &answer;
}

/* ---- Mutations ---- */

enum { UNCHANGED, JSON_PATCH, MERGE_PATCH, WHOLE_OBJECT, DENY };
enum { ADD, REMOVE, REPLACE };

typedef struct {
    uint8_t tag;
    tollgate_text path;
    uint8_t value_tag;
    tollgate_text value;
} operation;

struct tollgate_mutation {
    uint8_t tag;
    union {
        struct {
            operation *operations;
            size_t count;
        };
        tollgate_text json;
        tollgate_denial denial;
    };
};

static const tollgate_mutation unchanged = {.tag = UNCHANGED};
const tollgate_mutation *const TOLLGATE_UNCHANGED = &unchanged;

static tollgate_mutation *mutation(uint8_t tag) {
    tollgate_mutation *made = tollgate_allocate(sizeof *made);
    *made = (tollgate_mutation){.tag = tag};
    return made;
}

tollgate_mutation *tollgate_patch(void) { return mutation(JSON_PATCH); }

static void push(tollgate_mutation *patch, operation one) {
    TOLLGATE_ASSERT(patch->tag == JSON_PATCH);
    patch->operations = grown(patch->operations, patch->count, sizeof *patch->operations);
    patch->operations[patch->count++] = one;
}

void tollgate_add_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json) {
    check_pointer(file, line, path);
    push(patch, (operation){.tag = ADD, .path = path, .value = json});
}

void tollgate_replace_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json) {
    check_pointer(file, line, path);
    push(patch, (operation){.tag = REPLACE, .path = path, .value = json});
}

void tollgate_remove_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path) {
    check_pointer(file, line, path);
    push(patch, (operation){.tag = REMOVE, .path = path});
}

/* Whether an operation of this patch has added something at a place. */
static bool is_added(const tollgate_mutation *patch, tollgate_text path) {
    for (size_t index = 0; index < patch->count; index++) {
        if (patch->operations[index].tag == ADD && tollgate_equal(patch->operations[index].path, path)) {
            return true;
        }
    }
    return false;
}

static bool is_missing(const char *file, uint32_t line, const tollgate_mutation *patch, tollgate_text path, tollgate_value *value) {
    bool is_there = tollgate_get_at(file, line, TOLLGATE_OBJECT, path, value) && value->kind != TOLLGATE_NULL;
    return !is_there && !is_added(patch, path);
}

static tollgate_text parent_of(tollgate_text path) {
    size_t end = path.length;
    while (end > 0 && path.at[end - 1] != '/') {
        end--;
    }
    return tollgate_cut(path, 0, end > 0 ? end - 1 : 0);
}

void tollgate_set_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text path, tollgate_text json) {
    check_pointer(file, line, path);
    TOLLGATE_ASSERT(patch->tag == JSON_PATCH);
    tollgate_text parent = parent_of(path);
    tollgate_value value = {0};
    size_t end = parent.length;
    while (end > 0 && is_missing(file, line, patch, tollgate_cut(path, 0, end), &value)) {
        end = parent_of(tollgate_cut(path, 0, end)).length;
    }
    bool is_element = parent.length > 0 && end == parent.length && value.kind == TOLLGATE_ARRAY;
    for (size_t next = end + 1; next <= parent.length; next++) {
        if (next == parent.length || path.at[next] == '/') {
            tollgate_add_at(file, line, patch, tollgate_cut(path, 0, next), TOLLGATE_TEXT("{}"));
        }
    }
    if (is_element) {
        tollgate_replace_at(file, line, patch, path, json);
    } else {
        tollgate_add_at(file, line, patch, path, json);
    }
}

void tollgate_append_at(const char *file, uint32_t line, tollgate_mutation *patch, tollgate_text list, tollgate_text json) {
    check_pointer(file, line, list);
    TOLLGATE_ASSERT(patch->tag == JSON_PATCH);
    tollgate_value value;
    if (is_missing(file, line, patch, list, &value)) {
        tollgate_set_at(file, line, patch, list, TOLLGATE_TEXT("[]"));
    }
    tollgate_add_at(file, line, patch, TOLLGATE_JOIN(list, TOLLGATE_TEXT("/-")), json);
}

tollgate_mutation *tollgate_merge(tollgate_text json) {
    tollgate_mutation *made = mutation(MERGE_PATCH);
    made->json = json;
    return made;
}

tollgate_mutation *tollgate_mutation_deny(const tollgate_denial *denial) {
    refuse_null(denial, TOLLGATE_TEXT("tollgate_mutation_deny was given a null pointer; it takes a denial"));
    tollgate_mutation *made = mutation(DENY);
    made->denial = *denial;
    return made;
}

const void *tollgate_mutation_answer(const tollgate_mutation *answer) {
    if (answer == NULL) {
        TOLLGATE_ABORT(TOLLGATE_TEXT("tollgate_mutate returned a null pointer; it has to return TOLLGATE_UNCHANGED or a mutation"));
    }
    return answer;
}

/* ---- Settings ---- */

typedef struct {
    tollgate_option field;
    tollgate_text message;
} settings_error;

struct tollgate_settings_errors {
    settings_error *at;
    size_t count;
};

void tollgate_settings_error(tollgate_settings_errors *errors, tollgate_text pointer, tollgate_text message) {
    errors->at = grown(errors->at, errors->count, sizeof *errors->at);
    errors->at[errors->count++] = (settings_error){option(pointer), message};
}

TOLLGATE_EXPORT("lifecycle@0.1.0#describe") const void *tollgate_export_describe(void) { return &tollgate_manifest; }

TOLLGATE_EXPORT("lifecycle@0.1.0#configure") const void *tollgate_export_configure(const char *at, size_t length) {
    static struct {
        uint8_t tag;
        tollgate_settings_errors errors;
    } answer;
    tollgate_json settings = {{at, length}, 0};
    answer.errors = (tollgate_settings_errors){0};
    if (tollgate_json_kind(&settings) == '{') {
        tollgate_configure(settings, &answer.errors);
    } else {
        tollgate_settings_error(&answer.errors, (tollgate_text){0}, TOLLGATE_TEXT("the settings are not an object"));
    }
    answer.tag = answer.errors.count > 0;
    return &answer;
}

/* ---- JSON ---- */

static char here(const tollgate_json *json) {
    return json->place < json->text.length ? json->text.at[json->place] : '\0';
}

static void past_space(tollgate_json *json) {
    while (here(json) == ' ' || here(json) == '\n' || here(json) == '\t' || here(json) == '\r') {
        json->place++;
    }
}

char tollgate_json_kind(tollgate_json *json) {
    past_space(json);
    char first = here(json);
    return first == '-' || (first >= '0' && first <= '9') ? '0' : first;
}

/* The four digits of a \u escape. */
static uint32_t hexadecimal(tollgate_json *json) {
    uint32_t code = 0;
    for (int digit = 0; digit < 4; digit++) {
        char character = here(json);
        json->place++;
        code = code * 16 + (uint32_t)(character <= '9' ? character - '0' : (character | 0x20) - 'a' + 10);
    }
    return code;
}

static size_t put_utf8(char *to, uint32_t code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

static size_t put_escape(tollgate_json *json, char *to) {
    char kind = here(json);
    json->place++;
    switch (kind) {
    case 'b': return put_utf8(to, '\b');
    case 'f': return put_utf8(to, '\f');
    case 'n': return put_utf8(to, '\n');
    case 'r': return put_utf8(to, '\r');
    case 't': return put_utf8(to, '\t');
    case 'u': break;
    default: return put_utf8(to, (uint32_t)kind);
    }
    uint32_t code = hexadecimal(json);
    if (code >= 0xD800 && code < 0xDC00 && here(json) == '\\') {
        json->place += 2;
        code = 0x10000 + ((code - 0xD800) << 10) + (hexadecimal(json) - 0xDC00);
    }
    return put_utf8(to, code);
}

bool tollgate_json_string(tollgate_json *json, tollgate_text *string) {
    if (tollgate_json_kind(json) != '"') {
        tollgate_json_skip(json);
        return false;
    }
    char *read = tollgate_allocate(json->text.length - json->place);
    size_t length = 0;
    json->place++;
    while (here(json) != '"' && json->place < json->text.length) {
        if (here(json) == '\\') {
            json->place++;
            length += put_escape(json, read + length);
        } else {
            read[length++] = here(json);
            json->place++;
        }
    }
    json->place++;
    *string = (tollgate_text){read, length};
    return true;
}

bool tollgate_json_integer(tollgate_json *json, int64_t *integer) {
    bool is_number = tollgate_json_kind(json) == '0';
    size_t from = json->place;
    tollgate_json_skip(json);
    if (!is_number) {
        return false;
    }
    bool is_negative = json->text.at[from] == '-';
    uint64_t most = (uint64_t)INT64_MAX + is_negative;
    uint64_t magnitude = 0;
    for (size_t place = from + is_negative; place < json->place; place++) {
        char character = json->text.at[place];
        if (character == ' ' || character == '\n' || character == '\t' || character == '\r') {
            break;
        }
        uint64_t digit = (uint64_t)(character - '0');
        if (character < '0' || character > '9' || magnitude > (most - digit) / 10) {
            return false;
        }
        magnitude = magnitude * 10 + digit;
    }
    *integer = (int64_t)(is_negative ? 0 - magnitude : magnitude);
    return true;
}

bool tollgate_json_boolean(tollgate_json *json, bool *boolean) {
    char kind = tollgate_json_kind(json);
    tollgate_json_skip(json);
    if (kind != 't' && kind != 'f') {
        return false;
    }
    *boolean = kind == 't';
    return true;
}

void tollgate_json_skip(tollgate_json *json) {
    /* Iterates instead of recursing, because others decide how deep a value is nested. */
    size_t depth = 0;
    tollgate_text string;
    do {
        char kind = tollgate_json_kind(json);
        if (kind == '"') {
            tollgate_json_string(json, &string);
        } else {
            depth += kind == '{' || kind == '[';
            depth -= kind == '}' || kind == ']';
            json->place++;
            if (kind == '0' || (kind >= 'a' && kind <= 'z')) {
                while (here(json) != ',' && here(json) != '}' && here(json) != ']' && json->place < json->text.length) {
                    json->place++;
                }
            }
        }
    } while (depth > 0 && json->place < json->text.length);
}

bool tollgate_json_element(tollgate_json *json) {
    char kind = tollgate_json_kind(json);
    TOLLGATE_ASSERT(kind == '[' || kind == ',' || kind == ']');
    json->place++;
    if (kind == '[' && tollgate_json_kind(json) == ']') {
        json->place++;
        return false;
    }
    return kind != ']';
}

bool tollgate_json_member(tollgate_json *json, tollgate_text *name) {
    char kind = tollgate_json_kind(json);
    TOLLGATE_ASSERT(kind == '{' || kind == ',' || kind == '}');
    json->place++;
    if (kind == '}') {
        return false;
    }
    if (tollgate_json_kind(json) == '}') {
        json->place++;
        return false;
    }
    tollgate_json_string(json, name);
    past_space(json);
    json->place++;
    return true;
}

/* Whether a member's name is the token of a pointer, without its escapes. */
static bool is_token(tollgate_text token, tollgate_text name) {
    size_t place = 0;
    for (size_t index = 0; index < name.length; index++) {
        if (place == token.length) {
            return false;
        }
        char character = token.at[place++];
        if (character == '~') {
            character = token.at[place++] == '0' ? '~' : '/';
        }
        if (character != name.at[index]) {
            return false;
        }
    }
    return place == token.length;
}

/* Goes to a member or an element, and returns false if there is none. */
static bool go_to(tollgate_json *json, tollgate_text token) {
    char kind = tollgate_json_kind(json);
    tollgate_text name;
    if (kind == '{') {
        while (tollgate_json_member(json, &name)) {
            if (is_token(token, name)) {
                return true;
            }
            tollgate_json_skip(json);
        }
    } else if (kind == '[') {
        for (int64_t index = 0; tollgate_json_element(json); index++) {
            if (tollgate_equal(token, tollgate_of_integer(index))) {
                return true;
            }
            tollgate_json_skip(json);
        }
    }
    return false;
}

bool tollgate_json_place_at(const char *file, uint32_t line, tollgate_text json, tollgate_text pointer, tollgate_json *found) {
    check_pointer(file, line, pointer);
    *found = (tollgate_json){json, 0};
    while (pointer.length > 0) {
        pointer = tollgate_cut(pointer, 1, pointer.length);
        size_t end = tollgate_find(pointer, '/');
        if (!go_to(found, tollgate_cut(pointer, 0, end))) {
            return false;
        }
        pointer = tollgate_cut(pointer, end, pointer.length);
    }
    tollgate_json_kind(found);
    return true;
}
