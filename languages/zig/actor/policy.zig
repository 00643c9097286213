//! Follows instructions in the object under review, for the conformance suite.

const std = @import("std");
const contract = @import("contract");
const Text = contract.Text;

pub const panic = std.debug.FullPanic(contract.panicked);

comptime {
    contract.exportPlugin(@This());
}

fn is(what: []const u8, name: []const u8) bool {
    return std.mem.eql(u8, what, name);
}

/// Ends the call with a place. Zig keeps no places in a release build, so its own panics name none.
fn assert(comptime source: contract.Source, holds: bool) void {
    if (!holds) contract.fail(source, "a condition does not hold");
}

fn datum(name: []const u8) ?[]const u8 {
    return contract.getText(@src(), .object, contract.child("/data", name));
}

/// A list whose length the compiler does not know.
fn list() []const u8 {
    return contract.memory.alloc(u8, 3) catch contract.fail(@src(), "out of memory");
}

noinline fn act(what: []const u8, depth: *volatile u32) u32 {
    if (is(what, "throw")) contract.fail(@src(), "boom");
    if (is(what, "crash")) assert(@src(), list().len > 3);
    if (is(what, "panic")) return list()[list().len + depth.*];
    while (is(what, "loop")) depth.* += 1;
    while (is(what, "memory")) {
        const block = contract.memory.alloc(u8, 1 << 20) catch contract.fail(@src(), "out of memory");
        block[0] = 1;
    }
    if (is(what, "recurse")) {
        var deeper: u32 = depth.* + 1;
        return act(what, &deeper) + deeper;
    }
    return depth.*;
}

fn perform(what: []const u8) void {
    var depth: u32 = 0;
    _ = act(what, &depth);
}

pub fn configure(json: []const u8) []const contract.SettingsError {
    const options = std.json.ParseOptions{ .allocate = .alloc_always };
    const settings = std.json.parseFromSliceLeaky(std.json.Value, contract.memory, json, options) catch
        contract.fail(@src(), "the host gives JSON");
    for (settings.object.values()) |value| if (value == .string) perform(value.string);
    return &.{};
}

fn readAll() void {
    const big = contract.get(@src(), .object, "/data/big").?;
    const text = contract.getText(@src(), .object, "/data/text").?;
    const is_null = contract.get(@src(), .object, "/data/null").?.kind == .null;
    const is_there = contract.get(@src(), .object, "/data/absent") != null;
    const keys = contract.keys(@src(), .object, "/data/members").?;
    const exact = contract.getJson(@src(), .object, "/data/exact").?;
    contract.warn(contract.format("{d} {s} {} {} [{s} {s}] {s}", .{
        big.as.integer, text, is_null, is_there, keys[0].slice(), keys[1].slice(), exact,
    }));
    contract.annotate("operation", contract.getText(@src(), .request, "/operation").?);
}

fn readMany() void {
    const pointers = [_]Text{ .of("/data/big"), .of("/data/absent"), .of("/data/text") };
    const found = contract.getMany(@src(), .object, &pointers);
    contract.warn(contract.format("{d} {} {s}", .{
        found[0].value.as.integer, found[1].is_some, found[2].value.as.text.slice(),
    }));
}

fn at(value: std.json.Value, names: []const []const u8) ?std.json.Value {
    var found = value;
    for (names) |name| {
        if (found != .object) return null;
        found = found.object.get(name) orelse return null;
    }
    return found;
}

fn show(object: contract.Object) void {
    const fields = std.json.parseFromSliceLeaky(std.json.Value, contract.memory, object.fields.slice(), .{}) catch
        contract.fail(@src(), "the host gives JSON");
    var hosts: []const u8 = "";
    if (at(fields, &.{ "spec", "rules" })) |rules| for (rules.array.items) |rule| {
        const host = at(rule, &.{"host"}) orelse continue;
        hosts = if (hosts.len == 0) host.string else contract.join(&.{ hosts, " ", host.string });
    };
    const label = if (at(fields, &.{ "metadata", "labels", "a/b" })) |label| label.string else "-";
    const has_uid = at(fields, &.{ "metadata", "uid" }) != null;
    const namespace = if (object.namespace.get()) |namespace| namespace.slice() else "-";
    contract.warn(contract.format("{s}/{s} [{s}] {s} {}", .{
        namespace, object.name.slice(), hosts, label, has_uid,
    }));
}

