//! The contract of `wit/` in the canonical ABI, written by hand: what a plugin imports, exports and returns.
//!
//! There is no SDK for Zig. This file shows that none is needed: the types below have the layout that the canonical ABI
//! gives to the types of `wit/types.wit`, and the comptime block checks their sizes.

const std = @import("std");
const builtin = @import("builtin");

pub const Source = std.builtin.SourceLocation;

/// Gives memory to the plugin and to the host. A call runs in a fresh instance, so nothing needs to be freed.
pub const memory = std.heap.wasm_allocator;

// === The types of wit/types.wit ===

pub const Text = extern struct {
    at: [*]const u8,
    len: usize,

    pub fn of(text: []const u8) Text {
        return .{ .at = text.ptr, .len = text.len };
    }

    pub fn slice(text: Text) []const u8 {
        return text.at[0..text.len];
    }
};

pub fn List(comptime T: type) type {
    return extern struct {
        at: [*]const T,
        len: usize,

        pub fn of(items: []const T) @This() {
            return .{ .at = items.ptr, .len = items.len };
        }

        pub fn slice(list: @This()) []const T {
            return list.at[0..list.len];
        }
    };
}

pub fn Option(comptime T: type) type {
    return extern struct {
        is_some: bool,
        value: T,

        pub const none: @This() = .{ .is_some = false, .value = undefined };

        pub fn some(value: T) @This() {
            return .{ .is_some = true, .value = value };
        }

        pub fn get(option: @This()) ?T {
            return if (option.is_some) option.value else null;
        }
    };
}

pub const Part = enum(u32) { object, old_object, options, request, namespace };

pub const Value = extern struct {
    kind: Kind,
    as: extern union {
        boolean: bool,
        integer: i64,
        number: f64,
        text: Text,
        /// The number of elements or members.
        count: u32,
    },

    pub const Kind = enum(u8) { null, boolean, integer, number, text, array, object };
};

pub const Node = extern struct { pointer: Text, value: Value };

/// A new value in a patch: JSON as text, or a string without quotes.
pub const NewValue = extern struct {
    kind: enum(u8) { json, text },
    text: Text,
};

pub const PatchOperation = extern struct {
    kind: enum(u8) { add, remove, replace, move, copy, @"test" },
    /// The place, or for `move` and `copy` the source.
    path: Text,
    /// For `add`, `replace` and `test`.
    value: NewValue,

    pub fn add(path: []const u8, value: NewValue) PatchOperation {
        return .{ .kind = .add, .path = .of(path), .value = value };
    }

    pub fn replace(path: []const u8, value: NewValue) PatchOperation {
        return .{ .kind = .replace, .path = .of(path), .value = value };
    }

    pub fn remove(path: []const u8) PatchOperation {
        return .{ .kind = .remove, .path = .of(path), .value = undefined };
    }
};

pub const Cause = extern struct {
    field: Option(Text),
    message: Text,
    reason: Option(Text) = .none,
};

pub const Denial = extern struct {
    message: Text,
    code: Option(u16) = .none,
    reason: Option(Text) = .none,
    causes: List(Cause),
};

pub const Mutation = extern struct {
    kind: enum(u8) { unchanged, json_patch, merge_patch, object, deny },
    as: extern union { patch: List(PatchOperation), json: Text, denial: Denial } = undefined,
};

pub const Verdict = extern struct {
    kind: enum(u8) { allow, deny },
    denial: Denial = undefined,
};

pub const SettingsError = extern struct { field: Option(Text), message: Text };

pub const Configured = extern struct {
    kind: enum(u8) { accepted, rejected },
    errors: List(SettingsError),
};

pub const Rule = extern struct {
    operations: List(Text),
    api_groups: List(Text),
    api_versions: List(Text),
    resources: List(Text),
    scope: Option(Text) = .none,
};

pub const Label = extern struct { key: Text, value: Text };

pub const Manifest = extern struct {
    name: Text,
    version: Text,
    description: Text,
    settings_schema: Option(Text) = .none,
    rules: List(Rule),
    labels: List(Label),
};

// === The types of wit/cluster.wit ===

pub const Object = extern struct { namespace: Option(Text), name: Text, fields: Text };
pub const Page = extern struct { objects: List(Object), next: Option(Text) };
pub const Failure = extern struct {
    kind: enum(u8) { not_granted, not_synchronised },
    why: Text,
};

pub fn Result(comptime T: type) type {
    return Fallible(T, Failure);
}

fn Fallible(comptime T: type, comptime F: type) type {
    return extern struct {
        is_error: bool,
        as: extern union { answer: T, failure: F },
    };
}

