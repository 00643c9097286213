;; world: validator
;; Warns a million times and then allows.
(import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
(data (i32.const 1024) "beware 0000000")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (local $left i32)
    (local.set $left (i32.const 1000000))
    (loop $again
        ;; Another text each time.
        (i32.store (i32.const 1031) (i32.or (i32.const 0x30303030) (i32.and (local.get $left) (i32.const 0x07070707))))
        (call $warn (i32.const 1024) (i32.const 14))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left)))
    (i32.const 256))
