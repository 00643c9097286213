//! Allows only images from certain registries in Pods, and adds a tag to images without one.

const std = @import("std");
const contract = @import("contract");
const Text = contract.Text;

pub const panic = std.debug.FullPanic(contract.panicked);

comptime {
    contract.exportPlugin(@This());
}

// === Images ===

/// A reference, split like in container runtimes, with Docker's abbreviations resolved.
const Image = struct {
    /// The name, including the registry and without the tag.
    name: []const u8,
    tag: []const u8,
    /// Whether there is a tag or a digest.
    is_pinned: bool,

    fn parse(reference: []const u8) Image {
        const digest = std.mem.indexOfScalar(u8, reference, '@') orelse reference.len;
        var name = reference[0..digest];
        var image = Image{ .name = "", .tag = "", .is_pinned = digest < reference.len };
        const slash = std.mem.lastIndexOfScalar(u8, name, '/');
        // A colon before the last slash belongs to a port.
        if (std.mem.lastIndexOfScalar(u8, name, ':')) |colon| if (slash == null or colon > slash.?) {
            image.tag = name[colon + 1 ..];
            image.is_pinned = image.is_pinned or image.tag.len > 0;
            name = name[0..colon];
        };
        var host: []const u8 = "docker.io";
        var path = name;
        if (std.mem.indexOfScalar(u8, name, '/')) |end| {
            const head = name[0..end];
            if (looksLikeHost(head) or !std.mem.eql(u8, head, lower(head))) {
                host = lower(head);
                path = name[end + 1 ..];
            }
        }
        if (std.mem.eql(u8, host, "index.docker.io")) host = "docker.io";
        const is_official = std.mem.eql(u8, host, "docker.io") and std.mem.indexOfScalar(u8, path, '/') == null;
        image.name = contract.join(&.{ host, "/", if (is_official) "library/" else "", path });
        return image;
    }

    /// Compares components: registry.example.com is not a prefix of registry.example.com.evil.io.
    fn isWithin(image: Image, prefix: []const u8) bool {
        return std.mem.startsWith(u8, image.name, prefix) and
            (image.name.len == prefix.len or image.name[prefix.len] == '/');
    }
};

fn looksLikeHost(component: []const u8) bool {
    return std.mem.eql(u8, component, "localhost") or std.mem.indexOfAny(u8, component, ".:") != null;
}

fn lower(text: []const u8) []const u8 {
    return std.ascii.allocLowerString(contract.memory, text) catch contract.fail(@src(), "out of memory");
}

// === Settings. Calls start from the memory that `configure` leaves. ===

const Settings = struct {
    allowed: []const []const u8 = &.{},
    default_tag: []const u8 = "",
    message: []const u8 = "images must come from trusted registries",
};

var settings: Settings = .{};

const Errors = struct {
    list: []const contract.SettingsError = &.{},

    fn add(errors: *Errors, field: []const u8, message: []const u8) void {
        const one = contract.SettingsError{ .field = .some(.of(field)), .message = .of(message) };
        errors.list = appended(contract.SettingsError, errors.list, one);
    }
};

pub fn configure(json: []const u8) []const contract.SettingsError {
    settings = .{};
    var errors = Errors{};
    const options = std.json.ParseOptions{ .allocate = .alloc_always };
    const parsed = std.json.parseFromSliceLeaky(std.json.Value, contract.memory, json, options) catch
        contract.fail(@src(), "the host gives JSON");
    var has_list = true;
    var members = parsed.object.iterator();
    while (members.next()) |member| {
        const name = member.key_ptr.*;
        if (std.mem.eql(u8, name, "allowed")) {
            has_list = member.value_ptr.* == .array;
            readAllowed(member.value_ptr.*, &errors);
        } else if (std.mem.eql(u8, name, "defaultTag")) {
            readString(member.value_ptr.*, "/defaultTag", &settings.default_tag, &errors);
        } else if (std.mem.eql(u8, name, "message")) {
            readString(member.value_ptr.*, "/message", &settings.message, &errors);
        } else {
            errors.add(contract.child("", name), "unknown setting; there are: allowed, defaultTag, message");
        }
    }
    if (has_list and settings.allowed.len == 0) {
        errors.add("/allowed", "name at least one registry, such as registry.example.com");
    }
    if (settings.default_tag.len > 0 and !isTag(settings.default_tag)) {
        errors.add("/defaultTag", "is no tag");
    }
    return errors.list;
}

