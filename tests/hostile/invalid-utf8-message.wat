;; world: validator
;; Denies with bytes that are not valid UTF-8.
(data (i32.const 1024) "\ff\fe\fd\fc")
(data (i32.const 1032) "\01\00\00\00" "\00\04\00\00\04\00\00\00")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1032))