// === The types of wit/access.wit ===

pub const ResourceAction = extern struct { verb: Text, group: Text, resource: Text, subresource: Text, namespace: Text, name: Text };
pub const PathAction = extern struct { verb: Text, path: Text };
pub const Action = extern struct {
    kind: enum(u8) { resource, path },
    as: extern union { resource: ResourceAction, path: PathAction },
};
pub const ServiceAccount = extern struct { namespace: Text, name: Text };
pub const Decision = extern struct { allowed: bool, reason: Text, @"error": Option(Text) };
pub const AccessFailure = extern struct {
    kind: enum(u8) { not_granted, unavailable },
    why: Text,
};
/// The parameters of `check`: they are too many for the stack, so they are in memory.
const Asked = extern struct { action: Action, account: Option(ServiceAccount) };

// === The types of wit/images.wit ===

pub const ImageRequest = extern struct { image: Text, policy: Text };
pub const VerifiedImage = extern struct { digest: Text, pinned: bool, signers: List(Text), last_known_good: bool };
pub const ImageRefusal = extern struct { digest: Text, reason: Text };
pub const ImageFailure = extern struct {
    kind: enum(u8) { malformed, not_granted, not_found, unsigned, untrusted, unavailable },
    as: extern union { why: Text, refusal: ImageRefusal },
};
pub const ImageAnswer = Fallible(VerifiedImage, ImageFailure);

comptime {
    if (builtin.target.cpu.arch == .wasm32) {
        const sizes = .{
            .{ Text, 8 },      .{ Option(Text), 12 },   .{ Value, 16 },      .{ Option(Value), 24 }, .{ Node, 24 },
            .{ NewValue, 12 }, .{ PatchOperation, 24 }, .{ Cause, 32 },      .{ Denial, 32 },        .{ Mutation, 36 },
            .{ Verdict, 36 },  .{ SettingsError, 20 },  .{ Configured, 12 }, .{ Rule, 44 },          .{ Manifest, 52 },
            .{ Object, 28 },   .{ Page, 20 },           .{ Failure, 12 },    .{ Result(Page), 24 },  .{ Result(Option(Object)), 36 },
            .{ Action, 52 },   .{ Asked, 72 },          .{ Decision, 24 },   .{ AccessFailure, 12 }, .{ Fallible(Decision, AccessFailure), 28 },
            .{ ImageRequest, 16 }, .{ VerifiedImage, 24 }, .{ ImageFailure, 20 }, .{ ImageAnswer, 28 },
        };
        for (sizes) |pair| {
            if (@sizeOf(pair[0]) != pair[1]) @compileError(@typeName(pair[0]) ++ " has not the layout of the contract");
        }
    }
}

// === Imports. A result of more than one word goes to the place that the last parameter names. ===

const review = struct {
    extern "tollgate:admission/review@0.1.0" fn get(part: Part, at: [*]const u8, len: usize, to: *Option(Value)) void;
    extern "tollgate:admission/review@0.1.0" fn @"get-json"(part: Part, at: [*]const u8, len: usize, to: *Option(Text)) void;
    extern "tollgate:admission/review@0.1.0" fn @"get-many"(part: Part, at: [*]const Text, len: usize, to: *List(Option(Value))) void;
    extern "tollgate:admission/review@0.1.0" fn keys(part: Part, at: [*]const u8, len: usize, to: *Option(List(Text))) void;
    extern "tollgate:admission/review@0.1.0" fn select(part: Part, at: [*]const u8, len: usize, to: *List(Node)) void;
    extern "tollgate:admission/review@0.1.0" fn warn(at: [*]const u8, len: usize) void;
    extern "tollgate:admission/review@0.1.0" fn annotate(key: [*]const u8, key_len: usize, at: [*]const u8, len: usize) void;
};
const logging = struct {
    extern "tollgate:admission/logging@0.1.0" fn log(level: u32, at: [*]const u8, len: usize) void;
    extern "tollgate:admission/logging@0.1.0" fn abort(at: [*]const u8, len: usize, has_place: u32, file: [*]const u8, file_len: usize, line: u32, column: u32) noreturn;
};
const cluster = struct {
    extern "tollgate:admission/cluster@0.1.0" fn get(lookup: [*]const u8, lookup_len: usize, has_namespace: u32, namespace: [*]const u8, namespace_len: usize, name: [*]const u8, name_len: usize, to: *Result(Option(Object))) void;
    extern "tollgate:admission/cluster@0.1.0" fn find(lookup: [*]const u8, lookup_len: usize, index: [*]const u8, index_len: usize, key: [*]const u8, key_len: usize, is_after: u32, after: [*]const u8, after_len: usize, to: *Result(Page)) void;
    extern "tollgate:admission/cluster@0.1.0" fn list(lookup: [*]const u8, lookup_len: usize, has_namespace: u32, namespace: [*]const u8, namespace_len: usize, is_after: u32, after: [*]const u8, after_len: usize, to: *Result(Page)) void;
};
const access = struct {
    extern "tollgate:admission/access@0.1.0" fn check(asked: *const Asked, to: *Fallible(Decision, AccessFailure)) void;
};

