;; world: validator
;; Adds 10,000 annotations without key and value.
(import "tollgate:admission/review@0.1.0" "annotate" (func $annotate (param i32 i32 i32 i32)))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (local $left i32)
    (local.set $left (i32.const 10000))
    (loop $again
        (call $annotate (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left)))
    (i32.const 256))
