/* Allows only images from certain registries in Pods, and adds a tag to images without one. */

#include "tollgate.h"

/* ---- Images ---- */

/* A reference, split like in container runtimes, with Docker's abbreviations resolved. */
typedef struct {
    /* The name, including the registry and without the tag. */
    tollgate_text name;
    tollgate_text tag;
    /* Whether there is a tag or a digest. */
    bool is_pinned;
} image;

static bool looks_like_host(tollgate_text component) {
    return TOLLGATE_IS(component, "localhost") ||
           tollgate_find(component, '.') < component.length || tollgate_find(component, ':') < component.length;
}

static bool is_upper(char character) { return character >= 'A' && character <= 'Z'; }

static bool has_upper(tollgate_text text) {
    for (size_t index = 0; index < text.length; index++) {
        if (is_upper(text.at[index])) {
            return true;
        }
    }
    return false;
}

static tollgate_text lower(tollgate_text text) {
    char *lowered = tollgate_allocate(text.length);
    for (size_t index = 0; index < text.length; index++) {
        lowered[index] = is_upper(text.at[index]) ? (char)(text.at[index] + 'a' - 'A') : text.at[index];
    }
    return (tollgate_text){lowered, text.length};
}

/* The place after the last occurrence of a character, or 0 if there is none. */
static size_t behind_last(tollgate_text text, char character) {
    size_t place = text.length;
    while (place > 0 && text.at[place - 1] != character) {
        place--;
    }
    return place;
}

static image parse(tollgate_text reference) {
    size_t digest = tollgate_find(reference, '@');
    tollgate_text name = tollgate_cut(reference, 0, digest);
    image parsed = {.is_pinned = digest < reference.length};
    size_t tag = behind_last(name, ':');
    /* A colon before the last slash belongs to a port. */
    if (tag > behind_last(name, '/')) {
        parsed.tag = tollgate_cut(name, tag, name.length);
        parsed.is_pinned |= parsed.tag.length > 0;
        name = tollgate_cut(name, 0, tag - 1);
    }
    size_t slash = tollgate_find(name, '/');
    tollgate_text host = TOLLGATE_TEXT("docker.io");
    tollgate_text path = name;
    if (slash < name.length) {
        tollgate_text head = tollgate_cut(name, 0, slash);
        if (looks_like_host(head) || has_upper(head)) {
            host = lower(head);
            path = tollgate_cut(name, slash + 1, name.length);
        }
    }
    if (TOLLGATE_IS(host, "index.docker.io")) {
        host = TOLLGATE_TEXT("docker.io");
    }
    bool is_official = TOLLGATE_IS(host, "docker.io") && tollgate_find(path, '/') == path.length;
    tollgate_text library = is_official ? TOLLGATE_TEXT("library/") : (tollgate_text){0};
    parsed.name = TOLLGATE_JOIN(host, TOLLGATE_TEXT("/"), library, path);
    return parsed;
}

/* Compares components: registry.example.com is not a prefix of registry.example.com.evil.io. */
static bool is_within(image image, tollgate_text prefix) {
    return tollgate_begins_with(image.name, prefix) &&
           (image.name.length == prefix.length || image.name.at[prefix.length] == '/');
}

/* ---- Settings ---- */

enum { MOST_ALLOWED = 256 };

static tollgate_text allowed[MOST_ALLOWED];
static size_t allowed_count;
/* The registries as text, for messages. */
static tollgate_text allowed_names;
static tollgate_text default_tag;
static tollgate_text message;

static bool is_tag(tollgate_text text) {
    bool is_good = text.length > 0 && text.length <= 128 && text.at[0] != '.' && text.at[0] != '-';
    for (size_t index = 0; index < text.length; index++) {
        char c = text.at[index];
        is_good &= (c >= 'a' && c <= 'z') || is_upper(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    }
    return is_good;
}

static void read_allowed(tollgate_json *json, tollgate_settings_errors *errors) {
    if (tollgate_json_kind(json) != '[') {
        tollgate_json_skip(json);
        tollgate_settings_error(errors, TOLLGATE_TEXT("/allowed"), TOLLGATE_TEXT("must be a list"));
        return;
    }
    for (int64_t index = 0; tollgate_json_element(json); index++) {
        tollgate_text pointer = tollgate_child(TOLLGATE_TEXT("/allowed"), tollgate_of_integer(index));
        tollgate_text prefix;
        if (!tollgate_json_string(json, &prefix)) {
            tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("must be a string"));
            continue;
        }
        if (allowed_count == MOST_ALLOWED) {
            tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("is one too many: there may be 256"));
            continue;
        }
        if (prefix.length > 0 && prefix.at[prefix.length - 1] == '/') {
            prefix.length--;
        }
        size_t slash = tollgate_find(prefix, '/');
        tollgate_text host = tollgate_cut(prefix, 0, slash);
        tollgate_text path = tollgate_cut(prefix, slash, prefix.length);
        if (!looks_like_host(host) || path.length == 1 || tollgate_begins_with(path, TOLLGATE_TEXT("//"))) {
            tollgate_settings_error(
                errors, pointer,
                TOLLGATE_TEXT("begins with no registry, such as registry.example.com or localhost:5000"));
        }
        allowed[allowed_count++] = TOLLGATE_JOIN(lower(host), path);
        tollgate_text separator = allowed_names.length > 0 ? TOLLGATE_TEXT(", ") : (tollgate_text){0};
        allowed_names = TOLLGATE_JOIN(allowed_names, separator, allowed[allowed_count - 1]);
    }
}

