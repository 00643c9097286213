;; world: validator
;; Denies with a message after the end of its memory.
(data (i32.const 1024) "\01\00\00\00" "\00\00\ff\7f" "\10\00\00\00")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1024))
