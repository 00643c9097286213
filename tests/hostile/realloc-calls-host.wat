;; world: validator
;; Calls the host while the host writes into the plugin.
(import "tollgate:admission/review@0.1.0" "get-json" (func $get_json (param i32 i32 i32 i32)))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (if (i32.ne (local.get 3) (i32.const 2))
        (then (call $get_json (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))))
    (i32.const 4096))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $get_json (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
    (i32.const 256))
