# wrong in regorus
bad[c.name] { c := input.review.object.spec.containers[_] }
violation[{"msg": m}] { bad[m] }
===
# wrong in regorus
bad[c.name] = c { c := input.review.object.spec.containers[_] }
violation[{"msg": m}] { bad[m] }
===
# wrong in regorus
violation[{"msg": c.image}] { c := input.review.object.spec.containers[_] }
===
violation[{"msg": m}] { c := input.review.object.spec.containers[_]; m := pick(c) }
pick(c) = y { c.privileged; y := "p" } { c.image; not c.privileged; y := c.image }
===
pick = y { input.review.object.spec.hostNetwork; y := "p" } { not input.review.object.spec.hostNetwork; y := "q" }
violation[{"msg": pick}] { true }
===
owner = "a" { input.review.object.metadata.labels.owner == "blue" }
owner = "b" { input.review.object.metadata.labels.web }
violation[{"msg": owner}] { true }
===
owner(x) = "a" { x.owner == "blue" }
owner(x) = "b" { x.web }
violation[{"msg": m}] { m := owner(input.review.object.metadata.labels) }
===
name = x { x := input.review.object.spec.containers[_].name }
violation[{"msg": name}] { true }
===
name(o) = x { x := o.spec.containers[_].name }
violation[{"msg": m}] { m := name(input.review.object) }
===
default owner = "none"
owner = x { x := input.review.object.metadata.labels.owner }
violation[{"msg": owner}] { true }
===
default flag = false
flag { input.review.object.spec.hostNetwork }
violation[{"msg": "a"}] { not flag }
violation[{"msg": "b"}] { flag == false }
===
default only = {"x": ["a", 1]}
violation[{"msg": m}] { m := only.x[0]; input.review.object.spec.replicas }
===
kind = "a" { input.review.object.spec.replicas == 3 } else = "b" { input.review.object.spec.hostNetwork } else = "c" { true }
violation[{"msg": kind}] { true }
===
kind(x) = "a" { x == 3 } else = y { is_string(x); y := "s" } else = "c" { is_null(x) }
violation[{"msg": m}] { m := kind(input.review.object.spec.replicas) }
violation[{"msg": m}] { m := kind(input.review.object.spec.hostNetwork) }
===
# wrong in regorus
kind(x) = x.first.image { x.hostNetwork } else = "none" { true }
violation[{"msg": m}] { m := kind(input.review.object.spec) }
===
kind { input.review.object.spec.replicas == 3 } else = false { true }
violation[{"msg": "a"}] { kind }
violation[{"msg": "b"}] { not kind }
===
labels[k] = v { v := input.review.object.metadata.labels[k] }
labels[k] = v { v := input.review.oldObject.metadata.labels[k] }
violation[{"msg": json.marshal(labels)}] { true }
===
labels := {k: v | v := input.review.object.metadata.labels[k]}
violation[{"msg": m}] { labels[m] == "blue" }
===
x := {c.image: c.name | c := input.review.object.spec.containers[_]}
violation[{"msg": m}] { m := x[_] }
===
violation[{"msg": m}] { provided := {label | input.review.object.metadata.labels[label]}; required := {label | label := ["owner", "x"][_]}; missing := required - provided; count(missing) > 0; m := sprintf("%v", [missing]) }
===
violation[{"msg": m}] { x := [y | y := input.review.object.spec.containers[_]; y.image]; z := [y | y := x[_].name]; m := sprintf("%v", [z]) }
===
violation[{"msg": m}] { x := [[c.name, v.name] | c := input.review.object.spec.containers[_]; v := input.review.object.spec.volumes[_]]; m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { x := {{"n": c.name, "all": [v | v := c[_]]} | c := input.review.object.spec.containers[_]}; m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { c := input.review.object.spec.containers[_]; not any_volume(c.name); m := c.name }
any_volume(n) { input.review.object.spec.volumes[_].name == n }
===
violation[{"msg": m}] { s = concat(":", [key, val]); val = input.review.object.metadata.labels[key]; m := s }
===
# rejected by OPA
# no plan
violation[{"msg": m}] { not startswith(m, "n"); m := input.review.object.spec.containers[_].image }
===
# rejected by OPA
# no plan
violation[{"msg": m}] { y == "nginx"; y := input.review.object.spec.containers[i].image; m := sprintf("%v", [i]) }
===
# no plan
violation[{"msg": m}] { x = y; y = input.review.object.spec.containers[_].name; m := x }
===
violation[{"msg": m}] { input.review.object.spec.containers[i].name == input.review.object.spec.volumes[i].name; m := sprintf("%v", [i]) }
===
violation[{"msg": m}] { some i, j; input.review.object.spec.containers[i].name == input.review.object.spec.volumes[j].name; m := sprintf("%v %v", [i, j]) }
===
violation[{"msg": m}] { i := input.review.object.spec.containers[_].name; x := [i | i := input.review.object.spec.volumes[_].name]; m := sprintf("%v %v", [i, x]) }
===
violation[{"msg": m}] { i := "a"; x := [c | c := input.review.object.spec.containers[_]; c.name == i]; m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { x := [i | input.review.object.spec.containers[i].image == "nginx"]; y := [i | input.review.object.spec.volumes[i].name]; m := sprintf("%v %v", [x, y]) }
===
violation[{"msg": m}] { general[{"msg": m, "field": "containers"}] }
general[{"msg": m, "field": f}] { m := input.review.object.spec[f][_].name }
===
violation[{"msg": m}] { general[["containers", m]] }
general[[f, m]] { m := input.review.object.spec[f][_].name }
===
# rejected by OPA
# wrong in regorus
violation[{"msg": m}] { general[{"msg": m}] }
general[{"msg": m, "field": f}] { m := input.review.object.spec[f][_].name }
===
violation[{"msg": m}] { [{"a": m, "b": _}] = [input.review.object.metadata.labels] }
===
violation[{"msg": m}] { {"owner": m, "web": "x", "app": _} = input.review.object.metadata.labels }
===
# wrong in regorus
violation[{"msg": m}] { {"owner": m} = input.review.object.metadata.labels }
===
violation[{"msg": m}] { [m, _] := input.review.object.spec.args }
===
violation[{"msg": m}] { [x, y] = input.review.object.spec.args; m := concat(y, [x, x]) }
===
violation[{"msg": m}] { [_, c] := [1, input.review.object.spec.containers[_]]; m := c.name }
===
first([x, _]) = x { true }
violation[{"msg": m}] { m := first(input.review.object.spec.args) }
===
f({"name": n, "image": i}) = i { n == "a" }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
===
f("nginx", x) = x { true }
f("redis", x) = concat("-", ["r", x]) { true }
f(_, x) = x { x == "c" }
violation[{"msg": m}] { c := input.review.object.spec.containers[_]; m := f(c.image, c.name) }
===
f(null) = "null" { true }
f(3) = "three" { true }
f(true) = "true" { true }
violation[{"msg": m}] { m := f(input.review.object.spec[_]) }
===
violation[{"msg": "a"}] { every c in input.review.object.spec.containers { c.image; c.name != "b" } }
===
# wrong in regorus
violation[{"msg": "a"}] { every c in input.review.object.spec.containers { some v in input.review.object.spec.volumes; v.name == c.name } }
===
violation[{"msg": "a"}] { every k, v in input.review.object.metadata.labels { k != "app"; v } }
===
violation[{"msg": "a"}] { every c in input.review.object.spec.missing { c } }
===
violation[{"msg": "a"}] { every i, c in input.review.object.spec.containers { i < 2; c.name } }
===
violation[{"msg": "a"}] { every c in input.review.object.spec.containers { names := {x | x := input.review.object.spec.volumes[_].name}; names[c.name] } }
===
violation[{"msg": m}] { some k, v in input.review.object.metadata.labels; is_string(v); m := concat("", [k, v]) }
===
# wrong in regorus
violation[{"msg": m}] { some i, c in input.review.object.spec.containers; i == 1; m := c.name }
===
# wrong in regorus
violation[{"msg": m}] { some c in input.review.object.spec.replicas; m := c }
===
violation[{"msg": "a"}] { "a" in [c.name | c := input.review.object.spec.containers[_]] }
===
violation[{"msg": "a"}] { not "zz" in input.review.object.spec.args }
===
violation[{"msg": "a"}] { not "zz" in input.review.object.spec.missing }
===
violation[{"msg": "a"}] { 0, "x" in input.review.object.spec.args }
===
# wrong in regorus
violation[{"msg": "a"}] { x := "blue" in input.review.object.metadata.labels; x == false }
===
violation[{"msg": "a"}] { x := input.review.object.spec.hostNetwork; x == false }
violation[{"msg": "b"}] { x := input.review.object.spec.hostNetwork }
===
violation[{"msg": "a"}] { x := input.review.object.spec.replicas > 3; not x }
===
violation[{"msg": "a"}] { input.review.object.spec.replicas < "5" }
===
violation[{"msg": "a"}] { input.review.object.spec.replicas - 1 == 2 }
===
violation[{"msg": "a"}] { not input.review.object.spec.replicas - 1 == 2 }
===
violation[{"msg": "a"}] { to_number(input.review.object.spec.replicas) == 4 }
===
violation[{"msg": m}] { m := sprintf("%d", [-1]); input.review.object.spec.replicas > -1 }
===
violation[{"msg": m}] { m := substring(input.review.object.metadata.name, 1, -1) }
===
violation[{"msg": "a"}] { startswith(input.review.object.spec.replicas, "a") }
===
violation[{"msg": "a"}] { not startswith(input.review.object.spec.replicas, "a") }
===
violation[{"msg": "a"}] { regex.match("(", input.review.object.metadata.name) }
violation[{"msg": "b"}] { not regex.match("(", input.review.object.metadata.name) }
===
violation[{"msg": m}] { m := sprintf("%v", [{input.review.object.spec.hostNetwork, input.review.object.metadata.name}]) }
===
violation[{"msg": m}] { m := sprintf("%v", [{"a": input.review.object.spec.hostNetwork, input.review.object.metadata.name: 1}]) }
===
violation[{"msg": m}] { m := [input.review.object.spec.hostNetwork, "x"][1] }
===
violation[{"msg": m}] { m := {"x": "y"}[input.review.object.spec.args[_]] }
===
violation[{"msg": m}] { a := {x | x := input.review.object.spec.args[_]}; a[m] }
===
violation[{"msg": m}] { a := {x | x := input.review.object.spec.args[_]}; m := a["x"] }
===
violation[{"msg": m}] { m := input.review.object.spec.containers[_][_] }
===
violation[{"msg": m}] { m := input.review.object.spec.containers[count(input.review.object.spec.volumes) - 1].name }
===
# rejected by OPA
violation[{"msg": m}] { c := input.review.object.spec.containers; m := c[minus(count(c))].name }
minus(x) = x - 1 { true }
===
violation[{"msg": m}] { m := input.review.object.spec.args[1] }
violation[{"msg": m}] { m := input.review.object.spec.args["1"] }
violation[{"msg": m}] { m := input.review.object.spec.args[1.0] }
===
containers[c] { c := input.review.object.spec.containers[_] }
containers[c] { c := input.review.object.spec.volumes[_] }
violation[{"msg": sprintf("%v", [count(containers)])}] { true }
===
containers[c] { c := input.review.object.spec.missing[_] }
violation[{"msg": "a"}] { count(containers) == 0 }
violation[{"msg": "b"}] { not containers[input.review.object.spec.containers[0]] }
===
labels[k] = v { v := input.review.object.metadata.missing[k] }
violation[{"msg": "a"}] { labels == {} }
===
violation[{"msg": m, "details": d}] { c := input.review.object.spec.containers[_]; m := c.name; d := {"image": c.image} }
===
violation[{"msg": m, "details": {}}] { m := input.review.object.spec.containers[_].name }
===
violation[{"details": 1}] { input.review.object.spec.hostNetwork }
violation[{"msg": "a"}] { true }
===
# wrong in regorus
violation[{"msg": input.review.object.spec.containers[_].name}] { input.review.object.spec.volumes[_].name == "a" }
===
violation[{"msg": sprintf("%v", [x])}] { x := input.review.object.spec.containers[i]; i > 0 }
===
names := [x | x := input.review.object.spec[_][_].name]
violation[{"msg": m}] { m := concat(",", sort(names)) }
===
violation[{"msg": m}] { x := input.review.object.spec.containers[_]; x.name == "a"; y := x; z := y.image; m := z }
===
a { input.review.object.spec.hostNetwork }
b { a; input.review.object.metadata.labels.owner }
violation[{"msg": "a"}] { b }
violation[{"msg": "b"}] { not b; a }
===
even(x) { odd(x.next) }
odd(x) { x.a }
violation[{"msg": "a"}] { even(input.review.object.spec.next.next) }
===
f(x) = g(x) { x.image }
f(x) = x.name { not x.image }
g(x) = upper(x.image) { true }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
===
import data.lib.util as u
violation[{"msg": m}] { m := u.names[_] }
violation[{"msg": m}] { m := u.f(input.review.object.spec) }
violation[{"msg": m}] { m := u.limit }
---
package lib.util
import data.lib.other.g
default limit = "l"
limit = "m" { input.review.object.spec.replicas > 2 }
names[n] { n := input.review.object.spec.containers[_].name }
f(x) = y { y := g(x.first) }
---
package lib.other
g(x) = x.image { true }
===
import data.lib.util
violation[{"msg": m}] { m := util["names"][_]; data.lib.util.ok(m) }
---
package lib.util
names[n] { n := input.review.object.spec.containers[_].name }
ok(x) { x != "b" }
===
import input.review.object as o
import input.review.object.spec
violation[{"msg": m}] { m := o.metadata.name; spec.replicas == 3 }
violation[{"msg": m}] { m := spec.containers[_].name }
===
violation[{"msg": m}] { m := data.t.names[_] }
names[n] { n := input.review.object.spec.containers[_].name }
===
# no plan
violation[{"msg": m}] { k := "names"; m := data.t[k][_] }
names[n] { n := input.review.object.spec.containers[_].name }
===
violation[{"msg": "a"}] { not data.inventory.cluster.v1; input.review.object.spec.hostNetwork }
===
violation[{"msg": "a"}] { count({x | data.inventory[x]}) == 0; input.review.object.spec.hostNetwork }
===
spec = {"a": "b"} { input.review.object.spec.hostNetwork }
f(spec) = spec.image { true }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
violation[{"msg": m}] { m := spec.a }
===
violation[{"msg": m}] { input.review.object.spec.containers[x]; y := x; m := sprintf("%v", [y]) }
===
violation[{"msg": m}] { x := {a | a := input.review.object.spec.containers[_].name; not b[a]}; m := concat(",", x) }
b[x] { x := input.review.object.spec.volumes[_].name }
===
violation[{"msg": m}] { m := object.get(input.review.object.metadata, ["labels", "owner"], "none") }
===
violation[{"msg": "a"}] { not f(input.review.object.spec.first.image) }
f(x) { x == "busybox" }
===
violation[{"msg": "a"}] { not f({"image": input.review.object.spec.first.image}) }
f(x) { x.image == "busybox" }
===
violation[{"msg": "a"}] { object.get({"x": 1}, "y", false) == false; input.review.object.spec.args == ["x", "y"] }
===
violation[{"msg": "a"}] { input.review.object.spec.args = ["x", "y"] }
===
violation[{"msg": "a"}] { {"x", "y"} == {x | x := input.review.object.spec.args[_]} }
===
violation[{"msg": m}] { union := {"x"} | {y | y := input.review.object.spec.args[_]}; m := sprintf("%v", [union]) }
===
violation[{"msg": m}] { x := {"a": 1}; y := object.union(x, {"b": input.review.object.spec.replicas}); m := json.marshal(y) }
===
violation[{"msg": m}] { x := sum([1 | input.review.object.spec.containers[_]]); m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { x := max([count(c) | c := input.review.object.spec.containers[_]]); m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { x := split(input.review.object.spec.containers[_].image, "n"); m := x[count(x) - 1] }
===
violation[{"msg": m}] { x := input.review.object.spec.ports[_]; x > 79; x < 81.5; m := format_int(x, 10) }
===
violation[{"msg": "a"}] { a := input.review.object.spec.first; b := input.review.oldObject.spec.first; a != b }
===
violation[{"msg": "a"}] { input.review.object.spec != input.review.oldObject.spec }
===
violation[{"msg": "a"}] { x := input.review.object.spec.containers[_]; x.privileged; true }
violation[{"msg": "b"}] { false }
violation[{"msg": "c"}] { null; input.review.object.spec.hostNetwork }
===
# wrong in regorus
violation contains {"msg": m} if { some c in input.review.object.spec.containers; not c.privileged; m := c.name }
violation contains {"msg": "all"} if every c in input.review.object.spec.containers { c.name }
===
ok if input.review.object.spec.hostNetwork
who := "a" if ok else := "b"
violation contains {"msg": who} if true
===
violation[{"msg": m}] { f(g(h(input.review.object.spec))) = m }
f(x) = x { true }
g(x) = x.image { true }
h(x) = x.first { true }
===
violation[{"msg": m}] { x := input.review.object.spec.containers[_]; y := [z | z := x[_]; is_string(z)]; count(y) > 1; m := concat(" ", sort(y)) }
===
violation[{"msg": m}] { a := [1, 2, 3][_]; b := [1, 2, 3][_]; a + b == input.review.object.spec.replicas; m := sprintf("%v+%v", [a, b]) }
===
violation[{"msg": m}] { walk(input.review.object.spec.first, [p, v]); m := sprintf("%v %v", [p, v]) }
===
# no plan
violation[{"msg": "a"}] { not g with input as {"x": 1} }
g { input.x == 2 }
===
f(x) = 1 { x.image } else = 2 { x.name }
f(x) = 1 { x.privileged }
violation[{"msg": sprintf("%v", [n])}] { n := f(input.review.object.spec.containers[_]) }
===
a[x] { x := input.review.object.spec.args[_] }
violation[{"msg": m}] { a[x]; m := concat("", [x, "!"]) }
violation[{"msg": "none"}] { not a.z }
===
a["x"] { input.review.object.spec.hostNetwork }
a["y"] { input.review.object.spec.replicas }
violation[{"msg": m}] { a[m] }
===
# no plan
a.x = 1 { input.review.object.spec.hostNetwork }
violation[{"msg": "a"}] { a.x == 1 }
===
a["x"] = 1 { input.review.object.spec.hostNetwork }
violation[{"msg": "a"}] { a.x == 1 }
===
violation[{"msg": msg}] { msg = sprintf("%v", [x]); x = input.review.object.spec.containers[_].name }
===
violation[{"msg": msg}] { c = input.review.object.spec.containers[_]; "nginx" = c.image; msg = c.name }
===
violation[{"msg": msg}] { input.review.object.spec.containers[_] = c; c.name = msg }
===
violation[{"msg": msg}] { [x | x = input.review.object.spec.args[_]] = y; msg := concat(",", y) }
===
f(x) = y { y = x[_] }
violation[{"msg": m}] { m := f(["q"]); input.review.object.spec.hostNetwork }
===
f(x) = y { y := x[_] }
violation[{"msg": m}] { m := f(input.review.object.spec.args) }
violation[{"msg": "a"}] { true }
===
violation[{"msg": m}] { c := input.review.object.spec.containers[_]; m := [c.name, c.image][_] }
===
g[x] { x := input.review.object.spec.containers[_].image }
g[x] { g2[x] }
g2[x] { x := input.review.object.spec.volumes[_].name }
violation[{"msg": m}] { g[m]; not g2[m] }
===
import future.keywords
violation[{"msg": "a"}] { not f(input.review.object.spec.first.image) }
f(x) { x == "busybox" }
===
# rejected by OPA
# no plan
import future.keywords
violation[{"msg": "a"}] { not input.review.object.spec.containers[_].privileged }
===
# wrong in regorus
import future.keywords
violation[{"msg": c.name}] { c := input.review.object.spec.containers[_]; not startswith(c.image, "ng") }
===
# wrong in regorus
violation[{"msg": "a"}] { "x", "x" in {y | y := input.review.object.spec.args[_]} }
===
# no plan
violation[{"msg": "a"}] { some x, x in {y | y := input.review.object.spec.args[_]} }
===
violation[{"msg": m}] { x := input.review.object.spec.args; x[i] == "y"; not x[i + 1]; m := sprintf("%v", [i]) }
===
violation[{"msg": m}] { a := b; m := sprintf("%v", [a]) }
b := c { c := {x: y | some x, y in input.review.object.metadata.labels; is_string(y)} }
===
f(x, y) = z { z := x; y } else = z { z := y; not x }
violation[{"msg": m}] { m := f(input.review.object.metadata.name, input.review.object.metadata.namespace) }
===
violation[{"msg": m}] { count([c | c := input.review.object.spec.containers[_]; count([v | v := input.review.object.spec.volumes[_]; v.name == c.name]) > 0]) > 0; m := "a" }
===
p[x] { x := input.review.object.spec.args[_] }
q = s { s := {x | p[x]} }
violation[{"msg": m}] { q == p; m := "same" }
violation[{"msg": m}] { p.x; m := "x" }
===
# wrong in regorus
violation[{"msg": m}] { [p, v] := walk(input.review.object.spec); p[count(p) - 1] == "image"; m := v }
===
# wrong in regorus
violation[{"msg": m}] { [["args", _], m] = walk(input.review.object.spec) }
===
violation[{"msg": m}] { x := {v | walk(input.review.object.spec, [_, v]); is_string(v)}; m := concat(",", x) }
===
violation[{"msg": m}] { walk({x | x := input.review.object.spec.args[_]}, [[m], _]) }
===
violation[{"msg": m}] { startswith(input.review.object.metadata.name, "w", x); m := sprintf("%v", [x]) }
===
violation[{"msg": m}] { split(input.review.object.spec.containers[_].image, "n", [_, m]) }
===
name(c) = c.name { true }
violation[{"msg": m}] { name(input.review.object.spec.containers[_], m) }
===
name(c) = c.name { true }
violation[{"msg": m}] { m := "a"; name(input.review.object.spec.containers[_], m) }
===
violation[{"msg": "a"}] { startswith(input.review.object.metadata.name, "w", input.review.object.spec.hostNetwork) }
===
default f(x) = "d"
f(x) = "x" { x.image == "nginx" }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
===
default f(x) = "d"
f(x) = x.image { true }
violation[{"msg": m}] { m := f(input.review.object.spec.first) }
===
# rejected by OPA
# no plan
violation[{"msg": "a"}] { some x; not walk(input.review.object.spec, [x, _]) }
===
violation[{"msg": "a"}] { every _ in input.review.object.spec.containers { input.review.object.spec.args[_] == "y" } }
===
violation[{"msg": "a"}] { every _, c in input.review.object.spec.containers { input.review.object.spec.volumes[_].name == c.name } }
===
x = "rule" { true }
f(y) = y { true }
violation[{"msg": m}] { x := f(y); m := x; y = input.review.object.metadata.name }
===
x = "rule" { true }
f(y) = y { true }
violation[{"msg": m}] { x := f(y); m := [v | v := x][_]; y = input.review.object.metadata.name }
===
# wrong in regorus
f(y) = y { true }
violation[{"msg": m}] { x := f(y); m := input.review.object.spec.args[x]; y = 1 }
===
# wrong in regorus
x = "rule" { true }
violation[{"msg": m}] { x := {x | input.review.object.metadata.labels[x]}; m := sprintf("%v", [x]) }
===
# wrong in regorus
x = "rule" { true }
violation[{"msg": m}] { y := {x: 1 | input.review.object.metadata.labels[x]}; x := 3; m := sprintf("%v %v", [y, x]) }
===
# wrong in regorus
import data.lib.util.names
names = {"rule"} { true }
violation[{"msg": m}] { m := names[_] }
---
package lib.util
names[n] { n := input.review.object.spec.containers[_].name }
===
# wrong in regorus
input = {"review": {"object": {"spec": {"args": ["rule"]}}}} { true }
violation[{"msg": m}] { m := input.review.object.spec.args[_] }