fn readAllowed(value: std.json.Value, errors: *Errors) void {
    if (value != .array) return errors.add("/allowed", "must be a list");
    for (value.array.items, 0..) |item, index| {
        const pointer = contract.format("/allowed/{d}", .{index});
        if (item != .string) {
            errors.add(pointer, "must be a string");
            continue;
        }
        const prefix = if (std.mem.endsWith(u8, item.string, "/")) item.string[0 .. item.string.len - 1] else item.string;
        const slash = std.mem.indexOfScalar(u8, prefix, '/') orelse prefix.len;
        const path = prefix[slash..];
        if (!looksLikeHost(prefix[0..slash]) or path.len == 1 or std.mem.startsWith(u8, path, "//")) {
            errors.add(pointer, "begins with no registry, such as registry.example.com or localhost:5000");
        }
        const registry = contract.join(&.{ lower(prefix[0..slash]), path });
        settings.allowed = appended([]const u8, settings.allowed, registry);
    }
}

fn readString(value: std.json.Value, pointer: []const u8, setting: *[]const u8, errors: *Errors) void {
    if (value == .string) {
        setting.* = value.string;
    } else {
        errors.add(pointer, "must be a string");
    }
}

fn isTag(text: []const u8) bool {
    if (text.len > 128 or text[0] == '.' or text[0] == '-') return false;
    for (text) |character| {
        if (!std.ascii.isAlphanumeric(character) and std.mem.indexOfScalar(u8, "_.-", character) == null) return false;
    }
    return true;
}

// === The policy ===

const places = [_][]const u8{
    "/spec/initContainers/*/image",
    "/spec/containers/*/image",
    "/spec/ephemeralContainers/*/image",
    "/spec/volumes/*/image/reference",
};

pub fn validate() contract.Verdict {
    var causes: []const contract.Cause = &.{};
    var count: usize = 0;
    for (places) |place| {
        for (contract.select(@src(), .object, place)) |node| {
            count += 1;
            const problem = judge(node) orelse continue;
            const cause = contract.Cause{ .field = .some(node.pointer), .message = .of(problem) };
            causes = appended(contract.Cause, causes, cause);
        }
    }
    contract.annotate("images", contract.format("{d}", .{count}));
    if (causes.len == 0) return .{ .kind = .allow };
    return .{ .kind = .deny, .denial = .{ .message = .of(settings.message), .causes = .of(causes) } };
}

/// Returns what is wrong with an image.
fn judge(node: contract.Node) ?[]const u8 {
    if (node.value.kind != .text) return "must be a string";
    const image = Image.parse(node.value.as.text.slice());
    const is_allowed = for (settings.allowed) |prefix| {
        if (image.isWithin(prefix)) break true;
    } else false;
    if (!is_allowed) return contract.join(&.{ "must be from one of: ", joined(settings.allowed) });
    if (settings.default_tag.len > 0 and !image.is_pinned) return "must have a tag or a digest";
    if (std.mem.eql(u8, image.tag, "latest")) {
        const pointer = node.pointer.slice();
        contract.warn(contract.join(&.{ pointer, ": the tag latest may stand for another image tomorrow" }));
    }
    return null;
}

pub fn mutate() contract.Mutation {
    if (settings.default_tag.len == 0) return .{ .kind = .unchanged };
    var patch: []const contract.PatchOperation = &.{};
    for (places) |place| {
        for (contract.select(@src(), .object, place)) |node| {
            if (node.value.kind != .text or node.value.as.text.len == 0) continue;
            const reference = node.value.as.text.slice();
            if (Image.parse(reference).is_pinned) continue;
            const tagged = contract.join(&.{ reference, ":", settings.default_tag });
            const value = contract.NewValue{ .kind = .text, .text = .of(tagged) };
            patch = appended(contract.PatchOperation, patch, .replace(node.pointer.slice(), value));
        }
    }
    if (patch.len > 0) contract.annotate("pinned", contract.format("{d}", .{patch.len}));
    return .{ .kind = .json_patch, .as = .{ .patch = .of(patch) } };
}

fn joined(parts: []const []const u8) []const u8 {
    return std.mem.join(contract.memory, ", ", parts) catch contract.fail(@src(), "out of memory");
}

fn appended(comptime T: type, list: []const T, one: T) []const T {
    return std.mem.concat(contract.memory, T, &.{ list, &.{one} }) catch contract.fail(@src(), "out of memory");
}

pub const manifest = contract.Manifest{
    .name = .of("trusted-registries"),
    .version = .of("0.1.0"),
    .description = .of("Lets Pods have images of trusted registries only"),
    .rules = .of(&.{.{
        .operations = .of(&.{ Text.of("CREATE"), Text.of("UPDATE") }),
        .api_groups = .of(&.{Text.of("")}),
        .api_versions = .of(&.{Text.of("v1")}),
        .resources = .of(&.{ Text.of("pods"), Text.of("pods/ephemeralcontainers") }),
    }}),
    .labels = .of(&.{}),
};