const images = struct {
    extern "tollgate:admission/images@0.1.0" fn verify(requests: [*]const ImageRequest, len: usize, to: *List(ImageAnswer)) void;
};

/// Returns the value at a pointer. JSON null is a value.
pub fn get(comptime source: Source, part: Part, pointer: []const u8) ?Value {
    check(source, pointer);
    var to: Option(Value) = undefined;
    review.get(part, pointer.ptr, pointer.len, &to);
    return to.get();
}

/// Returns the string at a pointer. None if there is nothing, or another kind of value.
pub fn getText(comptime source: Source, part: Part, pointer: []const u8) ?[]const u8 {
    const value = get(source, part, pointer) orelse return null;
    return if (value.kind == .text) value.as.text.slice() else null;
}

pub fn getJson(comptime source: Source, part: Part, pointer: []const u8) ?[]const u8 {
    check(source, pointer);
    var to: Option(Text) = undefined;
    review.@"get-json"(part, pointer.ptr, pointer.len, &to);
    return if (to.get()) |json| json.slice() else null;
}

pub fn getMany(comptime source: Source, part: Part, pointers: []const Text) []const Option(Value) {
    for (pointers) |pointer| check(source, pointer.slice());
    var to: List(Option(Value)) = undefined;
    review.@"get-many"(part, pointers.ptr, pointers.len, &to);
    return to.slice();
}

pub fn keys(comptime source: Source, part: Part, pointer: []const u8) ?[]const Text {
    check(source, pointer);
    var to: Option(List(Text)) = undefined;
    review.keys(part, pointer.ptr, pointer.len, &to);
    return if (to.get()) |names| names.slice() else null;
}

pub fn select(comptime source: Source, part: Part, pattern: []const u8) []const Node {
    check(source, pattern);
    var to: List(Node) = undefined;
    review.select(part, pattern.ptr, pattern.len, &to);
    return to.slice();
}

pub fn warn(message: []const u8) void {
    review.warn(message.ptr, message.len);
}

pub fn annotate(key: []const u8, value: []const u8) void {
    review.annotate(key.ptr, key.len, value.ptr, value.len);
}

pub const Level = enum(u32) { @"error", warn, info, debug, trace };

pub fn log(level: Level, message: []const u8) void {
    logging.log(@backingInt(level), message.ptr, message.len);
}

/// Ends the call as a fault, with a place in the source.
pub fn fail(source: Source, message: []const u8) noreturn {
    logging.abort(message.ptr, message.len, 1, source.file.ptr, source.file.len, source.line, source.column);
}

/// Ends the call as a fault. The panic handler of a plugin: `pub const panic = std.debug.FullPanic(contract.panicked);`
pub fn panicked(message: []const u8, address: ?usize) noreturn {
    _ = address;
    logging.abort(message.ptr, message.len, 0, "", 0, 0, 0);
}

pub fn clusterGet(lookup: []const u8, namespace: ?[]const u8, name: []const u8) Result(Option(Object)) {
    var to: Result(Option(Object)) = undefined;
    const in = namespace orelse "";
    cluster.get(lookup.ptr, lookup.len, @intFromBool(namespace != null), in.ptr, in.len, name.ptr, name.len, &to);
    return to;
}

pub fn clusterFind(lookup: []const u8, index: []const u8, key: []const u8, after: ?[]const u8) Result(Page) {
    var to: Result(Page) = undefined;
    const from = after orelse "";
    cluster.find(lookup.ptr, lookup.len, index.ptr, index.len, key.ptr, key.len, @intFromBool(after != null), from.ptr, from.len, &to);
    return to;
}

pub fn clusterList(lookup: []const u8, namespace: ?[]const u8, after: ?[]const u8) Result(Page) {
    var to: Result(Page) = undefined;
    const in = namespace orelse "";
    const from = after orelse "";
    cluster.list(lookup.ptr, lookup.len, @intFromBool(namespace != null), in.ptr, in.len, @intFromBool(after != null), from.ptr, from.len, &to);
    return to;
}