/// Reads the lookup that the object names, and warns with what it finds.
fn lookUp(what: []const u8) void {
    const lookup = datum("lookup") orelse "";
    const namespace = datum("namespace");
    if (is(what, "get")) {
        const result = contract.clusterGet(lookup, namespace, datum("name") orelse "");
        if (result.is_error) contract.fail(@src(), result.as.failure.why.slice());
        return if (result.as.answer.get()) |object| show(object) else contract.warn("none");
    }
    var after: ?[]const u8 = null;
    while (true) {
        const result = if (is(what, "find"))
            contract.clusterFind(lookup, datum("index") orelse "", datum("key") orelse "", after)
        else
            contract.clusterList(lookup, namespace, after);
        if (result.is_error) {
            if (!is(what, "lookup")) contract.fail(@src(), result.as.failure.why.slice());
            return contract.warn(if (result.as.failure.kind == .not_granted) "not granted" else "not synchronised");
        }
        for (result.as.answer.objects.slice()) |object| show(object);
        after = (result.as.answer.next.get() orelse return).slice();
    }
}

/// Asks about the right that the object names, and warns with the answer. `rights` warns with the kind of a failure.
fn ask(what: []const u8) void {
    const part = struct {
        fn part(member: []const u8) Text {
            return .of(datum(member) orelse "");
        }
    }.part;
    const action: contract.Action = if (datum("path")) |path|
        .{ .kind = .path, .as = .{ .path = .{ .verb = part("verb"), .path = .of(path) } } }
    else
        .{ .kind = .resource, .as = .{ .resource = .{
            .verb = part("verb"),
            .group = part("group"),
            .resource = part("resource"),
            .subresource = part("subresource"),
            .namespace = part("namespace"),
            .name = part("name"),
        } } };
    const account: ?contract.ServiceAccount = if (datum("account")) |name|
        .{ .namespace = part("accountNamespace"), .name = .of(name) }
    else
        null;
    const result = contract.mayDo(action, account);
    if (!result.is_error) {
        const decision = result.as.answer;
        return contract.warn(contract.format("{} {s}", .{ decision.allowed, decision.reason.slice() }));
    }
    if (!is(what, "rights")) contract.fail(@src(), result.as.failure.why.slice());
    contract.warn(if (result.as.failure.kind == .not_granted) "not granted" else "unavailable");
}

/// Asks about the images that the object names, and warns with each answer.
fn verify() void {
    const policy = Text.of(datum("policy") orelse "");
    const nodes = contract.select(@src(), .object, "/data/images/*");
    const requests = contract.memory.alloc(contract.ImageRequest, nodes.len) catch contract.fail(@src(), "out of memory");
    for (requests, nodes) |*request, node| request.* = .{ .image = node.value.as.text, .policy = policy };
    for (contract.verifyImages(requests)) |answer| {
        if (!answer.is_error) {
            const found = answer.as.answer;
            var signers: []const u8 = "";
            for (found.signers.slice()) |signer| signers = contract.join(&.{ signers, " ", signer.slice() });
            const arguments = .{ found.pinned, found.last_known_good, signers, found.digest.slice() };
            contract.warn(contract.format("verified {} {}{s} {s}", arguments));
            continue;
        }
        const failure = answer.as.failure;
        const has_digest = failure.kind == .unsigned or failure.kind == .untrusted;
        const digest = if (has_digest) failure.as.refusal.digest.slice() else "-";
        const why = if (has_digest) failure.as.refusal.reason.slice() else failure.as.why.slice();
        const kind = switch (failure.kind) {
            .malformed => "malformed",
            .not_granted => "not granted",
            .not_found => "not found",
            .unsigned => "unsigned",
            .untrusted => "untrusted",
            .unavailable => "unavailable",
        };
        contract.warn(contract.format("{s} {s} {s}", .{ kind, digest, why }));
    }
}

