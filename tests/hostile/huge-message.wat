;; world: validator
;; Denies with 20 MB of zeros.
(memory (export "memory") 400)
;; deny (1), and the message: 20,000,000 bytes at 65536.
(data (i32.const 1024) "\01\00\00\00" "\00\00\01\00" "\00\2d\31\01")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1024))
