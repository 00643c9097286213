;; world: with-clock
;; Imports a capability that its configuration does not grant.
(import "tollgate:admission/clock@0.1.0" "now" (func $now (param i32)))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $now (i32.const 1024))
    (i32.const 256))
