;; world: validator
;; Answers from an address that no answer can have.
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1025))
