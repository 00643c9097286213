;; world: validator
;; Denies with 20,000 empty causes.
(memory (export "memory") 20)
;; deny (1): the message "no"; its list of causes is at 28.
(data (i32.const 1020) "no")
(data (i32.const 1024) "\01\00\00\00" "\fc\03\00\00\02\00\00\00")
(data (i32.const 1052) "\00\00\01\00" "\20\4e\00\00")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1024))
