;; world: with-unknown-import
;; Imports an interface that no host has.
(import "tollgate:hostile/unknown" "run" (func $run))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $run)
    (i32.const 256))
