;; world: validator
;; Returns an address with a wrong alignment.
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 1025))
