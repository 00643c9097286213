is_own(input.review.object.metadata.name) { true }
violation[{"msg": "a"}] { is_own("web") }
===
both([x, input.review.object.spec.hostNetwork]) { x == 1 }
violation[{"msg": "a"}] { not both([1, true]) }
===
keyed({"a": input.review.object.metadata.namespace}) { true }
violation[{"msg": "a"}] { keyed({"a": "shop"}) }
===
violation[{"msg": "a"}] { input.review.object.metadata.labels.owner }
===
violation[{"msg": "a"}] { not input.review.object.metadata.labels.owner }
===
violation[{"msg": "a"}] { not input.review.object.spec.hostNetwork }
===
violation[{"msg": "a"}] { input.review.object["metadata"][`name`] == "web" }
===
violation[{"msg": m}] { m := input.review.object.metadata.name }
===
violation[{"msg": "a"}] { input.review.object.spec == {} }
===
violation[{"msg": "a"}] { input.review.object.spec.containers[0].image == "nginx" }
===
violation[{"msg": m}] { m := input.review.object.spec.containers[_].image }
===
violation[{"msg": m}] { m := input.review.object.spec.containers[i].image; i > 0 }
===
violation[{"msg": k}] { input.review.object.metadata.labels[k] }
===
violation[{"msg": k}] { input.review.object.metadata.labels[k].x; k != "y" }
===
violation[{"msg": k}] { k := "owner"; input.review.object.metadata.labels[k] }
===
violation[{"msg": "a"}] { input.review.object.metadata.labels[input.review.object.metadata.name] }
===
violation[{"msg": "a"}] { input.review.object.spec.ports["0"] }
===
violation[{"msg": m}] { m := input["review"].object.metadata.name }
===
violation[{"msg": k}] { input.review.object[k].name }
===
violation[{"msg": k}] { input.review.object.spec[k][_].name }
===
violation[{"msg": m}] { x := "metadata"; m := input.review.object[x].name }
===
violation[{"msg": "a"}] { input.review.oldObject.metadata.labels.owner != input.review.object.metadata.labels.owner }
===
violation[{"msg": m}] { m := input.review.object.metadata.name; input.review.operation == "UPDATE"; input.review.userInfo.username }
===
violation[{"msg": "a"}] { input.review.oldObject == null }
===
violation[{"msg": "a"}] { not input.review.oldObject.spec.containers }
===
violation[{"msg": m}] { c := input.review.object.spec.containers[_]; m := c.image }
===
violation[{"msg": "a"}] { x := input.review.object; y := x.spec; y.hostNetwork }
===
violation[{"msg": "a"}] { c := input.review.object.spec.containers[_]; c == {"name": "a", "image": "nginx"} }
===
violation[{"msg": m}] { c = input.review.object.spec.containers[_]; m = c.image }
===
violation[{"msg": "a"}] { {"name": "a", "image": m} = input.review.object.spec.containers[_]; m }
===
violation[{"msg": m}] { [a, b] := input.review.object.spec.args; m := sprintf("%v %v", [a, b]) }
===
violation[{"msg": m}] { some c in input.review.object.spec.containers; m := c.image }
===
violation[{"msg": m}] { some m, c in input.review.object.metadata.labels; c.x }
===
violation[{"msg": m}] { some m, "blue" in input.review.object.metadata.labels }
===
violation[{"msg": m}] { some {"name": m, "image": _} in input.review.object.spec.containers }
===
violation[{"msg": m}] { some i; c := input.review.object.spec.containers[i]; m := c.name }
===
violation[{"msg": "a"}] { "x" in input.review.object.spec.args }
===
violation[{"msg": "a"}] { "owner", "blue" in input.review.object.metadata.labels }
===
violation[{"msg": "a"}] { every c in input.review.object.spec.containers { c.image != "nginx" } }
===
violation[{"msg": "a"}] { every k, v in input.review.object.spec.next { v.next; k != "y" } }
===
violation[{"msg": "a"}] { x := input.review.object.spec.containers[_]; y := [x | x := input.review.object.spec.volumes[_]]; y[_].name == x.name }
===
violation[{"msg": m}] { x := {c.image | c := input.review.object.spec.containers[_]}; m := concat(",", x) }
===
violation[{"msg": m}] { x := [c | c := input.review.object.spec.containers[_]]; m := x[_].image }
===
violation[{"msg": m}] { x := {k: v | v := input.review.object.metadata.labels[k]}; m := json.marshal(x) }
===
violation[{"msg": m}] { x := {"c": input.review.object.spec}; m := x.c.containers[_].name }
===
violation[{"msg": m, "details": {"x": input.review.object.spec.volumes}}] { m := "a" }
===
violation[{"msg": m}] { {input.review.object.metadata.name: 1}[m] }
===
violation[{"msg": "a"}] { input.review.object.spec.replicas + 1 > 3 }
===
violation[{"msg": "a"}] { {input.review.object.metadata.name} & {"web", "x"} == {"web"} }
===
spec := input.review.object.spec
violation[{"msg": m}] { m := spec.containers[_].image }
===
bad[c] { c := input.review.object.spec.containers[_]; not c.image }
violation[{"msg": m}] { m := bad[_].name }
===
bad[c.name] = c { c := input.review.object.spec.containers[_] }
violation[{"msg": m}] { m := bad.a.image }
===
default limit = 2
limit = input.review.object.spec.replicas { true }
violation[{"msg": "a"}] { limit > 2 }
===
kind = "x" { input.review.object.metadata.labels.owner } else = input.review.object.metadata.name { true }
violation[{"msg": kind}] { true }
===
a.b[c] { c := input.review.object.spec.containers[_] }
violation[{"msg": m}] { data.t.a.b[c]; m := c.image }
===
bad(c) { not c.image }
bad(c) { c.privileged }
violation[{"msg": c.name}] { c := input.review.object.spec.containers[_]; bad(c) }
===
name(c) = c.name { true }
violation[{"msg": m}] { m := name(input.review.object.spec.containers[_]) }
===
name(c) = c.name { true }
violation[{"msg": m}] { name(input.review.object.spec.containers[_], m) }
===
same(x, x) { true }
violation[{"msg": "a"}] { same(input.review.object.spec.containers[0], input.review.object.spec.volumes[0]) }
===
same([x], x) { true }
violation[{"msg": "a"}] { same([input.review.object.spec.containers[0]], input.review.object.spec.volumes[0]) }
===
f({"name": n}) = n { true }
violation[{"msg": m}] { m := f(input.review.object.spec.volumes[_]) }
===
f("web") { true }
violation[{"msg": "a"}] { f(input.review.object.metadata.name) }
===
f(_) { true }
violation[{"msg": "a"}] { f(input.review.object.spec.hostNetwork) }
===
f(input) = input.image { true }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
===
f(x) = y { y := g(x.spec) }
g(x) = x.containers[_].image { true }
violation[{"msg": m}] { m := f(input.review.object) }
===
depth(x) = 1 { not x.next }
next(x) = x.next { true }
violation[{"msg": "a"}] { n := next(next(next(input.review.object.spec))); depth(n) == 1 }
===
import data.lib.images
violation[{"msg": m}] { m := images.bad(input.review.object.spec.containers[_]) }
---
package lib.images
bad(c) = c.image { not c.privileged }
===
violation[{"msg": m}] { m := data.lib.bad(input.review.object.spec.containers[_]) }
---
package lib
bad(c) = c.image { true }
===
import data.lib as l
bad(c) = c.name { true }
violation[{"msg": m}] { m := l.bad(input.review.object.spec.containers[_]) }
---
package lib
bad(c) = c.image { true }
===
violation[{"msg": sprintf("%v", [m])}] { m := count(input.review.object.spec.containers[_]) }
---
package lib
count(c) = 3 { c.x }
===
violation[{"msg": m}] { x := object.union(input.review.object.spec.volumes[0], {"y": 1}); m := json.marshal(x) }
---
package lib
union(a, b) = 1 { a.z; b.z }
===
violation[{"msg": m}] { m := own(input.review.object.spec.volumes[_]) }
---
package t
own(v) = v.name { true }
---
package lib
own(v) = v.other { true }
===
violation[{"msg": m}] { m := meta.name }
---
package t
import input.review.object.metadata as meta
===
is_string(x) { x.name == "a" }
violation[{"msg": "a"}] { is_string(input.review.object.spec.containers[_]) }
===
import data.lib.count
violation[{"msg": "a"}] { count(input.review.object.spec.containers[0]) == "nginx" }
---
package lib
count(c) = c.image { true }
===
import data.lib as object
violation[{"msg": m}] { m := object.get(input.review.object.spec.containers[0], "image", 1) }
---
package lib
get(c, key, n) = c.name { n == 1 }
===
default f(x) = "d"
f(x) = "x" { x.image == "nginx" }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) }
===
violation[{"msg": sprintf("%v", [n])}] { n := count(input.review.object.spec.containers) }
===
violation[{"msg": sprintf("%v", [n])}] { n := count(input.review.object.metadata.labels) }
===
violation[{"msg": sprintf("%v", [n])}] { n := count(input.review.object.metadata.name) }
===
violation[{"msg": m}] { count(input.review.object.spec.args, n); m := sprintf("%v", [n]) }
===
violation[{"msg": "a"}] { count(input.review.object.spec.containers, input.review.object.spec.replicas) }
===
violation[{"msg": "a"}] { x := input.review.object.spec; count(x.containers) > count(x.volumes) }
===
violation[{"msg": m}] { m := object.get(input.review.object.metadata, "name", "none") }
===
violation[{"msg": m}] { m := object.get(input.review.object, ["metadata", "labels", "owner"], "none") }
===
violation[{"msg": m}] { m := object.get(input.review.object.spec.containers[_], ["image"], "none") }
===
violation[{"msg": m}] { k := "owner"; m := object.get(input.review.object.metadata.labels, k, "none") }
===
violation[{"msg": m}] { m := object.get(input.review.object.metadata.labels, "owner", input.review.object.metadata.name) }
===
violation[{"msg": m}] { m := object.get(input.review.object.metadata, "name", input.review.object.spec.volumes) }
===
violation[{"msg": "a"}] { object.get(input.review.object.spec, "hostNetwork", input.review.object.spec.replicas) }
===
violation[{"msg": m}] { m := object.get(input.review.object.spec, "first", {"image": "none"}).image }
===
violation[{"msg": m}] { m := object.get(input.review.object.spec, "first", input.review.object.spec.containers[0]).image }
===
violation[{"msg": m}] { x := object.get(input.review.object, "spec", {}); m := object.get(x, "name", "none") }
===
f(x) { x.image == "busybox" }
violation[{"msg": "a"}] { f(object.get(input.review.object.spec, "first", {})) }
===
violation[{"msg": "a"}] { not object.get(input.review.object.spec, "hostNetwork", false) }
===
violation[{"msg": "a"}] { is_array(input.review.object.spec.args) }
===
violation[{"msg": "a"}] { is_object(input.review.object.metadata.labels); is_string(input.review.object.metadata.name) }
===
violation[{"msg": "a"}] { is_number(input.review.object.spec.replicas); is_boolean(input.review.object.spec.hostNetwork) }
===
violation[{"msg": "a"}] { is_null(input.review.object.spec.hostNetwork) }
===
violation[{"msg": "a"}] { is_array(input.review.object.spec.args, input.review.object.spec.hostNetwork) }
===
violation[{"msg": m}] { m := type_name(input.review.object.spec.args) }
===
violation[{"msg": m}] { object.keys(input.review.object.metadata.labels)[m] }
===
violation[{"msg": m}] { x := array.concat(input.review.object.spec.containers, input.review.object.spec.volumes); m := x[_].name }
===
violation[{"msg": m}] { m := concat(",", sort(input.review.object.spec.args)) }
===
violation[{"msg": m}] { m := trim_prefix(input.review.object.metadata.name, "w") }
===
violation[{"msg": "a"}] { startswith(input.review.object.spec.containers[_].image, "ng"); contains(input.review.object.metadata.name, "e") }
===
violation[{"msg": m}] { m := json.marshal(json.filter(input.review.object, ["spec/containers"])) }
===
violation[{"msg": "a"}] { not startswith(input.review.object.spec.containers[0].image, "ng") }
===
violation[{"msg": "a"}] { to_number(input.review.object.spec.replicas) > 2 }
===
violation[{"msg": m}] { m := concat(",", {input.review.object.metadata.labels.owner} | set()) }
===
violation[{"msg": "a"}] { not input.review.object.spec.containers[_].privileged }
===
violation[{"msg": "a"}] { not count(input.review.object.spec.containers) > 1 }
===
# whole
violation[{"msg": m}] { m := name with input.review.object as {"metadata": {"name": input.review.object.spec.name}} }
name := input.review.object.metadata.name
===
# whole
violation[{"msg": m}] { m := owner with input.x as 1 }
owner := input.review.object.metadata.labels[input.review.object.metadata.name]
===
# whole
f(x) = x.name { true }
g(x) = x.image { true }
violation[{"msg": m}] { m := f(input.review.object.spec.containers[_]) with f as g }
===
# whole
g(x) = x.image { true }
violation[{"msg": m}] { m := count(input.review.object.spec.containers[_]) with count as g }
===
# whole
violation[{"msg": m}] { m := data.lib.name with data.x as input.review.object }
---
package lib
name := data.x.metadata.name
===
# whole
violation[{"msg": m}] { x := input; m := json.marshal(x) }
===
# whole
violation[{"msg": m}] { m := json.marshal(input.review) }
===
# whole
violation[{"msg": m}] { x := {"r": input}; m := x.r.review.object.metadata.name }
===
# whole
import input as everything
violation[{"msg": m}] { m := json.marshal(everything) }
===
import input as everything
violation[{"msg": m}] { m := everything.review.object.metadata.name }
===
import input.review
violation[{"msg": m}] { m := review.object.metadata.name; review.object.spec.hostNetwork }
===
import input.review.object["metadata"] as meta
violation[{"msg": m}] { m := meta.name }
===
violation[{"msg": m}] { m := input[r].object.metadata.name; r == "review" }
===
violation[{"msg": m}] { r := input[_]; m := r.object.metadata.name }
===
violation[{"msg": m}] { m := data.t.name }
name := n { n := input.review.object.metadata.name }
===
violation contains {"msg": m} if { some c in input.review.object.spec.containers; m := c.image }
===
violation contains {"msg": m} if { m := first }
first := c.image if { c := input.review.object.spec.containers[0] } else := input.review.object.metadata.name
===
violation[{"msg": "a"}] { s := input.review.object.spec; f := s.first; not f.image }
===
violation[{"msg": "a"}] { not input.review.object.metadata.labels[_].x }
===
missing(x) { not x.image }
violation[{"msg": "a"}] { o := input.review.object; s := o.spec; missing(s.first) }
===
violation[{"msg": m}] { walk(input.review.object.spec, [p, m]); p[0] == "args"; is_string(m) }
===
violation[{"msg": m}] { s := input.review.object.spec; walk(s, [_, m]); is_string(m) }
