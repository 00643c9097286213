;; world: with-wasi-environment
;; Reads environment variables, and denies if there are any.
(import "wasi:cli/environment@0.2.0" "get-environment" (func $environment (param i32)))
(data (i32.const 1024) "\01")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $environment (i32.const 2048))
    (if (i32.load (i32.const 2052)) (then (return (i32.const 1024))))
    (i32.const 256))
