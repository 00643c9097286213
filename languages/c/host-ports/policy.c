/* Allows ports of the node in Pods only in the ranges from the settings. */

#include "tollgate.h"

/* ---- Settings ---- */

enum { MOST_RANGES = 64, LOWEST_PORT = 1, HIGHEST_PORT = 65535 };

typedef struct {
    int64_t min;
    int64_t max;
} range;

static range allowed[MOST_RANGES];
static size_t allowed_count;
/* The ranges as text, for messages. */
static tollgate_text allowed_names;

/* Reads a port. For any other value, skips it and returns false. */
static bool read_port(tollgate_json *json, int64_t *port) {
    return tollgate_json_integer(json, port) && *port >= LOWEST_PORT && *port <= HIGHEST_PORT;
}

static tollgate_text named(range range) {
    if (range.min == range.max) {
        return tollgate_of_integer(range.min);
    }
    return TOLLGATE_JOIN(tollgate_of_integer(range.min), TOLLGATE_TEXT("-"), tollgate_of_integer(range.max));
}

static void read_range(tollgate_json *json, tollgate_text pointer, tollgate_settings_errors *errors) {
    if (tollgate_json_kind(json) != '{') {
        tollgate_json_skip(json);
        tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("must be an object with min and max"));
        return;
    }
    range range = {0};
    bool is_read = true;
    tollgate_text name;
    while (tollgate_json_member(json, &name)) {
        bool is_min = TOLLGATE_IS(name, "min");
        tollgate_text setting = tollgate_child(pointer, name);
        if (!is_min && !TOLLGATE_IS(name, "max")) {
            tollgate_json_skip(json);
            tollgate_settings_error(errors, setting, TOLLGATE_TEXT("unknown setting; there are: max, min"));
        } else if (!read_port(json, is_min ? &range.min : &range.max)) {
            is_read = false;
            tollgate_settings_error(errors, setting, TOLLGATE_TEXT("must be a port, from 1 to 65535"));
        }
    }
    if (!is_read) {
        return;
    }
    if (range.min == 0 || range.max < range.min) {
        tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("needs a min, and a max that is not below it"));
        return;
    }
    if (allowed_count == MOST_RANGES) {
        tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("is one too many: there may be 64"));
        return;
    }
    allowed[allowed_count++] = range;
    tollgate_text separator = allowed_names.length > 0 ? TOLLGATE_TEXT(", ") : (tollgate_text){0};
    allowed_names = TOLLGATE_JOIN(allowed_names, separator, named(range));
}

void tollgate_configure(tollgate_json settings, tollgate_settings_errors *errors) {
    allowed_count = 0;
    allowed_names = (tollgate_text){0};
    tollgate_text name;
    while (tollgate_json_member(&settings, &name)) {
        tollgate_text pointer = tollgate_child((tollgate_text){0}, name);
        if (!TOLLGATE_IS(name, "allowed")) {
            tollgate_json_skip(&settings);
            tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("unknown setting; there is: allowed"));
        } else if (tollgate_json_kind(&settings) != '[') {
            tollgate_json_skip(&settings);
            tollgate_settings_error(errors, pointer, TOLLGATE_TEXT("must be a list"));
        } else {
            for (int64_t index = 0; tollgate_json_element(&settings); index++) {
                read_range(&settings, tollgate_child(pointer, tollgate_of_integer(index)), errors);
            }
        }
    }
}

/* ---- The policy ---- */

/* With hostNetwork, kube-apiserver sets a hostPort for every port before a plugin sees the Pod. */
static const tollgate_text places[] = {
    TOLLGATE_POINTER_LITERAL("/spec/initContainers/*/ports/*/hostPort"),
    TOLLGATE_POINTER_LITERAL("/spec/containers/*/ports/*/hostPort"),
};
enum { PLACES = sizeof places / sizeof places[0] };

static bool is_allowed(int64_t port) {
    for (size_t index = 0; index < allowed_count; index++) {
        if (port >= allowed[index].min && port <= allowed[index].max) {
            return true;
        }
    }
    return false;
}

const tollgate_denial *tollgate_validate(void) {
    tollgate_text wanted = allowed_count > 0 ? TOLLGATE_JOIN(TOLLGATE_TEXT("must be in: "), allowed_names)
                                             : TOLLGATE_TEXT("must be left out");
    tollgate_denial *denial = tollgate_deny(TOLLGATE_TEXT("a Pod may not have this port of its node"));
    for (size_t place = 0; place < PLACES; place++) {
        tollgate_nodes nodes = tollgate_select(TOLLGATE_OBJECT, places[place]);
        for (size_t index = 0; index < nodes.count; index++) {
            tollgate_value port = nodes.at[index].value;
            /* In Kubernetes, 0 means no port. */
            bool is_none = port.kind == TOLLGATE_NULL || (port.kind == TOLLGATE_INTEGER && port.integer == 0);
            if (!is_none && !(port.kind == TOLLGATE_INTEGER && is_allowed(port.integer))) {
                tollgate_blame(denial, nodes.at[index].pointer, wanted);
            }
        }
    }
    return tollgate_if_blamed(denial);
}

static const tollgate_rule rules[] = {{
    .operations = TOLLGATE_LITERALS("CREATE", "UPDATE"),
    .api_groups = TOLLGATE_LITERALS(""),
    .api_versions = TOLLGATE_LITERALS("v1"),
    .resources = TOLLGATE_LITERALS("pods"),
}};

const tollgate_manifest_record tollgate_manifest = {
    .name = TOLLGATE_LITERAL("host-ports"),
    .version = TOLLGATE_LITERAL("0.1.0"),
    .description = TOLLGATE_LITERAL("Lets Pods have ports of their node in some ranges only"),
    .rules = {rules, 1},
};

TOLLGATE_VALIDATOR
