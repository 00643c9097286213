;; world: validator
;; Has the host write what it asked for behind the end of its memory.
(import "tollgate:admission/review@0.1.0" "get-json" (func $get_json (param i32 i32 i32 i32)))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x7ffffff0))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $get_json (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
    (i32.const 256))