/// Whether the user of the request may do something, or a service account.
pub fn mayDo(action: Action, account: ?ServiceAccount) Fallible(Decision, AccessFailure) {
    const asked = Asked{ .action = action, .account = if (account) |some| .some(some) else .none };
    var to: Fallible(Decision, AccessFailure) = undefined;
    access.check(&asked, &to);
    return to;
}

/// Verifies images, all at the same time. Returns an answer for each request, in the same order.
pub fn verifyImages(requests: []const ImageRequest) []const ImageAnswer {
    // The address of an empty slice need not be in memory.
    if (requests.len == 0) return &.{};
    var to: List(ImageAnswer) = undefined;
    images.verify(requests.ptr, requests.len, &to);
    return to.slice();
}

// === Texts ===

pub fn join(parts: []const []const u8) []const u8 {
    return std.mem.concat(memory, u8, parts) catch fail(@src(), "out of memory");
}

pub fn format(comptime text: []const u8, arguments: anytype) []const u8 {
    return std.fmt.allocPrint(memory, text, arguments) catch fail(@src(), "out of memory");
}

/// Returns the pointer to a member, whose name is escaped.
pub fn child(pointer: []const u8, name: []const u8) []const u8 {
    const tilde = replaced(name, "~", "~0");
    return join(&.{ pointer, "/", replaced(tilde, "/", "~1") });
}

fn replaced(text: []const u8, what: []const u8, with: []const u8) []const u8 {
    return std.mem.replaceOwned(u8, memory, text, what, with) catch fail(@src(), "out of memory");
}

/// Checks a pointer as the host does. The host does not know the line of the policy.
fn check(comptime source: Source, pointer: []const u8) void {
    if (problem(pointer)) |what| fail(source, join(&.{ "`", pointer, "` is no JSON Pointer: ", what }));
}

/// Checks the path of a patch operation.
pub fn checked(comptime source: Source, pointer: []const u8) []const u8 {
    check(source, pointer);
    return pointer;
}

fn problem(pointer: []const u8) ?[]const u8 {
    if (pointer.len > 0 and pointer[0] != '/') {
        return join(&.{ "it has no leading slash; write `/", pointer, "`" });
    }
    for (pointer, 0..) |character, index| {
        const next = if (index + 1 < pointer.len) pointer[index + 1] else 0;
        if (character == '~' and next != '0' and next != '1') {
            return "a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`";
        }
    }
    return null;
}

// === Exports ===

/// Exports the functions of a policy that mutates and validates. A policy has `manifest`, `configure`, `mutate` and
/// `validate`.
pub fn exportPlugin(comptime Policy: type) void {
    if (builtin.target.cpu.arch != .wasm32) return;
    const functions = struct {
        fn describe() callconv(.c) *const Manifest {
            return &Policy.manifest;
        }
        fn configure(at: [*]const u8, len: usize) callconv(.c) *const Configured {
            const errors = Policy.configure(at[0..len]);
            return placed(Configured{
                .kind = if (errors.len == 0) .accepted else .rejected,
                .errors = .of(errors),
            });
        }
        fn mutate() callconv(.c) *const Mutation {
            return placed(Policy.mutate());
        }
        fn validate() callconv(.c) *const Verdict {
            return placed(Policy.validate());
        }
        /// The host calls this for the texts and lists that it hands over.
        fn realloc(old: [*]u8, old_size: usize, alignment: usize, size: usize) callconv(.c) [*]u8 {
            _ = alignment;
            // Words of eight bytes have the largest alignment of the contract. An empty list needs a valid address, too.
            const words = memory.alloc(u64, (@max(size, 1) + 7) / 8) catch fail(@src(), "out of memory");
            const block: [*]u8 = @ptrCast(words.ptr);
            @memcpy(block[0..@min(old_size, size)], old[0..@min(old_size, size)]);
            return block;
        }
    };
    @export(&functions.describe, .{ .name = "tollgate:admission/lifecycle@0.1.0#describe" });
    @export(&functions.configure, .{ .name = "tollgate:admission/lifecycle@0.1.0#configure" });
    @export(&functions.mutate, .{ .name = "tollgate:admission/mutating@0.1.0#mutate" });
    @export(&functions.validate, .{ .name = "tollgate:admission/validating@0.1.0#validate" });
    @export(&functions.realloc, .{ .name = "cabi_realloc" });
}

/// Moves an answer to memory that stays after the function has returned.
fn placed(answer: anytype) *const @TypeOf(answer) {
    const place = memory.create(@TypeOf(answer)) catch fail(@src(), "out of memory");
    place.* = answer;
    return place;
}