static void read_string(tollgate_json *json, tollgate_text name, tollgate_text *setting,
                        tollgate_settings_errors *errors) {
    if (!tollgate_json_string(json, setting)) {
        tollgate_settings_error(errors, tollgate_child((tollgate_text){0}, name), TOLLGATE_TEXT("must be a string"));
    }
}

void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors) {
    bool has_list = true;
    allowed_count = 0;
    allowed_names = (tollgate_text){0};
    default_tag = (tollgate_text){0};
    message = TOLLGATE_TEXT("images must come from trusted registries");
    tollgate_text name;
    while (tollgate_json_member(&settings, &name)) {
        if (TOLLGATE_IS(name, "allowed")) {
            has_list = tollgate_json_kind(&settings) == '[';
            read_allowed(&settings, errors);
        } else if (TOLLGATE_IS(name, "defaultTag")) {
            read_string(&settings, name, &default_tag, errors);
        } else if (TOLLGATE_IS(name, "message")) {
            read_string(&settings, name, &message, errors);
        } else {
            tollgate_json_skip(&settings);
            tollgate_settings_error(errors, tollgate_child((tollgate_text){0}, name),
                                    TOLLGATE_TEXT("unknown setting; there are: allowed, defaultTag, message"));
        }
    }
    if (has_list && allowed_count == 0) {
        tollgate_settings_error(errors, TOLLGATE_TEXT("/allowed"),
                                TOLLGATE_TEXT("name at least one registry, such as registry.example.com"));
    }
    if (default_tag.length > 0 && !is_tag(default_tag)) {
        tollgate_settings_error(errors, TOLLGATE_TEXT("/defaultTag"), TOLLGATE_TEXT("is no tag"));
    }
}

/* ---- The policy ---- */

static const tollgate_text places[] = {
    TOLLGATE_POINTER_LITERAL("/spec/initContainers/*/image"),
    TOLLGATE_POINTER_LITERAL("/spec/containers/*/image"),
    TOLLGATE_POINTER_LITERAL("/spec/ephemeralContainers/*/image"),
    TOLLGATE_POINTER_LITERAL("/spec/volumes/*/image/reference"),
};
enum { PLACES = sizeof places / sizeof places[0] };

static bool is_allowed(image image) {
    for (size_t index = 0; index < allowed_count; index++) {
        if (is_within(image, allowed[index])) {
            return true;
        }
    }
    return false;
}

static void judge(const tollgate_node *node, tollgate_denial *denial) {
    if (node->value.kind != TOLLGATE_STRING) {
        tollgate_blame(denial, node->pointer, TOLLGATE_TEXT("must be a string"));
        return;
    }
    image image = parse(node->value.text);
    if (!is_allowed(image)) {
        tollgate_blame(denial, node->pointer, TOLLGATE_JOIN(TOLLGATE_TEXT("must be from one of: "), allowed_names));
    } else if (default_tag.length > 0 && !image.is_pinned) {
        tollgate_blame(denial, node->pointer, TOLLGATE_TEXT("must have a tag or a digest"));
    } else if (tollgate_equal(image.tag, TOLLGATE_TEXT("latest"))) {
        tollgate_warn(
            TOLLGATE_JOIN(node->pointer, TOLLGATE_TEXT(": the tag latest may stand for another image tomorrow")));
    }
}

const tollgate_denial *tollgate_validate(void) {
    tollgate_denial *denial = tollgate_deny(message);
    int64_t count = 0;
    for (size_t place = 0; place < PLACES; place++) {
        tollgate_nodes nodes = tollgate_select(TOLLGATE_OBJECT, places[place]);
        for (size_t index = 0; index < nodes.count; index++, count++) {
            judge(&nodes.at[index], denial);
        }
    }
    tollgate_annotate(TOLLGATE_TEXT("images"), tollgate_of_integer(count));
    return tollgate_if_blamed(denial);
}

const tollgate_mutation *tollgate_mutate(void) {
    if (default_tag.length == 0) {
        return TOLLGATE_UNCHANGED;
    }
    tollgate_mutation *patch = tollgate_patch();
    int64_t pinned = 0;
    for (size_t place = 0; place < PLACES; place++) {
        tollgate_nodes nodes = tollgate_select(TOLLGATE_OBJECT, places[place]);
        for (size_t index = 0; index < nodes.count; index++) {
            const tollgate_node *node = &nodes.at[index];
            bool is_string = node->value.kind == TOLLGATE_STRING && node->value.text.length > 0;
            if (is_string && !parse(node->value.text).is_pinned) {
                tollgate_text tagged = TOLLGATE_JOIN(node->value.text, TOLLGATE_TEXT(":"), default_tag);
                tollgate_replace(patch, node->pointer, tollgate_quoted(tagged));
                pinned++;
            }
        }
    }
    if (pinned > 0) {
        tollgate_annotate(TOLLGATE_TEXT("pinned"), tollgate_of_integer(pinned));
    }
    return patch;
}

static const tollgate_rule rules[] = {{
    .operations = TOLLGATE_LITERALS("CREATE", "UPDATE"),
    .api_groups = TOLLGATE_LITERALS(""),
    .api_versions = TOLLGATE_LITERALS("v1"),
    .resources = TOLLGATE_LITERALS("pods", "pods/ephemeralcontainers"),
}};

const tollgate_manifest_record tollgate_manifest = {
    .name = {"trusted-registries", sizeof "trusted-registries" - 1},
    .version = TOLLGATE_LITERAL("0.1.0"),
    .description = TOLLGATE_LITERAL("Lets Pods have images of trusted registries only"),
    .rules = {rules, 1},
};

TOLLGATE_VALIDATOR
TOLLGATE_MUTATOR