pub fn validate() contract.Verdict {
    const what = datum("do") orelse "";
    if (is(what, "deny")) {
        const field = contract.child("/data", "a/b");
        const causes = contract.memory.dupe(contract.Cause, &.{
            .{ .field = .some(.of(field)), .message = .of("wrong") },
        }) catch contract.fail(@src(), "out of memory");
        return .{ .kind = .deny, .denial = .{ .message = .of("no"), .code = .some(422), .causes = .of(causes) } };
    }
    if (is(what, "read")) readAll();
    if (is(what, "read many")) readMany();
    if (is(what, "namespace")) _ = contract.get(@src(), .namespace, "/metadata/labels/team");
    if (is(what, "whole")) {
        const json = contract.getJson(@src(), .object, "").?;
        contract.warn(if (json.len > 1 << 20) "true" else "false");
    }
    if (is(what, "pointer")) _ = contract.get(@src(), .object, "data");
    if (is(what, "escape")) _ = contract.get(@src(), .object, "/data/a~b");
    if (is(what, "log")) contract.log(.info, "hello");
    for ([_][]const u8{ "get", "find", "list", "lookup" }) |one| if (is(what, one)) lookUp(what);
    for ([_][]const u8{ "may", "rights" }) |one| if (is(what, one)) ask(what);
    if (is(what, "verify")) verify();
    perform(what);
    return .{ .kind = .allow };
}

pub fn mutate() contract.Mutation {
    const what = datum("do") orelse "";
    const text = struct {
        fn text(value: []const u8) contract.NewValue {
            return .{ .kind = .text, .text = .of(value) };
        }
    }.text;
    if (is(what, "patch")) {
        const done = contract.NewValue{ .kind = .json, .text = .of("true") };
        const has_annotations = contract.get(@src(), .object, "/metadata/annotations") != null;
        const empty = contract.NewValue{ .kind = .json, .text = .of("{}") };
        const whole = [_]contract.PatchOperation{
            .add(contract.checked(@src(), "/metadata/annotations"), empty),
            .add(contract.checked(@src(), "/metadata/annotations/a~1b"), text("ü\"\n")),
            .add(contract.checked(@src(), "/data/done"), done),
            .remove(contract.checked(@src(), "/data/text")),
        };
        const from: usize = if (has_annotations) 1 else 0;
        return patch(whole[from..]);
    }
    if (is(what, "pointer")) return patch(&.{.remove(contract.checked(@src(), "data/text"))});
    if (is(what, "merge")) {
        const merge = "{\"data\":{\"text\":null,\"done\":true}}";
        return .{ .kind = .merge_patch, .as = .{ .json = .of(merge) } };
    }
    if (is(what, "throw") or is(what, "loop")) perform(what);
    return .{ .kind = .unchanged };
}

fn patch(operations: []const contract.PatchOperation) contract.Mutation {
    const kept = contract.memory.dupe(contract.PatchOperation, operations) catch
        contract.fail(@src(), "out of memory");
    return .{ .kind = .json_patch, .as = .{ .patch = .of(kept) } };
}

pub const manifest = contract.Manifest{
    .name = .of("actor"),
    .version = .of("0.1.0"),
    .description = .of(""),
    .rules = .of(&.{.{
        .operations = .of(&.{Text.of("*")}),
        .api_groups = .of(&.{Text.of("*")}),
        .api_versions = .of(&.{Text.of("*")}),
        .resources = .of(&.{Text.of("*/*")}),
    }}),
    .labels = .of(&.{}),
};
